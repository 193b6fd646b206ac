"""A framework limit leaves what the framework's exporter writes, and removes what it refuses."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from itertools import product
from random import Random
from typing import Any

import pytest

from costmodel.architecture import Architecture
from costmodel.cards import card_names, load_card
from costmodel.run import Fabric
from costmodel.stack import load_stack
from planner.errors import InvalidInput
from planner.export import LAUNCHERS, CannotExport
from planner.export.job import Job, job_of
from planner.frameworks.models import names_of
from planner.frameworks.table import FRAMEWORKS, table
from planner.listing import listed, records
from planner.problem import Problem, parse_problem
from planner.resolve import instance_of
from planner.solution import Conflict, Decisions, Estimate, MemoryParts, Stage
from planner.solve import solve
from planner.switches import overlaps_of
from planner.validate_launch import launch_faults

PLAIN: dict[str, Any] = {
    "layers": 12,
    "hidden": 1024,
    "ffn": 4096,
    "heads": 8,
    "kv_heads": 4,
    "head_dim": 128,
    "vocab": 32000,
}
MIXTRAL = {"experts": 4, "top_k": 2, "moe_ffn": 1024}
MODELS: dict[str, Any] = {
    "llama": {"name": "llama"} | PLAIN,
    "thirteen layers": {"name": "thirteen"} | PLAIN | {"layers": 13},
    "qwen2": {"name": "qwen2", "qkv_bias": True} | PLAIN,
    "mixtral": {"name": "mixtral", "moe": MIXTRAL} | PLAIN,
    "registered": "qwen-3-30b-a3b",
    "latent": "deepseek-v2-lite",
    "gemma": {"name": "gemma", "norms_per_layer": 4} | PLAIN,
}
CASES = list(product(MODELS, FRAMEWORKS))
SEARCH = {
    "micro_batch": 1,
    "num_microbatches": [1, 2, 4, 8],
    "pp": [1, 2, 4],
    "vpp": [1, 2, 3],
    "cp": [1, 2],
    "ep": [1, 2, 8],
}
ONE_EACH = ("tp", "cp", "pp", "vpp", "ep", "etp", "zero", "recompute", "num_microbatches")
"""Decisions of which each combination is looked at once."""
NO_FIGURES = Estimate(
    step_time_s=1.0, days=1.0, dollars=1.0, mfu=0.1, hfu=0.1, tokens_per_s_per_gpu=1.0,
    memory_gib=MemoryParts(total=1.0), breakdown_s={"gemm": 1.0},
)  # fmt: skip


def problem(model: str, framework: str, stack: str, precision: str = "bf16") -> Problem:
    """A node of large GPUs, so that most layouts fit."""
    return parse_problem(
        {
            "name": "frameworks",
            "model": MODELS[model],
            "training": {
                "tokens": "1B", "seq_len": 4096, "global_batch": {"min": "8 sequences", "max": "16 sequences"}, "precision": precision
            },
            "hardware": [{"gpu": "H200", "nodes": {"max": 1}}],
            "search": {"framework": framework, "stack": stack} | SEARCH,
        }
    )  # fmt: skip


def key_of(decisions: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(decisions[name] for name in ONE_EACH)


@cache
def candidates(
    model: str, framework: str, stack: str, precision: str = "bf16"
) -> dict[tuple[Any, ...], Decisions]:
    """A candidate for each combination of decisions."""
    instance, found = instance_of(problem(model, framework, stack, precision)), {}
    for block in listed(instance):
        for record in records(instance, block):
            found.setdefault(key_of(record["decisions"]), record["decisions"])
    return {key: Decisions.model_validate(of) for key, of in found.items()}


def job(of: Problem, decisions: Decisions) -> Job:
    """The job of decisions, as a solution's plan would be exported."""
    return Job(
        name="frameworks",
        architecture=of.model.architecture,
        decisions=decisions,
        estimate=NO_FIGURES,
        tokens=int(of.training.tokens),
        seq_len=of.training.seq_len,
        stack=load_stack(of.search.profile),
        fabric=Fabric(8, 8, 2e11, 5e10),
        source="planner, by hand",
    )


def overlapped(of: Problem, decisions: Decisions, architecture: Architecture | None = None) -> Decisions:
    """The decisions with overlap as the problem's framework has it."""
    found = overlaps_of(
        architecture or of.model.architecture, of.search.software, of.search.framework, decisions.model_dump()
    )
    return decisions.model_copy(update=found)


def refusal(of: Problem, decisions: Decisions, framework: str) -> str:
    """Why a framework's exporter refuses a plan, '' if it does not."""
    try:
        LAUNCHERS[framework](job(of, overlapped(of, decisions)))
    except CannotExport as refused:
        return str(refused)
    return ""


