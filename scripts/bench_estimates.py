"""How fast candidates and runs are priced.

    python scripts/bench_estimates.py [--rows 1000000] [PROBLEM.yaml]

Candidates: rows of the problem's lattice through `planner.evaluate`, as candidates a CPU second; a row is
priced without and with recompute, and counts once. The floor is one vectorised pass (an addition) over the arrays that a row
has in memory: its decisions, its rates and its stages. Runs: a process that estimates 500 runs of a file against one that
only imports what the planner is built on.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from dataclasses import fields
from itertools import islice
from pathlib import Path
from statistics import median
from time import perf_counter, process_time
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parent))

from bench_main_job import IMPORTS, ROOT, seconds

from planner.evaluate import BLOCK, evaluate
from planner.keybook import KeyBook
from planner.listing import promising_groups
from planner.problem import load_problem
from planner.resolve import instance_of
from planner.space.columns import Candidates, families
from planner.space.layouts import expand
from planner.space.recompute import recompute_families

AIM = 1e6
RUNS_AIM = 10
RUNS = 500
REPEATS = 5
ESTIMATE = "from planner.cli import main; main()"


def candidates(path: str, wanted: int) -> tuple[KeyBook, Candidates]:
    """Up to `wanted` candidates of a problem that may keep its limits, repeated if it has fewer."""
    instance = instance_of(load_problem(path))
    book = KeyBook.of(instance, recompute_families(instance))
    parts = [expand(instance, groups) for groups in islice(promising_groups(instance), 64)]
    rows = Candidates.concatenate(parts)
    if not len(rows):
        raise SystemExit(f"{path}: no candidate may keep the limits")
    index = np.resize(np.arange(len(rows)), wanted)
    return book, rows.take(index)


def arrays_of(value: Any) -> list[np.ndarray]:
    """All arrays of a dataclass of arrays, or of such dataclasses."""
    if isinstance(value, np.ndarray):
        return [value]
    if not hasattr(value, "__dataclass_fields__"):
        return []
    return [array for f in fields(value) for array in arrays_of(getattr(value, f.name))]


def numbers_of(book: KeyBook, rows: Candidates) -> list[np.ndarray]:
    """One block's decisions and rates in memory of their own."""
    block = rows.take(slice(0, BLOCK))
    index = families(block)[0][2]
    some = block.take(index)
    held = [*arrays_of(some), *arrays_of(book.rates(some))]
    return [np.ascontiguousarray(array) for array in held]


def one_pass(arrays: list[np.ndarray]) -> float:
    """Seconds of an addition over every array, the least of some repeats."""
    out = [np.empty_like(array) for array in arrays]
    taken: list[float] = []
    for _ in range(REPEATS * 4):
        started = perf_counter()
        for array, to in zip(arrays, out, strict=True):
            np.add(array, 1, out=to)
        taken.append(perf_counter() - started)
    return min(taken)


def time_candidates(path: str, wanted: int) -> None:
    book, rows = candidates(path, wanted)
    evaluate(book, rows.take(slice(0, 2 * BLOCK)))
    taken: list[float] = []
    for _ in range(REPEATS):
        started = process_time()
        evaluate(book, rows)
        taken.append(process_time() - started)
    rate = len(rows) / min(taken)
    arrays = numbers_of(book, rows)
    floor = one_pass(arrays) / len(arrays[0]) * len(rows)
    print(
        f"candidates  {rate / 1e6:6.2f} M/s and core over {len(rows):,} rows  (aim: at least {AIM / 1e6:g} M/s)"
    )
    print(f"            {min(taken) / floor:6.1f} times one pass over the {len(arrays)} arrays of a row")


def some_runs() -> list[dict[str, Any]]:
    """Measured runs of the collection without what was measured."""
    lines = (ROOT / "validation" / "published.jsonl").read_text(encoding="utf-8").splitlines()
    runs = [json.loads(line) for line in lines[:RUNS]]
    return [{key: value for key, value in run.items() if key != "measured"} for run in runs]


def time_runs() -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "runs.yaml"
        file.write_text(json.dumps({"runs": some_runs()}), encoding="utf-8")  # JSON is YAML
        jobs = {
            "imports": ("-c", IMPORTS),
            "500 runs": ("-c", ESTIMATE, "estimate", str(file), "--format", "json"),
        }
        subprocess.run([sys.executable, *jobs["500 runs"]], cwd=ROOT, capture_output=True, check=True)
        taken = {name: median(seconds(*job) for _ in range(REPEATS)) for name, job in jobs.items()}
    print(
        f"500 runs    {taken['500 runs']:6.2f} s, {taken['500 runs'] / taken['imports']:.1f} times the "
        f"{taken['imports']:.2f} s of the imports  (aim: at most {RUNS_AIM} times)"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("problem", nargs="?", default=str(ROOT / "problems" / "70b_3T_60days.yaml"))
    parser.add_argument("--rows", type=int, default=1_000_000)
    asked = parser.parse_args()
    time_candidates(asked.problem, asked.rows)
    time_runs()


if __name__ == "__main__":
    main()
