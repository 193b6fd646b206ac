"""What FFN and experts keep for the backward pass, bytes of one layer and micro-batch."""

from __future__ import annotations

from costmodel.memory.elements import BF16, FP32, gemm_input, split_tokens
from costmodel.run import Column, Run


def dense_bytes(run: Run) -> Column:
    """FFN of a dense layer, less what is recomputed of it.

    `mlp` drops all, `mlp_in` all but the output (2d), `act` the activation function's product.
    """
    a, again = run.architecture, run.recompute_modules
    if "mlp" in again:
        return 0.0
    if "mlp_in" in again:
        return BF16 * a.hidden * split_tokens(run)
    return mlp_bytes(run, a.ffn, product="act" not in again)


def mlp_bytes(run: Run, width: int, *, product: bool = True) -> Column:
    """FFN of a width: gate, up and product (gated), or input and output of the activation: 6 or 4 a unit.

    The product is a GEMM input, one byte in FP8. Source: Korthikanti et al. 2022; Shazeer 2020 (GLU).
    """
    return (_before_product(run) + product * gemm_input(run)) * width * run.tokens / run.tp


def moe_bytes(run: Run) -> Column:
    """Router, permuted tokens, routed and shared experts of a MoE layer.

    A token: 2d*k*copies + k*(4d_e + 2d_e) + 6E + shared experts as an FFN. Experts split over etp see
    the tokens of all etp ranks. Recompute of `moe`, `shared_experts` or `moe_act` drops all, the shared
    experts or the routed experts' products. Source: Megatron-Core MoE (token dispatcher, router).
    """
    moe, p, again = run.architecture.moe, run.stack.memory, run.recompute_modules
    if moe is None or "moe" in again:
        return 0.0
    product = 0 if "moe_act" in again else gemm_input(run)
    tokens = routed_tokens(run)
    permuted = gemm_input(run) * run.architecture.hidden * p.moe_copies * tokens
    experts = (_before_product(run) + product) * moe.moe_ffn * tokens / run.etp
    router = (BF16 + FP32) * moe.experts * split_tokens(run)
    shared = 0.0 if "shared_experts" in again else mlp_bytes(run, moe.shared_expert_ffn)
    return permuted + experts + router + shared


def routed_tokens(run: Run) -> Column:
    """Token copies that the experts of the fullest rank receive: b*S/cp * k*etp/tp * imbalance."""
    moe = run.architecture.moe
    top_k = moe.top_k if moe else 0
    return split_tokens(run) * top_k * run.etp * run.stack.memory.expert_imbalance


def _before_product(run: Run) -> float:
    """Bytes per unit of width that the activation function keeps."""
    gated = run.architecture.gated_mlp
    eager = BF16 if gated and run.stack.memory.unfused_glu else 0
    return (2 * BF16 if gated else BF16) + eager
