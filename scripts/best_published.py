"""Find the best published model FLOPs utilisation by GPU, precision and model class (planner/best_published.yaml).

    python scripts/best_published.py [--write]

Of all timed pre-training rows of tiers 1 and 2, whatever their release, with the number of rows and of sources a class has: the best
of few says little. Utilisation is model FLOPs without recompute, causal attention halved, over dense BF16 peak, whatever
precision the GEMMs have and whichever way the source counts.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import yaml

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parent))

from published import Row, rows

from planner.estimates import estimated
from planner.published import DATA, class_of
from planner.runs import DescribedRun

HEADER = (
    "# Highest model FLOPs utilisation that was published, by class. Made by scripts/best_published.py.\n"
)


def measured_mfu(row: Row) -> float:
    """Model FLOPs utilisation at the measured step time."""
    assert isinstance(row.described, DescribedRun)
    assert row.step_time is not None
    predicted = estimated(row.described)
    return predicted.mfu * predicted.step_time / row.step_time


def usable(row: Row) -> bool:
    return (
        isinstance(row.described, DescribedRun)
        and row.tier in (1, 2)
        and row.task == "pretrain"
        and row.step_time is not None
    )


def best_rows(all_rows: list[Row]) -> list[dict[str, Any]]:
    """The best row of each class, in order of the classes."""
    best: dict[tuple[str, str, str], tuple[float, Row]] = {}
    count: Counter[tuple[str, str, str]] = Counter()
    sources: dict[tuple[str, str, str], set[str]] = defaultdict(set)
    for row in filter(usable, all_rows):
        mfu = measured_mfu(row)
        count[class_of(row.run)] += 1
        sources[class_of(row.run)].add(row.family)
        if mfu > best.get(class_of(row.run), (0.0, row))[0]:
            best[class_of(row.run)] = (mfu, row)
    return [
        {
            "gpu": gpu,
            "bits": int(bits),
            "model": model,
            "mfu": round(mfu, 4),
            "runs": count[gpu, bits, model],
            "sources": len(sources[gpu, bits, model]),
            "run": row.id,
            "from": f"{row.data['model']['name']} on {row.run.num_gpus}; {row.data['source']}",
        }
        for (gpu, bits, model), (mfu, row) in sorted(best.items())
    ]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--write", action="store_true")
    asked = parser.parse_args()
    text = yaml.safe_dump({"best": best_rows(rows())}, sort_keys=False, width=140)
    print(text)
    if asked.write:
        DATA.write_text(HEADER + text)


if __name__ == "__main__":
    main()
