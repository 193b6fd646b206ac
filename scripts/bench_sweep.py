"""Time of 1,000 what-ifs of the 70B example that share one evaluation: budgets, deadlines, prices, nodes.

Runs the command as people do, in processes of its own, and prints seconds, rate and statuses. The aim is 20
seconds on two cores.

    python scripts/bench_sweep.py [--jobs 2] [--runs 1] [PROBLEM.yaml]
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter

ROOT = Path(__file__).parent.parent
AIM = 20.0
SWEEP = "from planner.cli import main; main()"
VARIED = (
    "limits.budget=1.2M USD:3M USD:10",
    "limits.deadline=30 days:90 days:5",
    "hardware.0.price=1.5 USD/gpu-hour:2.5 USD/gpu-hour:5",
    "hardware.0.nodes.max=64,96,112,128",
)


def seconds(problem: str, jobs: int, folder: str) -> float:
    """Wall clock of a sweep, from before its process starts until it has ended."""
    varied = [part for text in VARIED for part in ("--vary", text)]
    command = [sys.executable, "-c", SWEEP, "sweep", problem, *varied, "--output", folder]
    started = perf_counter()
    subprocess.run([*command, "--jobs", str(jobs), "--format", "none", "--quiet"], cwd=ROOT, check=True)
    return perf_counter() - started


def cpu_seconds() -> float:
    """Of all processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("problem", nargs="?", default="problems/70b_3T_60days.yaml")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--runs", type=int, default=1)
    options = parser.parse_args()
    for _ in range(options.runs):
        with tempfile.TemporaryDirectory() as folder:
            before = cpu_seconds()
            taken = seconds(options.problem, options.jobs, folder)
            busy = cpu_seconds() - before
            lines = [json.loads(text) for text in (Path(folder) / "results.jsonl").open(encoding="utf-8")]
        status = {name: sum(line["status"] == name for line in lines) for name in ("optimal", "infeasible")}
        print(
            f"{len(lines)} what-ifs in {taken:.1f} s on {options.jobs} processes ({busy:.1f} s of CPU; "
            f"{status['optimal']} optimal, {status['infeasible']} infeasible; aim: at most {AIM:.0f} s)"
        )


if __name__ == "__main__":
    main()
