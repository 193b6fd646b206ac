"""Adapters beside frozen weights: how many parameters they are, and the FLOPs of training them."""

from __future__ import annotations

from costmodel.flops import flops_6nd
from costmodel.run import Column


def lora_parameters(rank: Column, inputs: Column, outputs: Column) -> Column:
    """Weights of a low-rank adapter of one matrix: r*(d_in + d_out). Hu et al., arXiv:2106.09685."""
    return rank * (inputs + outputs)


def adapter_tune_flops(parameters: Column, tokens: Column, adapters: Column = 0) -> Column:
    """4*P*D + 6*P_a*D: frozen weights need no gradients of their own; adapters are below 1 % of P.

    Of the 6*P*D of full training (`flops.flops_6nd`), 2*P*D are for gradients of weights.
    """
    return 4 * parameters * tokens + flops_6nd(adapters, tokens)
