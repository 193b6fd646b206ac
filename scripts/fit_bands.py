"""Refit the bands of `planner estimate` (planner/confidence.yaml, planner/measured.csv).

    python scripts/fit_profiles.py --rounds 0 --write      # errors with the source left out
    python scripts/fit_bands.py [--write]

A band holds the 10th to the 90th percentile of measured over predicted, of runs of one kind and grade. Each run counts three
times: as fitted with its configuration, and left out of the fit with its model and with its source; its distance is then to the
nearest configuration outside of that group. Coverage is checked by leaving each source out of the bands as well.
"""

from __future__ import annotations

import argparse
import csv
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import yaml

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parent))

from published import FOLDER, Row, rows

from planner import confidence
from planner.confidence import GRADES, KINDS, NUMBERS, Measured, distances, features, kind_of

ENOUGH = 20
"""Runs that a band needs; with fewer, those of the next stronger grade join."""
LOW, HIGH = 10, 90
SHARES = (45, 80)
"""Percent of runs that are strong evidence, and that are at least fair."""
SETTINGS = Path(confidence.__file__).with_name("confidence.yaml")
TABLE = Path(confidence.__file__).with_name("measured.csv")
HEADER = (
    "# Bands of measured over predicted step time, and what they rest on. Made by scripts/fit_bands.py.\n"
)


def quantiles(errors: np.ndarray) -> list[float]:
    """Band of measured/predicted that holds the middle 80 % of log(predicted/measured)."""
    n = len(errors)
    widen = 1 + 1 / max(n, 1)  # finite samples cover less than their quantiles say
    low, high = np.percentile(-errors, [LOW, HIGH])
    return [
        round(float(np.exp(low * widen if low < 0 else low)), 3),
        round(float(np.exp(high * widen if high > 0 else high)), 3),
    ]


def bands(kinds: np.ndarray, grades: np.ndarray, errors: np.ndarray) -> dict[str, dict[str, list[float]]]:
    """Bands by kind and grade."""
    out: dict[str, dict[str, list[float]]] = {}
    for kind in sorted(map(str, set(kinds))):
        out[kind] = {}
        for at, grade in enumerate(GRADES):
            inside = (kinds == kind) & (grades == at)
            below = at
            while inside.sum() < ENOUGH and below > 0:
                below -= 1
                inside |= (kinds == kind) & (grades == below)
            if inside.sum() < ENOUGH:
                inside = kinds == kind
            low, high = quantiles(errors[inside])
            if at:  # weaker evidence never has the narrower band
                before = out[kind][GRADES[at - 1]]
                low, high = min(low, before[0]), max(high, before[1])
            out[kind][grade] = [low, high]
    return out


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
    }
    each = [features(row.run) for row in used]
    measured = Measured(np.array([kind for kind, _ in each]), np.array([number for _, number in each]))
    errors = np.concatenate([[line[name] for line in lines] for name in group])
    near = np.concatenate([nearest(each, measured, names) for names in group.values()])
    kinds = np.tile([kind_of(row.run) for row in used], len(group))
    families = np.tile(family, len(group))
    asked_of = np.repeat(list(group), len(used))
    limits = np.percentile(near, SHARES)
    grades = np.searchsorted(limits, near)
    for at, grade in enumerate(GRADES):
        e = np.abs(errors[grades == at])
        print(
            f"{grade:7s} n {len(e):4d} median {100 * np.median(e):5.1f} % p80 {100 * np.percentile(e, 80):5.1f} %"
        )
    covered = np.zeros(len(errors), dtype=bool)
    for name in sorted(set(family)):
        table = bands(kinds[families != name], grades[families != name], errors[families != name])
        for i in np.flatnonzero(families == name):
            low, high = table[kinds[i]][GRADES[grades[i]]]
            covered[i] = low <= np.exp(-errors[i]) <= high
    share = {name: round(100 * float(covered[asked_of == name].mean()), 1) for name in group}
    print(
        f"coverage with a source left out of the bands, % of runs whose ... was left out of the fit: {share}"
    )
    settings: dict[str, Any] = yaml.safe_load(SETTINGS.read_text())
    settings["grades"] = {"strong": round(float(limits[0]), 2), "fair": round(float(limits[1]), 2)}
    settings["bands"] = bands(kinds, grades, errors)
    settings["coverage"] = share
    settings["source"] = (
        f"{len(used)} published runs, each predicted as fitted, with its model and with its source left out of the fit; with its "
        f"source left out of the bands as well they cover {share['fitted']}, {share['model']} and {share['source']} % of them"
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
