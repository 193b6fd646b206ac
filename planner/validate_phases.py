"""Checks a run in phases as a whole, from scratch; its plans are checked one by one in `validate.py`."""

from __future__ import annotations

from math import isclose

from planner.problem import Problem
from planner.solution import PhasedRun
from planner.validate import DAY, TOLERANCE, predicted_of
from planner.validate_run import lasts


def wrong_together(problem: Problem, phases: list[Problem], run: PhasedRun) -> list[str]:
    """What is wrong with a run in phases as a whole; its plans are looked at one by one elsewhere.

    `phases` are the phases as problems of their own.
    """
    first = run.phases[0].plan.decisions
    pools = zip(problem.hardware, problem.sites, strict=True)
    pool, site = next(each for each in pools if each[0].accelerator.name == run.gpu)
    seconds, kwh, tonnes, wrong = 0.0, 0.0, 0.0, []
    for index, (alone, phase) in enumerate(zip(phases, run.phases, strict=True)):
        d = phase.plan.decisions
        if (d.gpu, d.num_gpus) != (run.gpu, run.num_gpus) or d.nodes != run.nodes:
            wrong.append(f"{phase.name} is on {d.num_gpus} {d.gpu}, the run on {run.num_gpus} {run.gpu}")
        one = lasts(alone, site, phase.plan, predicted_of(alone, pool, d))
        saving = site.losses(d.num_gpus, d.dp).saving
        took = one.seconds + (float(saving.stall + saving.write) if index < len(phases) - 1 else 0.0)
        if not isclose(phase.days, took / DAY, rel_tol=TOLERANCE):
            wrong.append(f"days of {phase.name}: reported {phase.days:.9g}, computed {took / DAY:.9g}")
        seconds, kwh = seconds + took, kwh + one.kwh * took / one.seconds
        tonnes += one.tonnes * took / one.seconds
    bill = float(site.bill(run.num_gpus, seconds, site.losses(run.num_gpus, first.dp)).total)
    used = {
        "deadline": (run.days * DAY, seconds, problem.limits.deadline),
        "budget": (run.dollars, bill, problem.limits.budget),
        "energy": (run.energy and run.energy.mwh * 1e3, kwh, problem.limits.energy),
        "carbon": (run.energy and run.energy.tonnes_co2, tonnes, problem.limits.carbon),
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