@pytest.mark.parametrize(("model", "framework"), CASES)
def test_the_limit_leaves_what_is_launched_and_removes_what_is_refused(model: str, framework: str) -> None:
    agrees(model, framework, table()[framework].profile)


@pytest.mark.parametrize(
    ("model", "framework", "stack", "precision"),
    [
        ("llama", "megatron", "megatron-bridge", "fp8"),  # keeps FP8 weights: not without sharded states
        ("llama", "torchtitan", "torchtitan-2025", "fp8"),
        ("llama", "torchtitan", "deepspeed-hf", "bf16"),  # no sequence parallelism: no tensor parallelism
        ("mixtral", "megatron", "megatron-lm-2021", "bf16"),  # the same of experts
        ("llama", "deepspeed", "megatron-deepspeed-flash", "bf16"),
    ],
)
def test_so_it_does_with_what_the_profile_and_the_precision_ask_for(
    model: str, framework: str, stack: str, precision: str
) -> None:
    removed = agrees(model, framework, stack, precision)
    assert removed < len(candidates(model, "any", stack, precision)) or precision == "fp8"
    assert removed


def agrees(model: str, framework: str, stack: str, precision: str = "bf16") -> int:
    """Candidates that a framework removes: all that its exporter and the validator refuse, and no others."""
    mine, every = (candidates(model, name, stack, precision) for name in (framework, "any"))
    limited = problem(model, framework, stack, precision)
    assert every
    for decisions in mine.values():
        assert refusal(limited, decisions, framework) == ""
        assert launch_faults(limited, decisions) == []
    # Selective recompute by operation is torchtitan's own, and no candidate of any framework.
    own = {key for key, of in mine.items() if of.recompute_modules == ("per_op",)}
    removed = every.keys() - mine.keys()
    assert mine.keys() - own <= every.keys()
    for key in removed:
        assert refusal(limited, every[key], framework) != "", every[key]
        assert launch_faults(limited, every[key]), every[key]
    return len(removed)


@pytest.mark.parametrize(("model", "framework"), CASES)
def test_the_plan_that_is_returned_is_exported(model: str, framework: str) -> None:
    profile = table()[framework].profile
    found = solve(problem(model, framework, profile))
    if not candidates(model, framework, profile):
        assert found.status == "infeasible"
        assert found.conflict is not None
        assert found.conflict.limits == ("search.framework",)
        assert [move.limit for move in found.conflict.relaxations] == ["search.framework"]
        return
    assert found.status == "optimal"
    files = LAUNCHERS[framework](job_of(found))
    assert files


def assignments(of: Problem, decisions: Decisions, random: Random) -> Decisions:
    """The decisions with layers and recompute dealt out at random: what the search may not return."""
    layers = [decisions.stages[rank].layers for rank in range(decisions.pp)]
    if decisions.pp > 1:
        giver, taker = random.sample(range(decisions.pp), 2)
        layers[giver], layers[taker] = layers[giver] - 1, layers[taker] + 1
    again = [random.randint(0, n) if decisions.recompute == "full" else 0 for n in layers]
    if decisions.recompute == "full" and not any(again):
        again[0] = 1
    stages = tuple(Stage(layers=n, recomputed_layers=r) for n, r in zip(layers, again, strict=True))
    return decisions.model_copy(update={"stages": stages})


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_any_assignment_of_stages_is_refused_by_both_or_by_neither(framework: str) -> None:
    stack, random = table()[framework].profile, Random(7)
    limited = problem("llama", framework, stack)
    said: set[bool] = set()
    for decisions in candidates("llama", framework, stack).values():
        if decisions.vpp == 1 and all(stage.layers > 1 for stage in decisions.stages):
            dealt = assignments(limited, decisions, random)
            launched = not launch_faults(limited, dealt)
            assert (refusal(limited, dealt, framework) == "") == launched, dealt
            said.add(launched)
    assert said == {True, False}


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_models_of_a_framework_are_those_that_its_exporter_writes(framework: str) -> None:
    """Of every card, and of Llama with each feature changed, as a whole on every GPU."""
    rules, stack = table()[framework], table()[framework].profile
    changes: list[dict[str, Any]] = [
        {"norm": "layer"}, {"gated_mlp": False}, {"tied_embeddings": True}, {"qkv_bias": True}, {"output_bias": True},
        {"mlp_bias": True}, {"qkv_bias": True, "output_bias": True, "mlp_bias": True}, {"qk_norm": True},
        {"attention_sinks": True}, {"learned_positions": 4096}, {"learned_positions": 2048}, {"sliding_window": 512},
        {"sliding_window": 512, "sliding_layers": 12}, {"sliding_window": 512, "sliding_layers": 6},
        {"sliding_window": 512, "sliding_layers": 5}, {"sliding_window": 512, "sliding_layers": 12, "chunked_window": True},
        {"sliding_layers": 12}, {"norms_per_layer": 4}, {"mtp_layers": 1}, {"head_dim": 64},
        {"qkv_bias": True, "head_dim": 64}, {"qkv_bias": True, "qk_norm": True},
        {"moe": MIXTRAL}, {"moe": MIXTRAL, "qk_norm": True}, {"moe": MIXTRAL | {"first_dense_layers": 1}},
        {"moe": MIXTRAL | {"first_dense_layers": 1}, "qk_norm": True}, {"moe": MIXTRAL | {"shared_expert_ffn": 512}},
        {"moe": MIXTRAL, "sliding_window": 512, "sliding_layers": 12}, {"mla": {"kv_lora": 64, "qk_nope": 64, "qk_rope": 32, "v_dim": 64}},
    ]  # fmt: skip
    base = problem("llama", framework, stack)
    cards = [load_card(name) for name in card_names()]
    written = [parse_problem({**base.as_written(), "model": {"name": "x"} | PLAIN | of}) for of in changes]
    models = [*cards, *(of.model.architecture for of in written)]
    answers: set[bool] = set()
    for architecture, split in product(models, (False, True)):
        names = rules.models if not split or rules.split_models is None else rules.split_models
        trained = bool(names_of(architecture, base.training.seq_len, names))
        sizes = {"tp": 2, "sequence_parallel": True, "dp": 4} if split else {"tp": 1, "dp": 8}
        experts = {"ep": sizes["tp"]} if architecture.moe and framework == "torchtitan" else {}
        zero = {"zero": 2 if framework == "torchtitan" else 1}
        plan = whole(architecture.layers, sizes | experts | zero)
        plan = overlapped(base, plan, architecture)
        shown = replace(job(base, plan), architecture=architecture)
        try:
            LAUNCHERS[framework](shown)
            launched = True
        except CannotExport:
            launched = False
        assert trained == launched, (architecture, split)
        answers.add(trained)
    assert answers == {True, False}


