"""Refit the bands of `planner estimate` (planner/confidence.yaml, planner/measured.csv).

    python scripts/fit_profiles.py --rounds 0 --write      # errors with the source left out
    python scripts/fit_bands.py [--write]

An edge of a band is a line in the distance to the nearest measured configuration, by quantile regression of log(measured /
predicted) over the runs of one kind. Each run counts three times: left out of the fit with its model, its source and its GPU; its
distance is then to the nearest configuration outside of that group. Coverage is checked by leaving each source out of the
bands as well: the quantiles are the least that still cover four of five of these runs.
"""

from __future__ import annotations

import argparse
import csv
import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import yaml

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parent))

from published import FOLDER, Row, rows

from planner import confidence
from planner.confidence import GRADES, KINDS, NUMBERS, Measured, distances, features, kind_of

TAILS = np.arange(10.0, 4.0, -0.5)
"""Percent of runs beyond either edge of a band, tried in this order."""
WANTED = 80.0
"""Percent of runs to cover, with the source left out of the bands, of those whose model and whose source the fit had not seen."""
SLOPES = np.arange(0.005, 0.151, 0.005)
"""Widening of an edge (a logarithm) for each unit of distance; never none."""
ENOUGH = 10
"""Configurations that make a GPU generation a measured one."""
SHARES = (45, 80)
"""Percent of runs that are strong evidence, and that are at least fair."""
SETTINGS = Path(confidence.__file__).with_name("confidence.yaml")
TABLE = Path(confidence.__file__).with_name("measured.csv")
HEADER = (
    "# Bands of measured over predicted step time, and what they rest on. Made by scripts/fit_bands.py.\n"
)


def edge(errors: np.ndarray, away: np.ndarray, tail: float) -> list[float]:
    """[a, b] of the upper edge a + b*distance: quantile regression at 1 - tail/100 (least pinball loss)."""
    level = 1 - tail / 100
    best = (np.inf, 0.0, 0.0)
    for slope in SLOPES:
        rest = errors - slope * away
        start = np.percentile(rest, 100 * level)
        loss = np.mean(np.maximum(level * (rest - start), (level - 1) * (rest - start)))
        best = min(best, (float(loss), max(float(start), 0.0), float(slope)))
    return [round(best[1], 4), round(best[2], 4)]


Bands = dict[str, dict[str, list[float]]]


def bands(kinds: np.ndarray, away: np.ndarray, errors: np.ndarray, tail: float) -> Bands:
    """Edges by kind: of runs that take longer than predicted (high) and shorter (low)."""
    return {
        kind: {
            "low": edge(errors[kinds == kind], away[kinds == kind], tail),
            "high": edge(-errors[kinds == kind], away[kinds == kind], tail),
        }
        for kind in sorted(map(str, set(kinds)))
    }


def inside(table: Bands, kinds: np.ndarray, away: np.ndarray, errors: np.ndarray) -> np.ndarray:
    """Whether log(measured/predicted) of each run lies in its band."""
    low, high = (np.array([table[kind][side] for kind in kinds]) for side in ("low", "high"))
    return (errors <= low[:, 0] + low[:, 1] * away) & (-errors <= high[:, 0] + high[:, 1] * away)


def measured_on(used: list[Row]) -> dict[str, list[str]]:
    """GPU generations that each kind was measured on, in enough configurations."""
    count = Counter((kind_of(row.run), row.run.gpu.generation) for row in used)
    return {
        kind: sorted(generation for (each, generation), n in count.items() if each == kind and n >= ENOUGH)
        for kind in sorted({kind for kind, _ in count})
    }


def nearest(
    each: list[tuple[tuple[str, ...], np.ndarray]], measured: Measured, groups: np.ndarray
) -> np.ndarray:
    """Distance of each run to the nearest one outside of its group."""
    return np.array([distances(*one, measured.but(groups == groups[i])).min() for i, one in enumerate(each)])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--write", action="store_true")
    asked = parser.parse_args()
    by_id: dict[str, Row] = {row.id: row for row in rows()}
    lines = [json.loads(line) for line in (FOLDER / "left_out.jsonl").read_text().splitlines()]
    used = [by_id[line["id"]] for line in lines]
    family = np.array([row.family for row in used])
    group = {
        "fitted": np.array([row.data["config_group"] for row in used]),
        "model": np.array([row.model for row in used]),
        "source": family,
        "gpu": np.array([row.run.gpu.name for row in used]),
    }
    each = [features(row.run) for row in used]
    measured = Measured(np.array([kind for kind, _ in each]), np.array([number for _, number in each]))
    errors = np.concatenate([[line[name] for line in lines] for name in group])
    near = np.concatenate([nearest(each, measured, names) for names in group.values()])
    kinds = np.tile([kind_of(row.run) for row in used], len(group))
    families = np.tile(family, len(group))
    asked_of = np.repeat(list(group), len(used))
    unseen = asked_of != "fitted"
    unseen = asked_of != "fitted"
    limits = np.percentile(near[unseen], SHARES)
    grades = np.searchsorted(limits, near)
    for at, grade in enumerate(GRADES):
        e = np.abs(errors[grades == at])
        print(
            f"{grade:7s} n {len(e):4d} median {100 * np.median(e):5.1f} % p80 {100 * np.percentile(e, 80):5.1f} %"
        )
    for tail in TAILS:
        covered = np.zeros(len(errors), dtype=bool)
        for name in sorted(set(family)):
            rest, out = unseen & (families != name), families == name
            table = bands(kinds[rest], near[rest], errors[rest], tail)
            covered[out] = inside(table, kinds[out], near[out], errors[out])
        share = {name: round(100 * float(covered[asked_of == name].mean()), 1) for name in group}
        print(
            f"tails of {tail} %, source left out of the bands: covers % of runs with the ... left out: {share}"
        )
        if share["model"] + share["source"] >= 2 * WANTED:
            break
    settings: dict[str, Any] = yaml.safe_load(SETTINGS.read_text())
    settings["grades"] = {"strong": round(float(limits[0]), 2), "fair": round(float(limits[1]), 2)}
    settings["bands"] = bands(kinds[unseen], near[unseen], errors[unseen], tail)
    settings["generations"] = measured_on(used)
    settings["coverage"] = share
    settings["source"] = (
        f"{len(used)} published runs, each predicted with its model, its source and its GPU left out of the fit; with its source "
        f"left out of the bands as well they cover {share['model']}, {share['source']} and {share['gpu']} % of them, and {share['fitted']} % of runs as "
        f"fitted. Edges leave {tail} % of runs on either side where the bands were made"
    )
    print(yaml.safe_dump(settings, sort_keys=False, width=120))
    if asked.write:
        SETTINGS.write_text(HEADER + yaml.safe_dump(settings, sort_keys=False, width=120))
        with TABLE.open("w", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow([*KINDS, *NUMBERS])
            unique = sorted({(*kind, *(f"{value:.2f}" for value in number)) for kind, number in each})
            writer.writerows(unique)


if __name__ == "__main__":
    main()
