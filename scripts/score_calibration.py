"""What calibration on a few steps brings: errors of a source's other runs before and after, on published runs.

    python scripts/score_calibration.py [--draws 100] [--most 3]

A cluster is the runs of one source on one GPU. Of each, one to three random runs are calibrated on (factors of
costmodel/calibration/factors.py, one setting for all) and the others predicted, many times; runs of the same
configuration group as a calibrated one are not counted. Errors are |predicted/measured - 1| in percent, medians.

Two starting points: every source left out of the fit of the software profiles (validation/left_out.jsonl), which is
where the owner of a new cluster stands; and the profiles as they are, whose fit has seen the source already.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parent))

from published import FOLDER, Row, rows, seconds, timed

from costmodel.calibration.apply import calibrated_stack
from costmodel.calibration.factors import Priors, fit_factors, priors
from planner.calibrate.steps import NUDGE, with_factors
from planner.runs import DescribedRun

Values = NDArray[np.float64]
SEED = 11
FEWEST = 3
"""Runs that a cluster needs to be counted."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """The runs of one source on one GPU."""

    source: str
    gpu: str
    groups: NDArray[np.str_]
    """Configuration of each run: repeats of one are not predictions."""
    left_out: Values
    """log(predicted/measured) with the source left out of the fit."""
    fitted: Values
    """The same with the profiles as they are."""
    slopes: Values
    """(runs, factors)"""


def slopes(row: Row, known: Priors) -> Values:
    """d log(predicted) / d log(factor) of one run."""
    assert isinstance(row.described, DescribedRun)
    run, base = row.run, seconds(row.described)
    found = []
    for axis in np.eye(len(known.names)):
        gpu = with_factors(run.gpu, known.names, NUDGE * axis)
        moved = seconds(row.described, calibrated_stack(run.stack, gpu), gpu)
        found.append(np.log(moved / base) / NUDGE)
    return np.array(found)


def clusters(known: Priors) -> list[Cluster]:
    """Clusters of the rows that have an error with their source left out."""
    with (FOLDER / "left_out.jsonl").open() as file:
        errors = {each["id"]: each for each in map(json.loads, file)}
    parts: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in timed(rows()):
        if row.id in errors and isinstance(row.described, DescribedRun):
            parts[row.family, row.data["gpu"]].append(row)
    return [
        Cluster(
            *key,
            np.array([str(row.data.get("config_group", row.id)) for row in part]),
            np.array([errors[row.id]["source"] for row in part]),
            np.array([np.log(seconds(row.described) / (row.step_time or np.nan)) for row in part]),  # type: ignore[arg-type]
            np.array([slopes(row, known) for row in part]),
        )
        for key, part in sorted(parts.items())
        if len(part) >= FEWEST
    ]


def drawn(cluster: Cluster, errors: Values, steps: int, draws: int, known: Priors) -> tuple[Values, Values]:
    """Errors of runs that were not calibrated on, before and after, of all draws together."""
    rng, count = np.random.default_rng(SEED), len(errors)
    before, after = [], []
    for _ in range(draws):
        chosen = rng.choice(count, steps, replace=False)
        others = ~np.isin(cluster.groups, cluster.groups[chosen])
        x = fit_factors(errors[chosen], cluster.slopes[chosen], known)
        before.append(np.abs(np.expm1(errors[others])))
        after.append(np.abs(np.expm1(errors[others] + cluster.slopes[others] @ x)))
    return np.concatenate(before), np.concatenate(after)


def show(title: str, some: list[Cluster], which: str, most: int, draws: int, known: Priors) -> None:
    print(title)
    print(f"{'':24}{'runs':>6}" + "".join(f"{f'{n} step' + 's' * (n > 1):>18}" for n in range(1, most + 1)))
    every: list[list[tuple[Values, Values]]] = [[] for _ in range(most)]
    for cluster in some:
        cells = ""
        for steps in range(1, most + 1):
            if len(cluster.groups) <= steps:
                continue
            pair = drawn(cluster, getattr(cluster, which), steps, draws, known)
            if len(pair[0]):
                every[steps - 1].append(pair)
                cells += f"{100 * np.median(pair[0]):9.1f} ->{100 * np.median(pair[1]):6.1f}"
        print(f"{cluster.source + ', ' + cluster.gpu:24}{len(cluster.groups):6}{cells}")
    totals, means = "", ""
    for pairs in every:
        totals += "".join(
            f"{100 * np.median(np.concatenate(side)):9.2f}" for side in zip(*pairs, strict=True)
        )
        means += "".join(
            f"{100 * np.mean([np.median(each) for each in side]):9.2f}" for side in zip(*pairs, strict=True)
        )
    print(f"{'median of all runs':30}{totals}\n{'mean of cluster medians':30}{means}\n")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--draws", type=int, default=100)
    parser.add_argument("--most", type=int, default=3, help="steps that are calibrated on")
    asked = parser.parse_args()
    known = priors()
    some = clusters(known)
    show("Source left out of the fit of the profiles", some, "left_out", asked.most, asked.draws, known)
    show("Profiles as they are (fitted on these runs too)", some, "fitted", asked.most, asked.draws, known)


if __name__ == "__main__":
    main()
