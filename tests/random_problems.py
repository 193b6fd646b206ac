"""Small random problems, seeded: what the tests of the search are run on."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

from costmodel.architecture import Architecture, LatentAttention, MixtureOfExperts
from costmodel.run import Fabric
from costmodel.stack import load_stack
from hardware.accelerator import Accelerator
from hardware.catalogue import load_accelerator
from planner.frameworks.table import table
from planner.instance import Instance, Limits, Narrowing, Pool

GPUS = ("H800", "H100", "A100-80GB", "H20")
STACKS = ("megatron-core", "megatron-core", "megatron-bridge", "zero-bubble")
MODULE_SETS = (
    "layernorm",
    "mlp",
    "layernorm+mlp",
    "core_attn+mlp",
    "moe_act",
    "moe",
    "layernorm+moe_act",
    "layernorm+moe",
    "mlp+moe",
    "moe_act+shared_experts",
    "mla_up_proj+moe_act",
    "layernorm+mla_up_proj+moe",
    "layernorm+mla_up_proj+mlp+moe_act+shared_experts",
)
"""The first four are of models without experts too."""
PLENTY = 1e15
"""Bytes that no plan fills."""


def architecture(random: Random, layers: int) -> Architecture:
    """Dense, MoE with leading dense layers or alternating ones, with MLA or without, tied or not."""
    heads = random.choice((4, 8))
    kind = random.choice(("dense", "dense", "moe", "moe", "mla"))
    return Architecture(
        name=f"{kind} {layers}",
        layers=layers,
        hidden=random.choice((512, 1024, 2048)),
        ffn=random.choice((1024, 4096, 8192)),
        heads=heads,
        kv_heads=random.choice((1, 2, heads)),
        head_dim=64,
        vocab=random.choice((2_000, 32_000, 128_000)),
        tied_embeddings=random.random() < 0.3,
        moe=None if kind == "dense" else mixture(random, layers),
        mla=LatentAttention(q_lora=256, kv_lora=128, qk_nope=64, qk_rope=32, v_dim=64)
        if kind == "mla"
        else None,
        mtp_layers=int(kind == "mla" and random.random() < 0.5),
    )


def mixture(random: Random, layers: int) -> MixtureOfExperts:
    return MixtureOfExperts(
        experts=random.choice((2, 4)),
        top_k=random.choice((1, 2)),
        moe_ffn=random.choice((512, 2048)),
        shared_expert_ffn=random.choice((0, 512)),
        first_dense_layers=random.randrange(0, layers // 2 + 1),
        moe_every_n_layers=random.choice((1, 1, 1, 2)),
    )


def pool(random: Random, nodes: int) -> Pool:
    """A pool of small nodes, so that all of tp fits few GPUs."""
    gpu = load_accelerator(random.choice(GPUS))
    node = random.choice((2, 4, 4))
    usual = Fabric.of(gpu)
    most = random.randint(1, nodes)
    least = random.randint(1, most) if random.random() < 0.3 else 1
    price = round(random.uniform(0.5, 3.0), 2)
    committed = random.choice((0.0, 0.0, 0.0, random.uniform(0.2, 3.0)))
    return Pool(
        with_memory(gpu, PLENTY),
        replace(usual, gpus_per_node=node, domain=node),
        least,
        most,
        price,
        committed,
    )


def with_memory(gpu: Accelerator, bytes_: float) -> Accelerator:
    return gpu.model_copy(update={"memory": gpu.memory.model_copy(update={"driver": bytes_})})


def with_room(instance: Instance, bytes_: float) -> Instance:
    """The instance on GPUs of that much memory; in problems of several pools the second has a little more."""
    pools = tuple(
        replace(pool, gpu=with_memory(pool.gpu, bytes_ * (1 + 0.1 * index)))
        for index, pool in enumerate(instance.pools)
    )
    return replace(instance, pools=pools)


def objective(random: Random) -> tuple[Any, bool]:
    """(terms, lexicographic)."""
    return random.choice(
        (
            ((("cost", 1.0),), True),
            ((("time", 1.0),), True),
            ((("cost", 1.0), ("time", 1.0)), True),
            ((("time", 1.0), ("cost", 1.0)), True),
            ((("cost", 1.0), ("time", random.uniform(1.0, 300.0))), False),
            ((("cost", 0.5), ("time", random.uniform(1.0, 3000.0))), False),
        )
    )


def narrowing(random: Random, experts: bool = True) -> dict[str, tuple[int | str, ...]]:
    """Some decisions with a few allowed values; micro-batch sizes always, to keep problems small."""
    some: dict[str, tuple[int | str, ...]] = {
        "micro_batch": random.choice(((1,), (2,), (1, 2), (1, 3), (4,)))
    }
    offers: dict[str, tuple[tuple[int | str, ...], ...]] = {
        "tp": ((1,), (2,), (1, 2), (2, 4)),
        "cp": ((1,), (1, 2)),
        "pp": ((2,), (1, 2), (2, 3, 4), (4,), (3, 5)),
        "vpp": ((1,), (2,), (1, 2), (1, 3)),
        "dp": ((1,), (1, 2), (2, 4)),
        "ep": ((1,), (1, 2), (2, 4)),
        "etp": ((1,),),
        "zero": ((0,), (1,), (0, 1), (1, 2, 3), (3,)),
        "zero_scope": (("full",), ("node",), ("full", "node")),
        "num_microbatches": ((4,), (2, 4, 8), (1, 3, 6)),
        "recompute": (("full",), ("none", "full"), ("none",), ("selective", "full"), ("none", "selective")),
    }
    share = random.choice((0.0, 0.2, 0.4))
    for name, values in offers.items():
        if random.random() < (0.4 if name == "recompute" else share):
            some[name] = random.choice(values)
    return some | execution(random, experts)


def execution(random: Random, experts: bool) -> dict[str, tuple[int | str, ...]]:
    """Most of the time some sets of modules to choose from, of the many there are, and overlap or not."""
    some: dict[str, tuple[int | str, ...]] = {}
    if random.random() < (0.9 if experts else 0.6):
        names = MODULE_SETS if experts else MODULE_SETS[:4]
        some["recompute_modules"] = tuple(random.sample(names, random.choice((1, 2, 2, 3))))
    if experts and random.random() < 0.6:
        some["ep_overlap"] = random.choice(((False,), (True,), (False, True)))
    return some


def problem(random: Random, most_layers: int = 9, nodes: int = 3) -> Instance:
    """A problem without limits and with all the memory in the world; limits are set from what is possible."""
    layers = random.randint(4, most_layers)
    largest = random.choice((4, 8, 12, 16))
    goal, lexicographic = objective(random)
    assumed = random.random() < 0.1
    model = architecture(random, layers)
    return Instance(
        architecture=model,
        stack=load_stack(random.choice(STACKS)),
        tokens=float(random.choice((1e8, 1e9, 2e10))),
        seq_len=random.choice((1024, 2048, 4096)),
        min_batch=random.choice((1, largest // 2, largest)),
        max_batch=largest,
        pools=tuple(
            replace(pool(random, nodes), entry=entry) for entry in range(random.choice((1, 1, 2, 3)))
        ),
        limits=Limits(memory_headroom=random.choice((0.0, 0.05))),
        objective=goal,
        lexicographic=lexicographic,
        narrowing=Narrowing(narrowing(random, model.moe is not None)),
        per_stage_recompute=random.random() < 0.5,
        assume_mfu=0.4 if assumed else None,
        nominal_parameters=1e9 if assumed and random.random() < 0.5 else None,
    )


def leading(random: Random) -> Instance:
    """The same, of models that start with one to three dense layers, and more often on interleaved pipelines.

    A layer of either kind may be many times as dear as one of the other, in time as in memory.
    """
    instance = problem(random, most_layers=10)
    of, first = instance.architecture, random.choice((1, 1, 2, 3))
    moe = replace_model(
        of.moe or mixture(random, of.layers),
        first_dense_layers=first,
        moe_every_n_layers=1,
        moe_ffn=random.choice((256, 1024, 4096)),
        top_k=random.choice((1, 2)),
    )
    allowed = dict(instance.narrowing.allowed)
    for name in ("pp", "vpp", "recompute"):
        allowed.pop(name, None)
    for name, share, values in (
        ("pp", 0.7, ((2,), (2, 3), (2, 3, 4), (1, 4))),
        ("vpp", 0.7, ((1,), (2,), (2, 3), (1, 2, 4))),
        ("recompute", 0.5, (("full",), ("none", "full"), ("none",), ("none", "selective"))),
    ):
        if random.random() < share:
            allowed[name] = random.choice(values)
    return replace(
        instance,
        architecture=replace_model(of, moe=moe, ffn=random.choice((256, 2048, 8192))),
        narrowing=Narrowing(allowed),
        stack=load_stack(random.choice(STACKS)),
    )


def overlapping(random: Random) -> Instance:
    """The same, of models with experts on several ranks, whose traffic is much of a step."""
    instance = problem(random)
    of = instance.architecture
    # Layers so large that the host does not set the pace, which overlap asks more of.
    moe = replace_model(
        of.moe or mixture(random, of.layers),
        top_k=2,
        experts=random.choice((2, 4)),
        moe_ffn=random.choice((2048, 8192)),
    )
    allowed = dict(instance.narrowing.allowed)
    for name in ("tp", "ep", "pp", "vpp", "dp", "ep_overlap", "recompute_modules"):
        allowed.pop(name, None)
    for name, share, values in (
        ("tp", 0.6, ((1,), (1, 2))),
        ("ep", 0.8, ((2,), (2, 4), (1, 2))),
        ("pp", 0.6, ((2,), (1, 2), (1,), (2, 4))),
        ("vpp", 0.6, ((2,), (1, 2), (1, 2, 3))),
        ("ep_overlap", 0.3, ((True,), (True,), (False,))),
    ):
        if random.random() < share:
            allowed[name] = random.choice(values)
    allowed |= {"recompute_modules": tuple(random.sample(MODULE_SETS, random.choice((1, 2, 3))))}
    slow = random.choice((0.05, 0.3, 1.0))
    pools = tuple(
        replace(pool, fabric=replace(pool.fabric, nic=pool.fabric.nic * slow)) for pool in instance.pools
    )
    return replace(
        instance,
        architecture=replace_model(of, moe=moe, hidden=random.choice((2048, 8192))),
        pools=pools,
        narrowing=Narrowing(allowed),
        stack=load_stack(random.choice(STACKS)),
        seq_len=random.choice((2048, 8192)),
        assume_mfu=None,
        nominal_parameters=None,
    )


def rounds(random: Random) -> Instance:
    """Problems of a stack that shards gradients beside its pipelines, over networks of any speed."""
    instance = problem(random, most_layers=10)
    allowed = dict(instance.narrowing.allowed)
    for name in ("pp", "vpp", "zero", "num_microbatches"):
        allowed.pop(name, None)
    for name, share, values in (
        ("pp", 0.7, ((2,), (2, 3), (2, 3, 4), (1, 4))),
        ("vpp", 0.5, ((2,), (2, 3), (1, 2, 4), (3, 4))),
        ("zero", 0.5, ((2,), (1, 2), (0, 2), (2, 3))),
    ):
        if random.random() < share:
            allowed[name] = random.choice(values)
    slow = random.choice((0.01, 0.1, 1.0, 10.0))
    pools = tuple(
        replace(pool, fabric=replace(pool.fabric, nic=pool.fabric.nic * slow)) for pool in instance.pools
    )
    stack = load_stack("llama-3")
    return replace(instance, pools=pools, narrowing=Narrowing(allowed), stack=stack)


def sharing_alone(random: Random) -> Instance:
    """Problems of a stack that keeps smaller gradients of a single replica, whose ranks share the states."""
    instance = problem(random)
    allowed: dict[str, tuple[int | str, ...]] = {
        "micro_batch": (1, 2), "cp": (4, 8), "tp": (1,), "pp": (1, 2), "vpp": (1,), "zero": (1, 2, 3),
        "recompute": ("none", "full"),
    }  # fmt: skip
    return replace(
        instance,
        architecture=replace_model(instance.architecture, moe=None, mla=None, mtp_layers=0),
        stack=load_stack("nanotron"),
        narrowing=Narrowing(allowed),
        seq_len=8192,
        pools=tuple(replace(each, min_nodes=1, max_nodes=8) for each in instance.pools[:1]),
    )


def precise(random: Random) -> Instance:
    """Problems that allow FP8 beside BF16 on the GPUs that have it, or ask for it; some keep weights in FP8."""
    instance = problem(random, most_layers=8)
    wanted = random.choice((("bf16", "fp8"), ("bf16", "fp8"), ("bf16", "fp8"), ("fp8",)))
    pools = tuple(
        replace(pool, precision=precision)
        for pool in instance.pools
        for precision in wanted
        if precision in pool.gpu.peak_flops
    )
    if not pools:
        return precise(random)
    return replace(
        instance,
        pools=pools,
        framework=random.choice(("any", "megatron", "megatron")),
        stack=load_stack(random.choice(("megatron-core", "megatron-bridge"))),
        per_stage_recompute=False,
    )


def launched(random: Random) -> Instance:
    """Problems of one framework with its own profile: models that it trains, most of the time."""
    framework = random.choice(("torchtitan", "torchtitan", "deepspeed", "nanotron", "megatron"))
    instance = problem(random, most_layers=8)
    of = instance.architecture
    usual = {"head_dim": of.hidden // of.heads, "tied_embeddings": False}
    if framework in ("deepspeed", "nanotron") and random.random() < 0.8:
        usual |= {"moe": None, "mla": None, "mtp_layers": 0}
    if framework == "torchtitan":
        usual |= {"mtp_layers": 0}
    allowed = {
        name: values
        for name, values in instance.narrowing.allowed.items()
        if name == "micro_batch" or random.random() < 0.5
    }
    return replace(
        instance,
        framework=framework,
        architecture=of.model_copy(update=usual),
        stack=load_stack(table()[framework].profile),
        narrowing=Narrowing(allowed),
        per_stage_recompute=False,
    )


def replace_model(model: Any, **values: Any) -> Any:
    return model.model_copy(update=values)
