"""What a problem file left open or made remarkable, a sentence each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from planner.narrowing import software_words
from planner.pricing import price_words

if TYPE_CHECKING:
    from planner.problem import Problem

HIGH_MFU = 0.7
"""Above this no published large run has been; a figure there is more likely a slip."""


def assumptions_of(problem: Problem) -> list[str]:
    """Prices, losses, the model's file, calibrations, precisions, software, an assumed MFU."""
    notes = [
        price_words(pool.accelerator, site.tariff, pool.assumed_price)
        for pool, site in zip(problem.hardware, problem.sites, strict=True)
        if pool.assumed_price or site.tariff.kind != "reserved"
    ]
    if problem.reliability is None and problem.assume_mfu is None:
        notes.append(
            "Days and dollars contain what failures, checkpoints and restarts cost at usual rates; "
            "`reliability:` says otherwise."
        )
    if problem.model.file is not None:
        notes += [f"{problem.model.file.path}: {note}" for note in problem.model.file.notes]
    notes += [
        f"{pool.accelerator.name} is as its cluster was measured ({pool.accelerator.calibration.source})."
        for pool in problem.hardware
        if pool.accelerator.calibration is not None
    ]
    notes += without_precision(problem)
    notes += software_words(problem.search)
    return notes if problem.assume_mfu is None else [*notes, *mfu_words(problem.assume_mfu)]


def without_precision(problem: Problem) -> list[str]:
    """GPUs that lack a precision of the problem, a sentence each."""
    wanted, notes = problem.training.precision, []
    for gpu in dict.fromkeys(pool.accelerator.name for pool in problem.hardware):
        pool = next(pool for pool in problem.hardware if pool.accelerator.name == gpu)
        lacks = [each.upper() for each in wanted if each not in pool.accelerator.peak_flops]
        has = [each.upper() for each in wanted if each in pool.accelerator.peak_flops]
        left = f"plans on it train in {' or '.join(has)}" if has else "no plan is on it"
        notes += [f"{gpu} has no {' and no '.join(lacks)}: {left}."] if lacks else []
    return notes


def mfu_words(mfu: float) -> list[str]:
    """That time is not predicted, and whether the MFU that is assumed has been seen."""
    notes = [f"Time follows from an assumed MFU of {mfu:.1%}, not from the cost model."]
    if mfu > HIGH_MFU:
        notes.append(f"An MFU above {HIGH_MFU:.0%} is more than published large runs reach.")
    return notes
