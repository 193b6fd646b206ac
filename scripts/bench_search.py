"""How long the search takes to a proven optimum, how much memory, and how both grow with the lattice.

    python scripts/bench_search.py [--json] [--write] [--runs 3] [--only WORD ...]

Each figure is of a process of its own, with ortools imported before the clock starts; of several runs the one with the
fewest CPU-seconds counts, as other work on the machine stretches the clock but not those. Problems are under
`scripts/bench/`. `--write` puts the tables into `docs/search.md`, with date and machine.

* `search`: the best plan, proven (`planner.search`). `solve`: with the reasons and runner-ups (`planner.solve`).
* `frontier`: all plans that no other beats in days and dollars (`planner.frontier`).
* `pairs`: the best plan on two pools at once, proven (`planner.mixed`).
* `pass`: one vectorised pass of the cheapest bound over the columns of what the search wrote down: less it cannot take.
* `all`: what the same pass would take over every valid candidate, at the same rate.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from resource import RUSAGE_SELF, getrusage
from time import perf_counter, process_time
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from scripts.bench_tables import Figures, machine, tables, write

ROOT = Path(__file__).resolve().parents[1]

MAIN_JOB = "problems/70b_3T_60days.yaml"
PROBLEMS = {
    "Llama-3.1-405B on five GPU types": "scripts/bench/405b_five_gpus.yaml",
    "DeepSeek-V3 on up to 4,096 H800": "scripts/bench/deepseek_v3_512_nodes.yaml",
    "70B on H800 or H20 (main example)": MAIN_JOB,
    "GPT-3 175B on 1,024 A100": "scripts/bench/gpt3_1024_a100.yaml",
}
PAIRS = {
    "70B on H800 and H20 together, in the least time": "scripts/bench/two_pools.yaml",
    "70B on two pools (example)": "problems/70b_two_pools.yaml",
}
GROWTH = {
    "Llama-2-70B": ("scripts/bench/growth_dense.yaml", (4, 16, 64, 256, 1024)),
    "DeepSeek-V2": ("scripts/bench/growth_moe.yaml", (16, 64, 256, 1024)),
}
"""Nodes to which a problem is scaled, batch and tokens in proportion."""


@dataclass(frozen=True, slots=True)
class Case:
    """A problem, and what is laid over it."""

    name: str
    path: str
    nodes: int | None = None

    def problem(self) -> Any:
        """The problem, scaled to its nodes."""
        from planner.problem import load_problem

        found = load_problem(ROOT / self.path)
        if self.nodes is None:
            return found
        share, batch = self.nodes / found.hardware[0].max_nodes, found.training.global_batch
        sizes = {"min": max(1, int(batch.min * share)), "max": max(1, int(batch.max * share))}
        changes = {
            "training.tokens": int(found.training.tokens * share),
            "training.global_batch": {name: f"{number} sequences" for name, number in sizes.items()},
            "hardware.0.nodes.max": self.nodes,
        }
        return load_problem(ROOT / self.path, list(changes.items()))


def timed(work: Callable[[], Any]) -> tuple[Any, Figures]:
    """What the work returns; seconds by the clock and of CPU, and the process's peak memory (MB), before and after."""
    import ortools.sat.python.cp_model  # noqa: F401

    before, clock, cpu = peak(), perf_counter(), process_time()
    found = work()
    return found, {
        "seconds": perf_counter() - clock,
        "cpu_seconds": process_time() - cpu,
        "peak_mb": peak(),
        "peak_mb_before": before,
    }


def peak() -> float:
    """Peak resident memory of this process, in MB (10^6 bytes)."""
    return getrusage(RUSAGE_SELF).ru_maxrss * 1024 / 1e6


def search(case: Case) -> Figures:
    """The best plan and the proof; nothing is explained."""
    from planner.resolve import instance_of
    from planner.search import Effort, Table, best, goal_of
    from planner.search.ledger import Ledger
    from planner.space.recompute import recompute_families
    from planner.space.values import lattice_size

    instance, effort = instance_of(case.problem()), Effort()
    families = recompute_families(instance)

    def work() -> tuple[Table, Any]:
        table = Table.of(instance, goal_of(instance), families)
        return table, best(table, None, effort)

    (table, plan), figures = timed(work)
    assert plan is not None, f"{case.name}: nothing fits"
    written = {"layouts": len(table.groups), "candidates": len(table.rows), "pipelines": len(table.pipelines)}
    valid = Ledger.of(table, families).valid
    return {
        **figures,
        "lattice": lattice_size(instance),
        "valid": valid,
        "gap": effort.gap,
        "stage_assignments": effort.solved,
        "written": written,
        **one_pass(table, valid),
    }


