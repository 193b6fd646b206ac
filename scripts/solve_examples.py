"""Solves the example problems and keeps their solutions, which the tests compare with.

python scripts/solve_examples.py [NAME ...]
"""

from __future__ import annotations

import sys
from pathlib import Path
from time import perf_counter

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from planner.problem import load_problem
from planner.report.data import explore
from planner.solve import solve

ROOT = Path(__file__).resolve().parents[1]
EXPLORED = {"moe_1.8T_15T"}
"""So large that its report would look for other plans longer than anybody waits: the solution holds them."""


def main() -> None:
    names = sys.argv[1:] or sorted(path.stem for path in (ROOT / "problems").glob("*.yaml"))
    for name in names:
        started = perf_counter()
        solution = solve(load_problem(ROOT / "problems" / f"{name}.yaml"))
        solution = explore(solution) if name in EXPLORED else solution
        (ROOT / "solutions" / f"{name}.yaml").write_text(solution.to_yaml(), encoding="utf-8")
        print(f"{name}: {solution.status} in {perf_counter() - started:.1f} s", flush=True)


if __name__ == "__main__":
    main()
