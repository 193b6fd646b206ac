"""Reads a table of measured matrix products: CSV with a header, one shape a line.

Columns, by any of these names whatever their case:

    m, n, k   rows and columns of the result, and the inner dimension
    dtype     bf16 (bfloat16), fp16 (float16, half), fp8 (float8_e4m3fn, ...); bf16 without the column
    one of    time_us (us, latency_us), time_ms (ms, latency_ms), time_s (time, seconds, latency), tflops
    gpu       optional; must then be the GPU that is calibrated
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import isfinite
from pathlib import Path

from planner.calibrate import MOST_BYTES
from planner.errors import InvalidInput, nearest
from planner.yaml_file import read_text

WHAT = "a CSV table with a header: m, n, k, dtype, and time_us, time_ms, time_s or tflops"
DTYPES = {
    "bf16": "bf16",
    "bfloat16": "bf16",
    "fp16": "bf16",
    "float16": "bf16",
    "half": "bf16",
    "f16": "bf16",
    "fp8": "fp8",
    "float8": "fp8",
    "f8": "fp8",
    "e4m3": "fp8",
    "fp8block": "fp8",
    "float8e4m3fn": "fp8",
    "float8e5m2": "fp8",
    "fp8e4m3": "fp8",
    "e5m2": "fp8",
}
"""FP16 runs at the rate of BF16."""
TIMES = {"time_us": 1e-6, "time_ms": 1e-3, "time_s": 1.0}
ALIASES = {
    "m": ("m",),
    "n": ("n",),
    "k": ("k",),
    "dtype": ("dtype", "type", "datatype", "precision"),
    "time_us": ("timeus", "us", "latencyus", "latencyusmedian", "durationus", "timemicroseconds"),
    "time_ms": ("timems", "ms", "latencyms", "durationms", "timemilliseconds"),
    "time_s": ("times", "time", "seconds", "latency", "duration", "timeseconds"),
    "tflops": ("tflops", "tflopspersecond", "tflop", "tfs"),
    "gpu": ("gpu", "device", "gpuname", "devicename"),
}
LARGEST = 10**7
"""A dimension beyond this is a slip."""


@dataclass(frozen=True, slots=True)
class GemmRow:
    """One measured shape."""

    file: str
    line: int
    m: float
    n: float
    k: float
    dtype: str
    seconds: float
    gpu: str | None

    @property
    def where(self) -> str:
        return f"{self.file}:{self.line}"


def read_gemm_table(path: Path) -> list[GemmRow]:
    """Every row of a table. Raises `InvalidInput` with the line of the first thing that is wrong."""
    lines = read_text(path, WHAT, MOST_BYTES).splitlines()
    reader = csv.reader(lines)
    header = next(reader, [])
    columns = _columns(path, header)
    rows = [
        _row(path, reader.line_num, {name: cells[at].strip() for name, at in columns.items()})
        for cells in _full(path, reader, len(header))
    ]
    if not rows:
        raise InvalidInput(file=str(path), found="has a header and no rows", accepted=WHAT)
    return rows


def _full(path: Path, reader: Iterator[list[str]], width: int) -> Iterator[list[str]]:
    """Rows that are not blank, each as wide as the header."""
    for cells in reader:
        if not any(cell.strip() for cell in cells):
            continue
        if len(cells) != width:
            line = reader.line_num  # pyright: ignore[reportAttributeAccessIssue]
            raise InvalidInput(
                file=f"{path}:{line}", found=f"{len(cells)} cells", accepted=f"{width}, as in the header"
            )
        yield cells


def _columns(path: Path, header: list[str]) -> dict[str, int]:
    """Where each known column stands."""
    plain = [re.sub(r"[^a-z0-9]", "", cell.lower()) for cell in header]
    found = {
        name: plain.index(alias) for name, aliases in ALIASES.items() for alias in aliases if alias in plain
    }
    for name in ("m", "n", "k"):
        if name not in found:
            raise InvalidInput(
                file=f"{path}:1",
                path=name,
                found="no such column",
                accepted=WHAT,
                suggestion=nearest(name, header),
            )
    measured = [name for name in (*TIMES, "tflops") if name in found]
    if not measured:
        shown = ", ".join(cell.strip() for cell in header)
        raise InvalidInput(file=f"{path}:1", found=f"no time and no tflops among {shown}", accepted=WHAT)
    return found


def _row(path: Path, line: int, cells: Mapping[str, str]) -> GemmRow:
    where = f"{path}:{line}"
    m, n, k = (_positive(where, name, cells[name]) for name in "mnk")
    for name, value in zip("mnk", (m, n, k), strict=True):
        if value > LARGEST or value != int(value):
            raise InvalidInput(
                file=where, path=name, found=cells[name], accepted="a whole number of rows or columns"
            )
    dtype = DTYPES.get(re.sub(r"[^a-z0-9]", "", cells.get("dtype", "bf16").lower().removeprefix("torch.")))
    if dtype is None:
        raise InvalidInput(file=where, path="dtype", found=cells["dtype"], accepted="bf16, fp16 or fp8")
    name = next(name for name in (*TIMES, "tflops") if name in cells)
    value = _positive(where, name, cells[name])
    seconds = value * TIMES[name] if name in TIMES else 2 * m * n * k / (value * 1e12)
    return GemmRow(str(path), line, m, n, k, dtype, seconds, cells.get("gpu") or None)


def _positive(where: str, name: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not (isfinite(value) and value > 0):
        raise InvalidInput(file=where, path=name, found=repr(text), accepted="a number above 0")
    return value
