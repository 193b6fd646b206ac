"""A layer's two blocks without communication: GEMMs, elementwise kernels, gradient accumulation."""

from __future__ import annotations

from dataclasses import dataclass

from costmodel.elementwise import (
    accumulate_time,
    activation_time,
    expert_accumulate_time,
    norm_time,
    rope_time,
)
from costmodel.linears import attention_linears, attention_quantise, ffn_linears, ffn_quantise
from costmodel.moe import (
    expert_activation,
    expert_linears,
    expert_quantise,
    permute_time,
    router_time,
)
from costmodel.parameters import layer_parameters
from costmodel.passes import Passes, together
from costmodel.run import Column, Run


@dataclass(frozen=True, slots=True)
class Block:
    """Seconds of one block of a layer, one micro-batch."""

    gemm: Passes
    elementwise: Passes
    accumulate: Column
    """Adding weight gradients to main gradients, backward only."""

    @property
    def forward(self) -> Column:
        return self.gemm.forward + self.elementwise.forward


def attention_block(run: Run) -> Block:
    """Projections, RoPE, and both norms and residuals of the layer; the core is `attention.py`'s."""
    parameters = layer_parameters(run.architecture, run.architecture.kinds[0])
    elementwise = together(Passes(*norm_time(run)), Passes(*rope_time(run)), attention_quantise(run))
    return Block(attention_linears(run), elementwise, accumulate_time(run, parameters.attention / run.tp))


def dense_block(run: Run) -> Block:
    """The FFN of a dense layer."""
    return _ffn(run, run.architecture.ffn)


def shared_block(run: Run) -> Block | None:
    """The shared experts of a MoE layer, one dense FFN together; none in some models."""
    moe = run.architecture.moe
    return _ffn(run, moe.shared_expert_ffn) if moe and moe.shared_expert_ffn else None


def _ffn(run: Run, width: int) -> Block:
    activation = Passes(*activation_time(run, run.tokens, width / run.tp))
    weights = (3 if run.architecture.gated_mlp else 2) * run.architecture.hidden * width
    return Block(
        ffn_linears(run, width),
        together(activation, ffn_quantise(run, width)),
        accumulate_time(run, weights / run.tp),
    )


def routed_block(run: Run) -> Block:
    """Router, permutation and routed experts of a MoE layer."""
    moe = run.architecture.moe
    if moe is None:
        raise ValueError(f"{run.architecture.name} has no MoE layers")
    parameters = layer_parameters(run.architecture, "moe")
    elementwise = together(permute_time(run, moe), expert_activation(run, moe), expert_quantise(run, moe))
    local = parameters.experts / (run.ep * run.etp) + parameters.router
    gemm = together(router_time(run, moe), expert_linears(run, moe))
    return Block(gemm, elementwise, expert_accumulate_time(run, local))


def expert_block(run: Run) -> Block:
    """Routed and shared experts together."""
    routed, shared = routed_block(run), shared_block(run)
    if shared is None:
        return routed
    return Block(
        together(routed.gemm, shared.gemm),
        together(routed.elementwise, shared.elementwise),
        routed.accumulate + shared.accumulate,
    )
