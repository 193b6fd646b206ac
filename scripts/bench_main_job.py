"""Whole-process time of the main job against that of importing what it is built on.

The yardstick is one process that imports numpy, pydantic, typer, yaml, rich and CP-SAT and ends. Both are run
in turn, so that a machine that slows down slows both. Prints medians and their ratio; the aim is 2.5.

    python scripts/bench_main_job.py [--runs 5] [PROBLEM.yaml]
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path
from statistics import median
from time import perf_counter

ROOT = Path(__file__).parent.parent
AIM = 2.5
# Modules are compiled once, as they are where the program is installed.
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
IMPORTS = "import numpy, pydantic, typer, yaml, rich; from ortools.sat.python import cp_model"
SOLVE = "from planner.cli import main; main()"


def seconds(*arguments: str) -> float:
    """Wall clock of a process, from before it starts until it has ended."""
    started = perf_counter()
    subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        env=ENVIRONMENT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        check=True,
    )
    return perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("problem", nargs="?", default="problems/70b_3T_60days.yaml")
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    jobs = {"imports": ("-c", IMPORTS), "main job": ("-c", SOLVE, "solve", options.problem, "--quiet")}
    for job in jobs.values():
        seconds(*job)
    taken: dict[str, list[float]] = {name: [] for name in jobs}
    for _ in range(options.runs):
        for name, job in jobs.items():
            taken[name].append(seconds(*job))
    for name, times in taken.items():
        print(f"{name:8}  median {median(times):6.2f} s  ({', '.join(f'{t:.2f}' for t in times)})")
    print(f"ratio     {median(taken['main job']) / median(taken['imports']):6.2f}  (aim: at most {AIM})")


if __name__ == "__main__":
    main()
