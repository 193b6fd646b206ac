"""How long it takes to say all that would do where nothing fits, without a time limit.

    python scripts/bench_infeasible.py [--write] [--only WORD ...]

Each problem is solved in a process of its own, with ortools and the planner imported before the clock starts. Prints
how long the proof took and the whole answer, peak memory, and the ways out. `--write` puts the table into
`docs/search.md`.
"""

from __future__ import annotations

import sys
from pathlib import Path
from resource import RUSAGE_SELF, getrusage
from time import monotonic

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from scripts.bench_cases import Case, Found, each_alone
from scripts.bench_time_limit import DENSE, ROOT, nodes

BEGIN = "<!-- infeasible: begin (scripts/bench_infeasible.py) -->"
END = "<!-- infeasible: end -->"
LIMITLESS = 0.0
"""Seconds of a case that is given no limit."""

CASES = (
    *(
        Case(f"405B on {number} + {number} nodes in 90 days", DENSE, LIMITLESS, nodes(number))
        for number in (32, 64, 128, 256)
    ),
    Case(
        "70B on two pools, a step in 0.5 s",
        "problems/70b_two_pools.yaml",
        LIMITLESS,
        {"limits.require": ["step_time_s <= 0.5"]},
    ),
    Case(
        "70B on H800 or H20, a step in 1.922 s",
        "problems/70b_3T_60days.yaml",
        LIMITLESS,
        {"limits.require": ["step_time_s <= 1.922"]},
    ),
)


def measured(case: Case) -> Found:
    """What a case takes and says, in this process."""
    import ortools.sat.python.cp_model  # noqa: F401

    import planner.mixed  # noqa: F401
    from planner.problem import load_problem
    from planner.solve import solve

    problem = load_problem(ROOT / case.path, list(case.changes.items()))
    started, proved = monotonic(), []

    def progress(said: str) -> None:
        if said.startswith("nothing fits"):
            proved.append(monotonic() - started)

    found = solve(problem, progress=progress)
    assert found.conflict is not None, f"{case.name}: there is a plan"
    return {
        "proof": proved[0],
        "seconds": monotonic() - started,
        "peak_mb": getrusage(RUSAGE_SELF).ru_maxrss * 1024 / 1e6,
        "said": "; ".join(f"{move.limit}: {move.to}" for move in found.conflict.relaxations),
    }


def table(found: list[tuple[Case, Found]]) -> str:
    """All cases, a row each."""
    rows = [
        f"| {case.name} | {of['proof']:.1f} | {of['seconds']:.1f} | {of['peak_mb']:,.0f} | {of['said']} |"
        for case, of in found
    ]
    head = "| problem | proof, s | all, s | peak MB | each alone is enough |\n|---|---|---|---|---|"
    return "\n".join([head, *rows])


def line(case: Case, of: Found) -> str:
    """What a case took."""
    return f"{of['proof']:6.1f} s  {of['seconds']:6.1f} s  {of['peak_mb']:6.0f} MB  {case.name}"


if __name__ == "__main__":
    each_alone(__file__, __doc__, CASES, measured, line, table, (BEGIN, END))