def one_pass(table: Any, valid: int) -> Figures:
    """One vectorised pass of the cheapest bound over all that is written down, and over all there is at that rate."""
    pipelines, parts = table.pipelines, [table.groups.rows, table.rows.rows]

    def bounds() -> None:
        for rows in parts:
            table.book.bound(rows, pipelines.slowest[rows.pipeline], pipelines.extra[rows.pipeline])

    def least() -> None:
        table.least(pipelines.rows.key, pipelines.gpu_seconds)

    bounds()
    each, rest = (min(timed(work)[1]["cpu_seconds"] for _ in range(3)) for work in (bounds, least))
    columns = [getattr(rows, f.name) for rows in (*parts, pipelines.rows) for f in fields(rows)]
    return {
        "pass_seconds": each + rest,
        "pass_mb": sum(column.nbytes for column in columns) / 1e6,
        "all_seconds": each / sum(map(len, parts)) * valid,
    }


def solve(case: Case) -> Figures:
    """The whole answer: plan, reasons, runner-ups, check."""
    from planner.solve import solve

    problem = case.problem()
    found, figures = timed(lambda: solve(problem))
    return figures | {"status": found.status, "reasons": sum(len(plan.reasons) for plan in found.plans)}


def frontier(case: Case) -> Figures:
    """Every plan that no other beats in days and dollars."""
    from planner.frontier import frontier

    problem = case.problem()
    found, figures = timed(lambda: frontier(problem))
    return figures | {"status": found.status, "points": len(found.points)}


def pairs(case: Case) -> Figures:
    """The best plan on two pools and its proof."""
    from planner.mixed import best_of_pairs
    from planner.resolve import instance_of

    instance = instance_of(case.problem())
    found, figures = timed(lambda: best_of_pairs(instance))
    assert found.complete
    return figures | {"node_pairs": found.cells, "layouts": found.layouts, "solved": found.solved}


PARTS = {"search": search, "solve": solve, "frontier": frontier, "pairs": pairs}


def measured(part: str, case: Case, runs: int) -> Figures:
    """The run with the fewest CPU-seconds, each in a process of its own."""
    command = [sys.executable, __file__, "--child", part, case.name, case.path, str(case.nodes or 0)]
    found = [
        json.loads(subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT).stdout)
        for _ in range(runs)
    ]
    return min(found, key=lambda figures: figures["cpu_seconds"])


def cases() -> Iterator[tuple[Case, tuple[str, ...]]]:
    """What is measured of each problem."""
    for name, path in PROBLEMS.items():
        yield Case(name, path), (*("search", "solve"), *(("frontier",) if path == MAIN_JOB else ()))
    for name, path in PAIRS.items():
        yield Case(name, path), ("pairs",)
    for model, (path, sizes) in GROWTH.items():
        for nodes in sizes:
            yield (
                Case(f"{model}, {nodes:,} nodes", path, nodes),
                ("search",),
            )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="figures as JSON instead of tables")
    parser.add_argument("--write", action="store_true", help="put the tables into docs/search.md")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--only", nargs="*", default=[], help="problems whose name holds one of these words")
    parser.add_argument("--child", nargs=4, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.child:
        part, name, path, nodes = asked.child
        print(json.dumps(PARTS[part](Case(name, path, int(nodes) or None))))
        return
    found: dict[str, dict[str, Figures]] = {}
    for case, parts in cases():
        if not asked.only or any(word in case.name for word in asked.only):
            print(f"{case.name} ...", file=sys.stderr, flush=True)
            found[case.name] = {part: measured(part, case, asked.runs) for part in parts}
    text = f"Measured {machine()}; best of {asked.runs}.\n\n{tables(found)}"
    if asked.write:
        write(text)
    print(
        json.dumps({"machine": machine(), "runs": asked.runs, "found": found}, indent=2)
        if asked.json
        else text
    )


if __name__ == "__main__":
    main()
