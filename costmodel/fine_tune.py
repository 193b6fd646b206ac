"""Fine-tunes on a sheet of paper: FLOPs of full training and of adapters beside frozen weights."""

from __future__ import annotations

from costmodel.run import Column


def lora_parameters(rank: Column, inputs: Column, outputs: Column) -> Column:
    """Weights of a low-rank adapter of one matrix: r*(d_in + d_out). Hu et al., arXiv:2106.09685."""
    return rank * (inputs + outputs)


def full_tune_flops(parameters: Column, tokens: Column) -> Column:
    """6*P*D: forward, gradients of activations and of weights, two each a weight and token."""
    return 6 * parameters * tokens


def adapter_tune_flops(parameters: Column, tokens: Column, adapters: Column = 0) -> Column:
    """4*P*D + 6*P_a*D: frozen weights need no gradients of their own; adapters are below 1 % of P."""
    return 4 * parameters * tokens + full_tune_flops(adapters, tokens)
