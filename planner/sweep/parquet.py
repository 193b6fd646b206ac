"""Lines as a table for data frames: one row a what-if, one column a figure."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from planner.errors import InvalidInput
from planner.files import write_whole
from planner.narrowing import set_name

Line = dict[str, Any]
NAME = "results.parquet"
LEADING = ("index", "id", "scenario", "status", "error", "seconds")
DECISIONS = (
    "gpu", "num_gpus", "nodes", "tp", "cp", "pp", "vpp", "dp", "ep", "etp",
    "micro_batch", "num_microbatches", "global_batch", "zero", "zero_scope", "recompute",
    "recompute_modules", "precision", "tp_overlap", "dp_overlap", "pp_overlap", "ep_overlap", "mixed",
)  # fmt: skip
FIGURES = ("step_time_s", "days", "dollars", "mfu", "hfu", "tokens_per_s_per_gpu")
PARTS = ("memory_gib", "breakdown_s")
"""Mappings of the estimate; each entry becomes a column `memory_gib.total`, `breakdown_s.bubble`."""


def polars() -> Any:
    """The library. Raises `InvalidInput` where it is missing."""
    try:
        import polars
    except ImportError:
        accepted = "pip install 'planner[data]'"
        raise InvalidInput(file="--parquet", found="needs polars", accepted=accepted) from None
    return polars


def write_parquet(folder: Path, lines: Sequence[Line]) -> Path:
    """Writes `results.parquet`. Raises `InvalidInput`."""
    content = io.BytesIO()
    frame(lines).write_parquet(content)
    write_whole(folder / NAME, content.getvalue())
    return folder / NAME


def frame(lines: Sequence[Line]) -> Any:
    """A polars frame: what-ifs, decisions, figures, counts; columns of what-ifs are called `set.KEY`.

    A key whose values are all numbers of a problem (`values` of the lines: seconds, USD, ...) is a column of
    numbers, any other one of text.
    """
    pl, rows = polars(), [row(line) for line in lines]
    keys = list(dict.fromkeys(key for line in lines for key in line["overrides"]))
    for key in keys:
        numeric = all(
            key in line.get("values", {}) for line in lines if key in line["overrides"] and answered(line)
        )
        for line, of in zip(lines, rows, strict=True):
            value = line["overrides"].get(key)
            of[f"set.{key}"] = (
                line.get("values", {}).get(key) if numeric else None if value is None else str(value)
            )
    names = list(dict.fromkeys(name for of in rows for name in of))
    columns = {name: [of.get(name) for of in rows] for name in names}
    dtypes = {name: dtype(pl, name, values) for name, values in columns.items()}
    return pl.DataFrame([pl.Series(name, columns[name], dtype=dtypes[name]) for name in ordered(names)])


def answered(line: Line) -> bool:
    """Whether the what-if could be read."""
    return line["status"] not in ("error", "failed", "out_of_time")


def row(line: Line) -> dict[str, Any]:
    """A line, flattened."""
    decisions, estimate = line.get("decisions") or {}, line.get("estimate") or {}
    found = {name: line.get(name) for name in LEADING} | {name: decisions.get(name) for name in DECISIONS}
    if decisions:
        found["recompute_modules"] = set_name(frozenset(decisions.get("recompute_modules") or ()))
    found |= {name: estimate.get(name) for name in FIGURES}
    low, high = estimate.get("interval_80_days") or (None, None)
    found |= {"days_low_80": low, "days_high_80": high}
    for part in PARTS:
        found |= {f"{part}.{name}": value for name, value in (estimate.get(part) or {}).items()}
    conflict, proof = line.get("conflict") or {}, line.get("proof") or {}
    found["conflict"] = ", ".join(conflict["limits"]) if conflict else None
    for name, value in proof.items():
        if not isinstance(value, dict):
            found[f"proof.{name}"] = value
    return found


def ordered(names: Sequence[str]) -> list[str]:
    """What is asked before what is answered."""
    asked = [name for name in names if name.startswith("set.")]
    rest = [name for name in names if name not in asked and name not in LEADING]
    first = [name for name in LEADING if name in names]
    return [*first[:3], *asked, *first[3:], *rest]


def dtype(pl: Any, name: str, values: Sequence[Any]) -> Any:
    """Switches are Boolean, whole numbers Int64, other numbers Float64, all else text; words categorical."""
    known = [value for value in values if value is not None]
    if name in ("status", "gpu", "zero_scope", "recompute", "precision", "mixed"):
        return pl.Categorical
    if known and all(isinstance(value, bool) for value in known):
        return pl.Boolean
    if name in ("index", "num_gpus") or (known and all(isinstance(value, int) for value in known)):
        return pl.Int64
    if name in FIGURES or (known and all(isinstance(value, (int, float)) for value in known)):
        return pl.Float64
    return pl.String
