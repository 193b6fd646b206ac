"""Checks the overlap switches of a returned plan from the plan, its problem and the frameworks' table."""

from __future__ import annotations

from typing import Any

from planner.frameworks.table import Framework, Sharding, framework_of
from planner.problem import Problem
from planner.solution import Decisions


def spoken(value: Any) -> str:
    """A value of a decision as problems write it: switches are on or off."""
    return {True: "on", False: "off"}[value] if isinstance(value, bool) else str(value)


def switch_claims(problem: Problem, d: Decisions) -> dict[str, bool]:
    """What has to be so of the switches: on where there is something to hide and the software hides it."""
    asked, found = problem.search, {"tp": _layers(problem, d), "dp": _gradients(problem, d)}
    chunks = d.pp > 1 and d.vpp > 1 and asked.software.pipeline.exposed_interleaved < 1
    found["pp"] = chunks and _known(problem, "pp_overlap")
    claims: dict[str, bool] = {}
    for kind, on in found.items():
        name = f"{kind}_overlap"
        mine = getattr(d, name)
        claims[f"{name} {spoken(mine)} is what software and layout make of it"] = mine == on
        claims[f"{name} {spoken(mine)} is what search says"] = not mine or getattr(asked, name) is not False
    return claims | (_experts(problem, d) if d.ep_overlap else {})


def _known(problem: Problem, name: str) -> bool:
    rules = framework_of(problem.search.framework)
    return rules is None or name in (*rules.switches, *rules.always)


def _layers(problem: Problem, d: Decisions) -> bool:
    """Tensor-parallel overlap: sequence parallelism, and linears that Megatron's user buffers know."""
    software, latent = problem.search.software, problem.model.architecture.mla is not None
    hidden = software.tensor_parallel.exposed < 1 and not (latent and software.family == "megatron")
    return d.sequence_parallel and hidden and _known(problem, "tp_overlap")


def _gradients(problem: Problem, d: Decisions) -> bool:
    """Data-parallel overlap: ranks with the same weights, and a way in which the framework reduces."""
    rules, data, a = (
        framework_of(problem.search.framework),
        problem.search.software.data_parallel,
        problem.model.architecture,
    )
    if d.dp * d.cp == 1 and (a.moe is None or d.tp <= d.ep * d.etp):
        return False
    if rules is not None and not (_known(problem, "dp_overlap") and _one(rules.overlapped_gradients, d)):
        return False
    if rules is not None and not _one(rules.exposed_gradients, d):
        return True
    return (data.sharded_window if d.zero > 1 else data.reduce_window) > 0


def _experts(problem: Problem, d: Decisions) -> dict[str, bool]:
    """Overlap of the experts' all-to-all. Source: Megatron-Core 0.16, TransformerConfig.__post_init__."""
    a, what = problem.model.architecture, "overlap of the experts' traffic"
    full = d.recompute == "full" or any(stage.recomputed_layers for stage in d.stages)
    return {
        f"{what} has experts on several ranks": a.moe is not None and d.ep > 1,
        f"{what} has virtual stages where there is a pipeline": d.pp == 1 or d.vpp > 1,
        f"{what} goes without full recompute": not full,
        f"{what} goes without recompute of `moe`": "moe" not in d.recompute_modules,
        f"{what} goes with at most one layer of multi-token prediction": a.mtp_layers <= 1,
    }


def launchable_switches(rules: Framework, d: Decisions) -> dict[str, bool]:
    """What a framework has to be able to do, by what it is."""
    return {
        "overlap of the experts' traffic": not d.ep_overlap or rules.expert_overlap,
        f"gradients of ZeRO {d.zero} in the open": d.dp_overlap
        or d.dp * d.cp == 1
        or _one(rules.exposed_gradients, d)
        or not _one(rules.overlapped_gradients, d),
        f"transfers in the open with pp {d.pp} and vpp {d.vpp}": d.pp_overlap
        or d.vpp == 1
        or d.pp >= rules.exposed_chunks,
    }


def _one(ways: tuple[Sharding, ...], d: Decisions) -> bool:
    return any(d.zero in way.zero and way.pipeline in (None, d.pp > 1) for way in ways)
