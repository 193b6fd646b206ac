"""How much longer the search for a plan takes as runs lose time, cost money and draw power: the main job.

The same problem is searched with everything that surrounds its GPUs (failures, checkpoints, restarts, storage,
prices, power) and without any of it, in turn, each from scratch. Prints medians of the CPU time of the search,
the report of the plan and its reasons, and their ratio; the aim is 1.2.

    python scripts/bench_goodput.py [--runs 9] [PROBLEM.yaml]
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from statistics import median
from time import process_time

from planner import explain
from planner.answer import reported
from planner.instance import Instance
from planner.problem import Problem, load_problem
from planner.relaxed import every_family
from planner.resolve import instance_of
from planner.search import Table, best, goal_of
from planner.search.goal import in_families
from planner.space.recompute import recompute_families

ROOT = Path(__file__).parent.parent
AIM = 1.2


def without_losses(instance: Instance) -> Instance:
    """The same on pools whose runs never stop."""
    return replace(instance, pools=tuple(replace(pool, site=None) for pool in instance.pools))


def seconds(problem: Problem, losses: bool) -> float:
    """CPU seconds of one search, and of the report of its plan with reasons."""
    instance = instance_of(problem) if losses else without_losses(instance_of(problem))
    started = process_time()
    table = Table.of(instance, goal_of(instance), every_family(instance))
    plan = best(table, in_families(recompute_families(instance)))
    assert plan is not None, "the problem has a plan"
    reported(instance, plan, explain.reasons(table, plan, explain.runner_ups(table, plan)))
    return process_time() - started


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("problem", nargs="?", default=str(ROOT / "problems" / "70b_3T_60days.yaml"))
    parser.add_argument("--runs", type=int, default=9)
    options = parser.parse_args()
    problem = load_problem(Path(options.problem))
    taken: dict[str, list[float]] = {"with": [], "without": []}
    for run in range(-1, options.runs):
        for name, times in taken.items():
            found = seconds(problem, name == "with")
            if run >= 0:
                times.append(found)
    for name, times in taken.items():
        print(f"{name:7} losses  median {median(times):6.3f} s  ({', '.join(f'{t:.3f}' for t in times)})")
    print(f"ratio           {median(taken['with']) / median(taken['without']):6.2f}  (aim: at most {AIM})")


if __name__ == "__main__":
    main()
