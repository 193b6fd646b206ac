"""Score the cost model on the published runs and write docs/accuracy.md.

    python scripts/score.py            # print the targets, write docs/accuracy.md, docs/accuracy.svg, validation/score.yaml
    python scripts/score.py --check    # only compare with the committed validation/score.yaml; exit 1 when it got worse

Errors are |predicted/measured - 1| of one row a configuration, the newest release; tier 1 unless said otherwise. Figures with
a source left out come from validation/left_out.jsonl (scripts/fit_profiles.py --rounds 0 --write).
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import yaml

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parent))

from accuracy_page import page
from measures import Scored, measures, scored
from published import FOLDER, rows
from scatter import scatter

SCORE = FOLDER / "score.yaml"
DOCS = FOLDER.parent / "docs"
TOLERANCE = 0.05
"""Percentage points by which a figure may get worse unnoticed: rounding, and other machines' last digits."""
COVERED = 80.0
MARGIN = 5.0
"""Coverage of the 80 % intervals may be that far off either way."""
HIGHER_IS_BETTER = ("order", "tau", "top three", "flagged")


def worse(name: str, now: float, before: float) -> bool:
    """Whether a figure got worse than the committed one."""
    if "bias" in name:
        return abs(now) > abs(before) + TOLERANCE
    if "coverage" in name:
        return abs(now - COVERED) > max(abs(before - COVERED), MARGIN) + TOLERANCE
    if any(word in name for word in HIGHER_IS_BETTER):
        return now < before - (TOLERANCE if "%" in name else TOLERANCE / 5)
    return now > before + TOLERANCE


def check(figures: dict[str, float]) -> int:
    """Prints what got worse; the number of such figures."""
    committed: dict[str, float] = yaml.safe_load(SCORE.read_text())
    bad = [
        (name, before, figures.get(name))
        for name, before in committed.items()
        if name not in figures or worse(name, figures[name], before)
    ]
    for name, before, now in bad:
        print(f"{name}: {before} committed, {now} now")
    print(f"{len(committed) - len(bad)} of {len(committed)} figures are no worse than the committed score")
    return len(bad)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true")
    asked = parser.parse_args()
    all_rows = rows()
    table: list[Scored] = scored(all_rows)
    figures = measures(table, all_rows)
    for name, value in figures.items():
        print(f"{name:70s} {value}")
    if asked.check:
        raise SystemExit(min(check(figures), 1))
    SCORE.write_text(yaml.safe_dump(figures, sort_keys=False, width=120))
    (DOCS / "accuracy.md").write_text(page(table, figures))
    (DOCS / "accuracy.svg").write_text(scatter(table))


if __name__ == "__main__":
    main()