def whole(layers: int, sizes: dict[str, Any]) -> Decisions:
    """A plan without a pipeline on a node, with what differs from a plain one."""
    plan: dict[str, Any] = dict.fromkeys(("cp", "pp", "vpp", "ep", "etp", "micro_batch"), 1)
    plan |= {"sequence_parallel": False, "num_microbatches": 2, "gpu": "H800", "num_gpus": 8}
    plan |= {"nodes": 1, "recompute": "none", "precision": "bf16", "stages": (Stage(layers=layers),)} | sizes
    plan["global_batch"] = 2 * plan["dp"]
    return Decisions.model_validate(plan)


def test_the_profile_is_the_frameworks_unless_one_is_named() -> None:
    base = problem("llama", "torchtitan", "torchtitan-2025").as_written()
    for framework, profile in {
        "megatron": "megatron-core", "any": "megatron-core", "torchtitan": "torchtitan-2025", "deepspeed": "deepspeed-hf", "nanotron": "nanotron"
    }.items():  # fmt: skip
        asked = parse_problem(base | {"search": {"framework": framework}})
        assert instance_of(asked).stack.name == profile
        assert any(profile in note for note in asked.assumptions) == (framework != "megatron")
        named = parse_problem(base | {"search": {"framework": framework, "stack": "nemo"}})
        assert instance_of(named).stack.name == "nemo"


def test_recompute_by_stage_is_refused_where_a_framework_has_one_number_for_all() -> None:
    base = problem("llama", "any", "megatron-core").as_written()
    for framework in FRAMEWORKS:
        with pytest.raises(InvalidInput, match="per_stage_recompute: found true"):
            parse_problem(base | {"search": {"framework": framework, "per_stage_recompute": True}})
    assert instance_of(parse_problem(base | {"search": {"framework": "any"}})).per_stage_recompute


def test_a_conflict_names_the_framework_only_where_another_has_a_plan() -> None:
    base = problem("llama", "any", "megatron-core").as_written()

    def conflict(framework: str, **limits: str) -> Conflict:
        search = {"framework": framework, "pp": [5]}
        found = solve(parse_problem(base | {"search": search, "limits": limits, "hardware": [{"gpu": "H200", "nodes": {"max": 5}}]}))  # fmt: skip
        assert found.conflict is not None
        return found.conflict

    # 12 layers on 5 stages: only uneven.
    uneven = conflict("nanotron")
    assert uneven.limits == ("search.pp", "search.framework")
    assert {move.limit: move.to for move in uneven.relaxations}["search.framework"] == "megatron"
    never = conflict("nanotron", deadline="1 minutes")
    assert never.limits == ("deadline",)
    assert conflict("megatron", deadline="1 minutes").limits == ("deadline",)
