"""Selective recompute: what repeating single modules in the backward pass costs a layer."""

from __future__ import annotations

from costmodel.architecture import LayerKind
from costmodel.block import Block, shared_block
from costmodel.elementwise import activation_time, norm_time, rope_time
from costmodel.linears import ffn_input, latent_up
from costmodel.moe import expert_activation
from costmodel.passes import Passes
from costmodel.run import Column, Run

MODULES = (
    "act",
    "core_attn",
    "layernorm",
    "mla_up_proj",
    "mlp",
    "mlp_in",
    "moe",
    "moe_act",
    "per_op",
    "shared_experts",
)
"""Megatron-Core's names of what can be recomputed (`--recompute-modules`), and those of others: `act`,
the activation function of dense FFNs (Megatron-Kwai); `mlp_in`, their first linears (MaxText's remat
policies); `per_op`, torchtitan's per-operator selective checkpointing."""


def recompute_time(
    run: Run, kind: LayerKind, attention: Block, ffn: Block, core: Passes, dispatch: Column
) -> Column:
    """Seconds a micro-batch that recomputing `run.recompute_modules` adds to one layer.

    Each module repeats its forward; `moe` repeats both all-to-alls as well and covers `moe_act` and
    `shared_experts`. `attention` and `ffn` are the layer's blocks, `core` its attention core.
    """
    wanted = run.recompute_modules
    extra: Column = 0.0
    if "per_op" in wanted:
        extra = extra + run.stack.recompute.per_op_share * (attention.forward + ffn.forward + core.forward)
    if "core_attn" in wanted:
        extra = extra + core.forward
    if "layernorm" in wanted:
        extra = extra + run.stack.recompute.norm_share * norm_time(run)[0]
    if "mla_up_proj" in wanted and run.architecture.mla:
        extra = extra + latent_up(run, run.architecture.mla).forward + rope_time(run)[0]
    if kind == "dense":
        return extra + _dense(run, ffn)
    return extra + _experts(run, ffn, dispatch)


def _dense(run: Run, ffn: Block) -> Column:
    """The modules of a dense FFN."""
    wanted, width = run.recompute_modules, run.architecture.ffn
    if "mlp" in wanted:
        return ffn.forward
    extra: Column = 0.0
    if "mlp_in" in wanted:
        extra = extra + ffn_input(run, width).forward
    if "act" in wanted:
        extra = extra + activation_time(run, run.tokens, width / run.tp)[0]
    return extra


def _experts(run: Run, ffn: Block, dispatch: Column) -> Column:
    """The modules of a MoE block."""
    wanted, moe = run.recompute_modules, run.architecture.moe
    if "moe" in wanted:
        return ffn.forward + 2 * dispatch
    extra: Column = 0.0
    if "moe_act" in wanted and moe:
        extra = extra + expert_activation(run, moe).forward
    if "shared_experts" in wanted and (shared := shared_block(run)):
        extra = extra + shared.forward
    return extra
