"""Reads measured steps: the training log of Megatron-LM, or a CSV of runs and step times.

A log line of Megatron-LM (megatron/training/training.py, `training_log`):

    iteration       20/     100 | consumed samples: ... | elapsed time per iteration (ms): 4712.3 |
    throughput per GPU (TFLOP/s/GPU): 401.2 | ... | global batch size:   512 | ...
"""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass
from math import isfinite
from pathlib import Path

import numpy as np

from planner.calibrate import MOST_BYTES
from planner.errors import InvalidInput
from planner.yaml_file import read_text

LINE = re.compile(r"iteration\s+(\d+)\s*/\s*\d+.*?elapsed time per iteration \(ms\):\s*([^\s|]+)")
BATCH = re.compile(r"global batch size:\s*(\d+)")
WHAT = "a log with lines `iteration N/M | ... | elapsed time per iteration (ms): T | ...`"
UNITS = ("step_time_s", "step_time_ms", "tokens_per_s_per_gpu")
TABLE = f"a CSV table with a header: run (a runs file, or FILE#ID) and one of {', '.join(UNITS)}"
WARM_UP = 0.2
"""Share of a log's lines that is left out at its start, and at least one: compilation, autotuning, caches."""
PERCENTILES = (10, 90)


@dataclass(frozen=True, slots=True)
class StepTimes:
    """Steps of one run."""

    file: str
    seconds: float
    """Median of the later steps."""
    low: float
    high: float
    """10th and 90th percentile of these."""
    steps: int
    """Lines that count."""
    dropped: int
    """Lines at the start that do not."""


@dataclass(frozen=True, slots=True)
class TableRow:
    """One line of a CSV of steps."""

    line: int
    run: str
    """FILE or FILE#ID, beside the table."""
    value: float
    unit: str
    """One of `UNITS`."""


def read_step_log(path: Path, global_batch: int | None) -> StepTimes:
    """The step time of a log: the median without the steps at its start.

    Lines of another global batch (a ramp-up) do not count; no line of the run's batch is an error.
    Raises `InvalidInput`.
    """
    found: list[float] = []
    batches: set[int] = set()
    for number, line in enumerate(read_text(path, WHAT, MOST_BYTES).splitlines(), 1):
        match = LINE.search(line)
        if match is None:
            continue
        milliseconds = _number(match.group(2))
        if milliseconds is None:
            raise InvalidInput(
                file=f"{path}:{number}", found=f"{match.group(2)} ms an iteration", accepted="a time above 0"
            )
        batch = BATCH.search(line)
        if batch and global_batch is not None and int(batch.group(1)) != global_batch:
            batches.add(int(batch.group(1)))
            continue
        found.append(milliseconds / 1e3)
    if not found and batches:
        shown = ", ".join(map(str, sorted(batches)))
        raise InvalidInput(
            file=str(path), found=f"steps of global batch {shown}", accepted=f"{global_batch}, as in the run"
        )
    if not found:
        raise InvalidInput(file=str(path), found="holds no step times", accepted=WHAT)
    return summarised(str(path), found)


def summarised(file: str, seconds: list[float], warm_up: float = WARM_UP) -> StepTimes:
    """Median and spread of the steps after the warm-up; of one step there is only that."""
    dropped = int(np.ceil(warm_up * len(seconds))) if len(seconds) > 1 else 0
    kept = np.array(seconds[dropped:])
    low, high = np.percentile(kept, PERCENTILES)
    return StepTimes(file, float(np.median(kept)), float(low), float(high), len(kept), dropped)


def is_table(path: Path) -> bool:
    """A CSV, by its name."""
    return path.suffix.lower() == ".csv"


def read_step_table(path: Path) -> list[TableRow]:
    """Runs and their step times. Run files lie beside the table. Raises `InvalidInput`."""
    reader = csv.DictReader(read_text(path, TABLE, MOST_BYTES).splitlines())
    names = [str(name).strip().lower() for name in reader.fieldnames or ()]
    reader.fieldnames = names
    unit = next((name for name in UNITS if name in names), None)
    if "run" not in names or unit is None:
        raise InvalidInput(file=f"{path}:1", found=f"columns {', '.join(names)}", accepted=TABLE)
    rows = [_table_row(f"{path}:{reader.line_num}", reader.line_num, cells, unit) for cells in reader]
    if not rows:
        raise InvalidInput(file=str(path), found="has a header and no rows", accepted=TABLE)
    return rows


def _table_row(where: str, line: int, cells: dict[str, str | None], unit: str) -> TableRow:
    text, run = (cells[unit] or "").strip(), (cells["run"] or "").strip()
    value = _number(text)
    if value is None:
        raise InvalidInput(file=where, path=unit, found=repr(text), accepted="a number above 0")
    if not run:
        raise InvalidInput(file=where, path="run", found="nothing", accepted="a runs file")
    return TableRow(line, run, value, unit)


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if isfinite(value) and value > 0 else None
