"""Well-known runs (`validation/known_plans.yaml`): the problem each had to solve, and the layout it was run with.

All sides are predicted by the same cost model with the same software profile. The published layout does not go
through the search at all: it is priced as the validator prices a plan. One that does not fit into memory as
predicted is compared as the planner would launch it: the same sizes, with schedule, ZeRO, recompute and stages free.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from costmodel.architecture import Architecture
from planner import answer
from planner.comparison import Side
from planner.narrowing import Search
from planner.problem import Problem, parse_problem
from planner.resolve import instance_of
from planner.search import Table, best, goal_of
from planner.sides import described
from planner.solution import Decisions, Stage
from planner.space.recompute import recompute_families
from planner.switches import overlaps_of
from planner.validate import layout_faults, predicted_of

DATA = Path(__file__).resolve().parents[1] / "validation" / "known_plans.yaml"
SIZES = ("tp", "cp", "pp", "dp", "ep", "etp", "micro_batch")
"""Decisions that stay as published where the planner launches a published layout."""


@dataclass(frozen=True, slots=True)
class Known:
    """A well-known run: what it had to decide, and what it decided."""

    name: str
    source: str
    represented: str
    """How the layout is put into the planner's words, where it does not fit."""
    problem: Problem
    published: Decisions
    measured: dict[str, float]

    @property
    def launched(self) -> Problem:
        """The problem with the sizes of the published layout, and everything else free."""
        sizes = {name: getattr(self.published, name) for name in SIZES}
        given = self.problem.search.model_dump(exclude_unset=True)
        return self.problem.model_copy(update={"search": Search.model_validate(given | sizes)})

    @property
    def outside(self) -> list[str]:
        """What puts the layout outside the planner's space."""
        return layout_faults(self.problem, self.problem.hardware[0], self.published)


def known_plans() -> list[Known]:
    """All of the data file."""
    data = yaml.safe_load(DATA.read_text(encoding="utf-8"))["known"]
    return [
        Known(
            name=each["name"],
            source=each["source"],
            represented=each["represented"],
            problem=(problem := parse_problem({"name": each["name"]} | each["problem"])),
            published=decisions(problem, each["published"]),
            measured=each.get("measured", {}),
        )
        for each in data
    ]


def layers_of(written: Sequence[int | str]) -> list[int]:
    """Layers of each virtual stage from `[5, 4 x 13, 2]`."""
    pairs = [[*str(each).split(" x "), "1"][:2] for each in written]
    return [int(layers) for layers, times in pairs for _ in range(int(times))]


def decisions(problem: Problem, written: dict[str, Any]) -> Decisions:
    """A layout as the planner writes its own."""
    of: dict[str, Any] = {"ep": 1, "etp": 1} | written
    pool = problem.hardware[0]
    layers, pp, full = layers_of(of.pop("stages")), of["pp"], of["recompute"] == "full"
    stages = []
    for rank in range(pp):
        mine = tuple(layers[rank::pp])
        again = mine if full else tuple(0 for _ in mine)
        chunks: dict[str, Any] = {"chunks": mine, "recomputed_chunks": again} if of["vpp"] > 1 else {}
        stages.append(Stage(layers=sum(mine), recomputed_layers=sum(again), **chunks))
    num_gpus = of["tp"] * of["cp"] * pp * of["dp"]
    modules = usual_modules(problem.model.architecture) if of["recompute"] == "selective" else ()
    return Decisions(
        gpu=pool.accelerator.name,
        num_gpus=num_gpus,
        nodes=num_gpus // pool.fabric.gpus_per_node,
        global_batch=of["micro_batch"] * of["num_microbatches"] * of["dp"],
        recompute_modules=tuple(sorted(modules)),
        precision=problem.training.precision[0],
        sequence_parallel=of["tp"] > 1,
        **overlaps_of(problem.model.architecture, problem.search.software, problem.search.framework, of),
        stages=tuple(stages),
        **of,
    )


def usual_modules(architecture: Architecture) -> tuple[str, ...]:
    """What a published "selective" stands for where it names no modules: those that save much for little."""
    if architecture.moe is None:
        return ("mlp",)
    return ("layernorm", "moe_act", *(("mla_up_proj",) if architecture.mla else ()))


def side(problem: Problem, d: Decisions, name: str) -> Side:
    """A plan of a problem, priced from its decisions alone."""
    pool = problem.hardware[0]
    predicted = predicted_of(problem, pool, d)
    room = pool.accelerator.memory.driver * (1 - problem.limits.memory_headroom)
    return Side(
        name=name,
        kind="run",
        file=DATA.name,
        **described(problem, d),
        step_time_s=predicted.step_time,
        mfu=predicted.mfu,
        hfu=predicted.hfu,
        tokens_per_s_per_gpu=predicted.tokens_per_second_per_gpu,
        memory_gib=answer.memory_parts(predicted.memory),
        fits=float(predicted.memory.total) <= room,
        breakdown_s=predicted.breakdown,
        price=pool.price,
    )


@dataclass(frozen=True, slots=True)
class Sides:
    """One well-known run three times."""

    plan: Side
    """What the planner does with the same GPUs and batch."""
    launched: Side
    """The published sizes as the planner would launch them."""
    published: Side

    @property
    def rival(self) -> Side:
        """What the plan is measured by: the published layout, or what of it fits."""
        return self.published if self.published.fits else self.launched

    @property
    def holds(self) -> bool:
        """The plan is predicted at least as fast."""
        return self.plan.step_time_s <= min(self.rival.step_time_s, self.launched.step_time_s) * (1 + 1e-9)


def best_decisions(problem: Problem) -> Decisions:
    """The proven best plan, without the reasons."""
    instance = instance_of(problem)
    table = Table.of(instance, goal_of(instance), recompute_families(instance))
    plan = best(table)
    assert plan is not None, f"{problem.name}: nothing fits"
    return answer.decisions(instance, plan)


def sides(known: Known) -> Sides:
    """The run as planned, as launched, and as published."""
    plan, launched, published = (
        side(known.problem, d, f"{known.name}, {how}")
        for how, d in (
            ("planned", best_decisions(known.problem)),
            ("launched", best_decisions(known.launched)),
            ("published", known.published),
        )
    )
    return Sides(plan, launched, published)
