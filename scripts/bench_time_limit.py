"""How far hard problems go beyond the time limit that they are given, and what they answer in it.

    python scripts/bench_time_limit.py [--write] [--only WORD ...]

Each problem is solved in a process of its own, with ortools and the planner imported before the clock starts: too
large to be searched in time, or without any plan, on one pool, on two at once and in phases. Prints the limit, what
it took by the clock, peak memory, and what was said. `--write` puts the table into `docs/search.md`.
"""

from __future__ import annotations

import sys
from pathlib import Path
from resource import RUSAGE_SELF, getrusage
from time import monotonic
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from scripts.bench_cases import Case, Found, each_alone

ROOT = Path(__file__).resolve().parents[1]
BEGIN = "<!-- time limit: begin (scripts/bench_time_limit.py) -->"
END = "<!-- time limit: end -->"
ENOUGH, SHARE = 1.0, 0.1
"""A limit is kept that is passed by no more than so many seconds and such a share of it."""

DENSE = "scripts/bench/405b_two_pools.yaml"
MOE = "scripts/bench/deepseek_v3_four_gpus.yaml"


def nodes(number: int) -> dict[str, int]:
    """So many at most of each of two pools."""
    return {f"hardware.{place}.nodes.max": number for place in (0, 1)}


PHASES = [
    {"name": "main", "tokens": "14T", "seq_len": 4096},
    {"name": "long", "tokens": "800B", "seq_len": 32768},
]
CASES = (
    Case("DeepSeek-V3 on four GPU types, BF16 or FP8, any framework", MOE, 2),
    Case("the same", MOE, 20),
    Case("the same in 3 days", MOE, 20, {"limits.deadline": "3 days"}),
    Case("the same in two phases", MOE, 10, {"phases": PHASES}),
    Case("DeepSeek-V3 on up to 4,096 H800", "scripts/bench/deepseek_v3_512_nodes.yaml", 3),
    Case("405B on 32 + 32 nodes in 30 days", DENSE, 3, {"limits.deadline": "30 days", **nodes(32)}),
    Case("405B on 256 + 256 nodes in 90 days", DENSE, 10, nodes(256)),
    Case("405B on 2,048 + 2,048 nodes", DENSE, 10, nodes(2048)),
    Case(
        "70B on two pools, a step in 0.5 s",
        "problems/70b_two_pools.yaml",
        5,
        {"limits.require": ["step_time_s <= 0.5"]},
    ),
    Case(
        "70B on H800 or H20, a step in 1.922 s",
        "problems/70b_3T_60days.yaml",
        3,
        {"limits.require": ["step_time_s <= 1.922"]},
    ),
)


def measured(case: Case) -> Found:
    """What a case takes and says, in this process."""
    import ortools.sat.python.cp_model  # noqa: F401

    import planner.mixed  # noqa: F401
    from planner.errors import TimeLimit
    from planner.problem import load_problem
    from planner.solve import solve

    problem = load_problem(ROOT / case.path, list(case.changes.items()))
    started = monotonic()
    try:
        said = words(solve(problem, time_limit=case.seconds))
    except TimeLimit as error:
        said = str(error)
    took = monotonic() - started
    return {"seconds": took, "peak_mb": getrusage(RUSAGE_SELF).ru_maxrss * 1024 / 1e6, "said": said}


def words(solution: Any) -> str:
    """What was answered, in a line."""
    left_out = [note for note in solution.notes if note.startswith("The time was out")]
    if solution.conflict is None:
        plan = solution.plans[0]
        told = f"{solution.status}, gap {100 * solution.proof.gap:.1f} %, {len(plan.reasons)} reasons"
    else:
        ways, named = len(solution.conflict.relaxations), ", ".join(solution.conflict.limits)
        told = f"infeasible; in conflict: {named or 'not known'}; {ways} ways out"
    return ". ".join([told, *left_out])


def table(found: list[tuple[Case, Found]]) -> str:
    """All cases, a row each."""
    rows = [
        f"| {case.name} | {case.seconds:g} | {of['seconds']:.1f} | {of['peak_mb']:,.0f} | {of['said']} |"
        for case, of in found
    ]
    head = "| problem | limit, s | took, s | peak MB | answer |\n|---|---|---|---|---|"
    return "\n".join([head, *rows])


def line(case: Case, of: Found) -> str:
    """What a case took, and whether that is too late."""
    late = "" if of["seconds"] <= ENOUGH + (1 + SHARE) * case.seconds else "  TOO LATE"
    return f"{case.seconds:5g} s  {of['seconds']:6.2f} s  {of['peak_mb']:6.0f} MB  {case.name}{late}"


if __name__ == "__main__":
    each_alone(__file__, __doc__, CASES, measured, line, table, (BEGIN, END))
