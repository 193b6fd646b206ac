"""Checks that a returned plan is one that its framework can launch, from the plan alone.

Reads the same table as the search (`planner.frameworks.table`) and asks it of one plan's decisions and
stages, without the search's rules over sizes, pipelines and columns.
"""

from __future__ import annotations

from planner.frameworks.models import names_of
from planner.frameworks.table import Framework, framework_of
from planner.problem import Problem
from planner.solution import Decisions
from planner.validate_switches import launchable_switches


def launch_faults(problem: Problem, d: Decisions) -> list[str]:
    """What the problem's framework cannot do of a plan, a sentence each; empty if it can launch it."""
    name = problem.search.framework
    rules = framework_of(name)
    if rules is None:
        return []
    claims = _sizes(problem, rules, d) | _stages(rules, d) | {"its sharding": _shards(problem, rules, d)}
    claims["its model, as the plan splits it"] = _trains(problem, rules, d)
    claims |= launchable_switches(rules, d)
    return [f"{name} cannot launch {claim}" for claim, so in claims.items() if not so]


def _trains(problem: Problem, rules: Framework, d: Decisions) -> bool:
    models = rules.models
    if d.tp * d.cp * d.pp > 1 and rules.split_models is not None:
        models = rules.split_models
    known = names_of(problem.model.architecture, problem.training.seq_len, models)
    if d.cp > 1 and rules.cp_models is not None:
        return bool(known & set(rules.cp_models))
    return bool(known)


def _sizes(problem: Problem, rules: Framework, d: Decisions) -> dict[str, bool]:
    experts, pieces = problem.model.architecture.moe is not None, d.tp * (2 * d.cp if d.cp > 1 else 1)
    silent = d.tp > 1 and not d.sequence_parallel
    return {
        f"precision {d.precision}": d.precision in rules.precisions,
        "tensor parallelism without sequence parallelism": not silent
        or rules.sequence_parallel == "free"
        or (rules.sequence_parallel == "experts" and not experts),
        f"sequences of {problem.training.seq_len} in {pieces} pieces": not rules.splits_sequence
        or problem.training.seq_len % pieces == 0,
        f"ep {d.ep}": rules.ep or d.ep == 1,
        f"etp {d.etp}": rules.etp or d.etp == 1,
        f"ep {d.ep} with tp {d.tp}": not (experts and rules.ep_takes_tp) or d.ep % d.tp == 0,
        f"vpp {d.vpp}": rules.virtual_stages or d.vpp == 1,
    }


def _stages(rules: Framework, d: Decisions) -> dict[str, bool]:
    held = {stage.layers for stage in d.stages}
    every = all(stage.recomputed_layers == stage.layers for stage in d.stages)
    modules = {"modules": "per_op" not in d.recompute_modules, "none": False}
    modules["operations"] = d.recompute_modules == ("per_op",)
    return {
        "uneven stages": not rules.even_stages or len(held) == 1,
        "recompute of some layers": rules.recompute != "all" or d.recompute != "full" or every,
        "recompute that differs by stage": rules.recompute == "stage" or _uniform(d),
        f"recompute of {', '.join(d.recompute_modules)}": d.recompute != "selective"
        or modules[rules.selective],
    }


def _uniform(d: Decisions) -> bool:
    """Whether every virtual stage recomputes the same number of layers, or all it has."""
    pairs: list[tuple[int, int]] = []
    for stage in d.stages:
        pairs += (
            zip(stage.chunks, stage.recomputed_chunks, strict=True)
            if d.vpp > 1
            else [(stage.layers, stage.recomputed_layers)]
        )
    most = max(again for _, again in pairs)
    return all(again in (most, held) and again <= most for held, again in pairs)


def _shards(problem: Problem, rules: Framework, d: Decisions) -> bool:
    profile = problem.search.software
    facts = {
        "split": d.tp * d.cp > 1,
        "pipeline": d.pp > 1,
        "replicas": d.dp * d.cp > 1,
        "experts": problem.model.architecture.moe is not None,
        "expert_overlap": d.ep_overlap,
        "fp8_weights": d.precision == "fp8" and profile.data_parallel.low_precision_parameter_bytes == 1,
    }
    near = d.zero_scope == "full" or d.zero in rules.node_scope
    return near and any(
        d.zero in rule.zero
        and all(wanted is None or wanted == facts[name] for name, wanted in rule if name in facts)
        for rule in rules.sharding
    )
