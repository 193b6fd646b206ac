"""Modules of selective recompute: what each drops of a layer, and what it takes to compute it again."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest

from costmodel.attention import attention_time
from costmodel.block import Block, dense_block, expert_block, shared_block
from costmodel.cards import load_card
from costmodel.elementwise import norm_time, rope_time
from costmodel.layer import LayerCost, layer_cost, layer_costs
from costmodel.linears import latent_up
from costmodel.memory.activations import layer_bytes
from costmodel.memory.layer_memory import layer_memories, layer_memory
from costmodel.moe import dispatch_time, expert_activation
from costmodel.norms import separate_norms
from costmodel.run import Fabric, Run
from costmodel.stack import load_stack
from hardware.catalogue import load_accelerator

MODULES = ("core_attn", "layernorm", "mla_up_proj", "mlp", "moe", "moe_act", "shared_experts")
DENSE, MIXTRAL, DEEPSEEK = "llama-3-8b", "mixtral-8x7b", "deepseek-v3"
TOKENS = 4096.0


def run_of(card: str, *modules: str, stack: str = "megatron-core", gpu: str = "H800", **sizes: Any) -> Run:
    accelerator = load_accelerator(gpu)
    names = ("tp", "cp", "pp", "vpp", "dp", "ep", "etp", "micro_batch", "num_microbatches", "zero")
    return Run(
        load_card(card), accelerator, Fabric.of(accelerator), load_stack(stack), 4096, "bf16",
        frozenset(modules), **(dict.fromkeys(names, 1) | sizes),
    )  # fmt: skip


def freed(card: str, kind: str, *modules: str, **how: Any) -> float:
    """Bytes a token that a layer keeps less, unsplit."""
    before, after = (run_of(card, **how), run_of(card, *modules, **how))
    return float(layer_bytes(before, kind) - layer_bytes(after, kind)) / TOKENS  # type: ignore[arg-type]


# ---------------------------------------------------------------------------------------------------
# Bytes


def test_modules_of_a_dense_layer_drop_what_they_keep() -> None:
    """Transformer Engine fuses both norms into the linears behind them: `mlp` drops its own with it."""
    of = load_card(DENSE)
    assert freed(DENSE, "dense", "mlp") == 6 * of.ffn + 2 * of.hidden
    assert freed(DENSE, "dense", "core_attn") == 4 * of.heads
    for none in ("layernorm", "mla_up_proj", "moe", "moe_act", "shared_experts"):
        assert freed(DENSE, "dense", none) == 0


def test_modules_of_a_moe_layer_drop_what_they_keep() -> None:
    """The norm before a router stands alone, the one before grouped-query attention does not."""
    of = load_card(MIXTRAL)
    moe = of.moe
    assert moe is not None
    assert freed(MIXTRAL, "moe", "layernorm") == 2 * of.hidden
    assert freed(MIXTRAL, "moe", "moe_act") == 2 * moe.moe_ffn * moe.top_k
    whole = 2 * of.hidden * moe.top_k + 6 * moe.moe_ffn * moe.top_k + 6 * moe.experts
    assert freed(MIXTRAL, "moe", "moe") == whole
    assert freed(MIXTRAL, "moe", "shared_experts") == freed(MIXTRAL, "moe", "mlp") == 0


def test_modules_of_latent_attention_and_shared_experts_drop_what_they_keep() -> None:
    of = load_card(DEEPSEEK)
    moe, mla = of.moe, of.mla
    assert moe is not None
    assert mla is not None
    for kind, norms in (("dense", 1), ("moe", 2)):
        assert freed(DEEPSEEK, kind, "layernorm") == norms * 2 * of.hidden
        heads = 2 * (mla.qk_nope + mla.qk_rope) + mla.qk_nope + mla.v_dim
        assert freed(DEEPSEEK, kind, "mla_up_proj") == 2 * of.heads * heads
    assert freed(DEEPSEEK, "moe", "shared_experts") == 6 * moe.shared_expert_ffn
    assert freed(DEEPSEEK, "dense", "mlp") == 6 * of.ffn + 2 * of.hidden
    parts = freed(DEEPSEEK, "moe", "moe_act", "shared_experts")
    assert parts == 2 * moe.moe_ffn * moe.top_k + 6 * moe.shared_expert_ffn
    # Beside `moe` its parts drop nothing more.
    assert freed(DEEPSEEK, "moe", "moe", "moe_act", "shared_experts") == freed(DEEPSEEK, "moe", "moe")


@pytest.mark.parametrize("stack", ["kwai", "fsdp", "maxtext", "plain-pytorch"])
def test_where_no_norm_is_fused_both_can_be_computed_again(stack: str) -> None:
    run = run_of(DENSE, "layernorm", stack=stack)
    assert not run.stack.recompute.fused_norms
    assert separate_norms(run, "dense") == 2
    rebuilt = 2 * 2 * run.architecture.hidden * run.stack.memory.residuals_rebuilt
    outputs = 2 * run.stack.memory.norm_output_bytes * run.architecture.hidden
    assert freed(DENSE, "dense", "layernorm", stack=stack) == outputs + rebuilt
    seconds = layer_cost(run).selective[0]
    assert seconds == pytest.approx(run.stack.recompute.norm_share * norm_time(run)[0])
    # The FFN's norm is not part of it.
    assert freed(DENSE, "dense", "mlp", stack=stack) == freed(
        DENSE, "dense", "mlp", "layernorm", stack=stack
    ) - (outputs + rebuilt)


def test_several_modules_drop_what_each_of_them_does() -> None:
    """But for the norm before a dense FFN, which is dropped once."""
    for card, kind, names in (
        (DEEPSEEK, "moe", ("core_attn", "layernorm", "mla_up_proj", "moe_act", "shared_experts")),
        (DEEPSEEK, "dense", ("core_attn", "layernorm", "mla_up_proj", "mlp")),
    ):
        each = sum(freed(card, kind, name) for name in names)
        assert freed(card, kind, *names) == pytest.approx(each)


# ---------------------------------------------------------------------------------------------------
# Seconds


def forward_of(run: Run, kind: str, module: str) -> float:
    """Seconds of a module's forward, from the blocks that make up a layer."""
    of, ffn = run.architecture, dense_block(run) if kind == "dense" else expert_block(run)
    norm = run.stack.recompute.norm_share * norm_time(run)[0] / 2
    shared: Block | None = shared_block(run) if kind == "moe" else None
    latent = float(latent_up(run, of.mla).forward + rope_time(run)[0]) if of.mla else 0.0
    if kind == "dense":
        own = {"mlp": ffn.forward + norm, "layernorm": norm * (of.mla is not None)}
    else:
        assert of.moe is not None
        own = {
            "moe": ffn.forward + 2 * dispatch_time(run, of.moe),
            "moe_act": expert_activation(run, of.moe).forward,
            "shared_experts": shared.forward if shared else 0.0,
            "layernorm": norm * (1 + (of.mla is not None)),
        }
    every = {"core_attn": attention_time(run)[0], "mla_up_proj": latent}
    return float((every | own).get(module, 0.0))  # type: ignore[arg-type]


