"""A run in phases as tables: the run as a whole, and a line or two a phase."""

from __future__ import annotations

from rich.table import Table

from planner.cli.grid import grid
from planner.cli.words import decisions_line, dollars, energy_words, seconds, share
from planner.english import counted
from planner.solution import PhasedRun, PhasePlan


def run_facts(run: PhasedRun) -> Table:
    """A run in phases as a whole."""
    between = run.interval_80_days
    sure = f" (80 % sure: {between[0]:.1f} to {between[1]:.1f})" if between else ""
    lost = f"{share(run.goodput)}: {run.ideal_days:.1f} days if nothing stopped it"
    facts = [
        ("GPUs", f"{run.num_gpus} x {run.gpu} in {counted(run.nodes, 'node')}"),
        ("time", f"{run.days:.1f} days{sure}"),
        ("cost", dollars(run.dollars)),
        ("goodput", f"{lost}; {run.switching_hours:.2f} h between phases"),
    ]
    return grid(facts + ([("energy", energy_words(run.energy))] if run.energy else []))


def phase_facts(run: PhasedRun) -> Table:
    """A line or two a phase."""
    rows = []
    for phase in run.phases:
        d, estimate = phase.plan.decisions, phase.plan.estimate
        head = f"{phase.days:.1f} days, {tokens(phase.tokens)} tokens of {phase.seq_len:,}"
        step = f"{counted(d.global_batch, 'sequence', '')} a step, {seconds(estimate.step_time_s)}"
        rows.append((phase.name, f"{head}; {step}; {decisions_line(d)}"))
    return grid(rows)


def tokens(number: float) -> str:
    """11.33T, 252M."""
    unit, name = next(each for each in ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1, "")) if number >= each[0])
    return f"{number / unit:.4g}{name}"


def longest(run: PhasedRun) -> PhasePlan:
    """The phase that lasts longest."""
    return max(run.phases, key=lambda phase: phase.days)
