"""Refit how far peak memory can be off (planner/memory_risk.yaml) from published peaks.

    python scripts/fit_memory_risk.py [--write]

Quantiles of log(measured/predicted) over the observations of `scripts/score_memory.py`. As a check it prints what the risk says of
runs that are known to have run and to have run out of memory.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import numpy as np
import yaml

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parent))

from score_memory import DATA, OUT_OF_MEMORY, feasibility, memory_errors, rows_of

from planner import memory_risk

SHARES = (0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99)
FILE = Path(memory_risk.__file__).with_suffix(".yaml")
HEADER = "# How far peak memory can be off, and what is called risky. Made by scripts/fit_memory_risk.py.\n"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--write", action="store_true")
    asked = parser.parse_args()
    peaks = memory_errors(rows_of(DATA))
    logs = -np.log1p([peak.error for peak in peaks])
    old: dict[str, Any] = yaml.safe_load(FILE.read_text()) if FILE.exists() else {}
    table = {
        "classes": old.get("classes", {"low": 0.05, "moderate": 0.25}),
        "quantiles": {share: round(float(np.quantile(logs, share)), 4) for share in SHARES},
        "source": f"{len(peaks)} published peaks of runs that ran, allocated, reserved or in use on the device, each against the "
        "prediction of the same figure (scripts/score_memory.py); logarithms of measured over predicted",
    }
    text = HEADER + yaml.safe_dump(table, sort_keys=False, width=110)
    print(text)
    if asked.write:
        FILE.write_text(text)
        memory_risk.settings.cache_clear()
    fits = feasibility([*rows_of(DATA), *rows_of(OUT_OF_MEMORY)])
    for name, ran in (("ran", True), ("ran out of memory", False)):
        risk = np.array([memory_risk.share_above(1 / fit.used) for fit in fits if fit.ran == ran])
        print(
            f"{name}: {len(risk)} runs, mean risk {risk.mean():.1%}, median {np.median(risk):.1%}, above 25 %: {(risk > 0.25).mean():.1%}"
        )


if __name__ == "__main__":
    main()