@pytest.mark.parametrize("module", MODULES)
@pytest.mark.parametrize(
    ("card", "sizes"),
    [(DENSE, {"tp": 2}), (MIXTRAL, {"tp": 2, "ep": 4, "dp": 4}), (DEEPSEEK, {"ep": 16, "dp": 16})],
)
def test_a_module_takes_its_forward_pass_once_more_and_nothing_else(
    card: str, sizes: dict[str, Any], module: str
) -> None:
    bare, run = run_of(card, micro_batch=2, **sizes), run_of(card, module, micro_batch=2, **sizes)
    before, after = layer_cost(bare), layer_cost(run)
    for index, kind in enumerate(run.architecture.kinds):
        assert before.selective[index] == 0
        assert after.selective[index] == pytest.approx(forward_of(run, kind, module), rel=1e-12, abs=1e-15)
    for name in ("gemm", "attention", "elementwise", "tp", "cp", "ep", "first"):
        assert (getattr(after, name) == getattr(before, name)).all(), name
    # Launching what is repeated may cost the host, and what it launches too slowly anyway is free.
    assert (after.total >= before.total * (1 - 1e-12)).all()
    assert (after.total <= before.total + after.selective + 1e-12).all()


def test_modules_of_fused_norms_take_no_time() -> None:
    assert layer_cost(run_of(DENSE, "layernorm")).selective.tolist() == [0.0]


def test_sets_priced_together_are_priced_as_they_are_alone() -> None:
    sets = [
        frozenset(of) for of in ((), ("mlp",), ("layernorm", "moe"), ("mla_up_proj", "moe_act"), MODULES[:4])
    ]
    run = run_of(
        DEEPSEEK, ep=np.array([1, 8, 16]), dp=np.array([16, 16, 16]), micro_batch=np.array([1, 2, 4])
    )
    costs, memories = layer_costs(run, sets), layer_memories(run, sets)
    for of, cost, memory in zip(sets, costs, memories, strict=True):
        alone = replace(run, recompute_modules=of)
        expected, bytes_ = layer_cost(alone), layer_memory(alone)
        for field in fields(LayerCost):
            assert getattr(cost, field.name) == pytest.approx(getattr(expected, field.name), rel=1e-12)
        for name in ("kinds", "first", "last"):
            assert (getattr(memory.kept, name) == getattr(bytes_.kept, name)).all()
        for name in ("checkpoint", "working", "loss", "output"):
            assert (getattr(memory, name) == getattr(bytes_, name)).all()
