"""Checks a run in phases as a whole, from scratch; its plans are checked one by one in `validate.py`."""

from __future__ import annotations

from itertools import pairwise
from math import isclose
from typing import Any

from costmodel.units import DAY
from planner.problem import Problem
from planner.solution import PhasedRun, PhasePlan
from planner.validate import TOLERANCE, predicted_of
from planner.validate_run import lasts


def jobs_own(phase: PhasePlan) -> tuple[Any, ...]:
    """What cannot change within a job."""
    d = phase.plan.decisions
    stages = [(s.layers, s.recomputed_layers, s.kinds, s.chunks, s.recomputed_chunks) for s in d.stages]
    rest = d.model_dump(exclude={"num_microbatches", "global_batch", "stages", "parts"})
    return phase.seq_len, stages, rest


def grows_only(before: PhasePlan, after: PhasePlan) -> bool:
    """Whether two phases can be one job: all is the same but the batch, which may grow."""
    parts = [jobs_own(each) for each in (before, after)]
    grows = before.plan.decisions.global_batch <= after.plan.decisions.global_batch
    return grows and parts[0] == parts[1]


def tightest(problem: Problem, limit: float | None, name: str, unit: float) -> float | None:
    """A limit on the run, or what is required of the same if that is less."""
    required = [unit * float(of.values[0]) for of in problem.limits.require if of.name == name]
    return min([*required, *([] if limit is None else [limit])], default=None)


def wrong_together(problem: Problem, phases: list[Problem], run: PhasedRun) -> list[str]:
    """What is wrong with a run in phases as a whole; its plans are looked at one by one elsewhere.

    `phases` are the phases as problems of their own.
    """
    first = run.phases[0].plan.decisions
    pools = zip(problem.hardware, problem.sites, strict=True)
    pool, site = next(each for each in pools if each[0].accelerator.name == run.gpu)
    seconds, kwh, tonnes, wrong = 0.0, 0.0, 0.0, []
    # Nothing is saved behind the last phase, as if the run went on.
    going = [False, *(grows_only(*pair) for pair in pairwise(run.phases)), True]
    for index, (alone, phase) in enumerate(zip(phases, run.phases, strict=True)):
        d = phase.plan.decisions
        if (d.gpu, d.num_gpus) != (run.gpu, run.num_gpus) or d.nodes != run.nodes:
            wrong.append(f"{phase.name} is on {d.num_gpus} {d.gpu}, the run on {run.num_gpus} {run.gpu}")
        if d.precision != first.precision:
            wrong.append(f"{phase.name} is in {d.precision}, the first phase in {first.precision}")
        one = lasts(alone, site, phase.plan, predicted_of(alone, pool, d))
        lost = site.losses(d.num_gpus, d.dp)
        took = one.seconds - (float(lost.startup) if going[index] else 0.0)
        took += 0.0 if going[index + 1] else float(lost.saving.stall + lost.saving.write)
        if phase.goes_on != going[index]:
            wrong.append(f"{phase.name} is said {'' if phase.goes_on else 'not '}to go on in the same job")
        if not isclose(phase.days, took / DAY, rel_tol=TOLERANCE):
            wrong.append(f"days of {phase.name}: reported {phase.days:.9g}, computed {took / DAY:.9g}")
        seconds, kwh = seconds + took, kwh + one.kwh * took / one.seconds
        tonnes += one.tonnes * took / one.seconds
    bill = float(site.bill(run.num_gpus, seconds, site.losses(run.num_gpus, first.dp)).total)
    used = {
        "deadline": (run.days * DAY, seconds, tightest(problem, problem.limits.deadline, "days", DAY)),
        "budget": (run.dollars, bill, tightest(problem, problem.limits.budget, "dollars", 1.0)),
        "energy": (
            run.energy and run.energy.mwh * 1e3,
            kwh,
            tightest(problem, problem.limits.energy, "energy", 1e3),
        ),
        "carbon": (
            run.energy and run.energy.tonnes_co2,
            tonnes,
            tightest(problem, problem.limits.carbon, "carbon", 1.0),
        ),
    }
    for name, (shown, value, limit) in used.items():
        if shown is not None and not isclose(shown, value, rel_tol=TOLERANCE):
            wrong.append(f"{name} of the run: reported {shown:.9g}, computed {value:.9g}")
        if limit is not None and value > limit * (1 + TOLERANCE):
            wrong.append(f"{name} of the run: {value:.9g} exceeds {limit:.9g}")
    tokens = sum(phase.training.tokens for phase in phases)
    if not isclose(tokens, problem.training.tokens, rel_tol=TOLERANCE):
        wrong.append(f"the phases have {tokens:.9g} tokens, the run {problem.training.tokens:.9g}")
    return wrong
