"""Buffers that live for one layer or for the loss: the peak adds the largest once."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from costmodel.architecture import LayerKind
from costmodel.memory.activations import layer_bytes
from costmodel.memory.elements import BF16
from costmodel.memory.ffn import routed_tokens
from costmodel.memory.profile import is_low_precision
from costmodel.memory.shape import per_layer
from costmodel.memory.states import padded_vocab, without_experts
from costmodel.parameters import layer_parameters
from costmodel.run import Column, Run
from costmodel.stage import Array


def working_bytes(run: Run) -> Array:
    """Transient bytes of the backward pass on every stage, but for what ZeRO-3 gathers.

    Largest layer's gradients + weight-gradient placeholders + keys and values of other context ranks.
    """
    return np.asarray(_layer_gradients(run) + _placeholders(run) + _gathered_keys(run))


def _gathered_keys(run: Run) -> Column:
    """Keys and values of the whole sequence and their gradients on each rank of a context-parallel group.

    c * b*S * d_kv/tp with cp > 1, c = context_gather_bytes. Source: PyTorch's ring attention with the
    all-gather rotation (torch.distributed.tensor.experimental).
    """
    whole = run.micro_batch * run.seq_len * run.architecture.kv_width / run.tp
    return np.where(np.asarray(run.cp) > 1, run.stack.memory.context_gather_bytes * whole, 0.0)


def loss_bytes(run: Run) -> Array:
    """Transient bytes of the last stage: logits with what the loss makes of them, or a backward layer.

    b*S/cp * V_pad/tp * logit_bytes for the head and each MTP module, then as in `working_bytes`, with
    the head's own placeholder. Source: Megatron-Core vocabulary-parallel loss.
    """
    a, p = run.architecture, run.stack.memory
    split = p.logit_bytes if p.logit_bytes_tp is None else p.logit_bytes_tp
    logit = np.where(np.asarray(run.tp) > 1, split, p.logit_bytes)
    logits = run.tokens * padded_vocab(run) / run.tp * logit * (1 + a.mtp_layers)
    largest = np.maximum(logits, _layer_gradients(run))
    table = padded_vocab(run) * a.hidden / run.tp
    return np.asarray(largest + table * p.dummy_wgrad_bytes + _placeholders(run))


def rebuilt_bytes(run: Run) -> Array:
    """Bytes that full recompute rebuilds for its backward pass: one whole layer, the largest kind.

    Needed once on a stage that recomputes any layer; less its input, which is the checkpoint.
    Source: Korthikanti et al. 2022, section 5; Chen et al. 2016 (sublinear memory).
    """
    return _largest(run, layer_bytes)


def _layer_gradients(run: Run) -> Array:
    """Gradients alive in a layer's backward pass: the FFN's inputs and outputs, 2*n*ff/tp + 4d a token.

    n = 2 gated, else 1; experts count their routed tokens. Without flash attention the scores too.
    """
    return _largest(run, _gradients_of)


def _gradients_of(run: Run, kind: LayerKind) -> Column:
    a = run.architecture
    wide = BF16 * (2 if a.gated_mlp else 1)
    fused = run.stack.attention.kernel == "flash"
    scores = 0 if fused else run.stack.memory.score_transient_bytes * a.heads * run.seq_len
    core = (2 * BF16 * a.hidden + scores / run.tp) * run.tokens
    if kind == "dense" or a.moe is None:
        return core + wide * a.ffn * run.tokens / run.tp
    return core + routed_tokens(run) * (wide * a.moe.moe_ffn / run.etp + 2 * BF16 * a.hidden)


def _largest(run: Run, quantity: Callable[[Run, LayerKind], Column]) -> Array:
    """The largest of a quantity over the layer kinds: (...,)."""
    return per_layer([quantity(run, kind) for kind in run.architecture.kinds], 0.0, 0.0).kinds.max(axis=-1)


def _placeholders(run: Run) -> Array:
    """Weight gradients that Transformer Engine allocates once a weight shape and never fills.

    dummy_wgrad_bytes * (layer parameters / tp); all experts of a rank share one shape.
    """
    return run.stack.memory.dummy_wgrad_bytes * _largest(run, _parameters_by_shape)


def _parameters_by_shape(run: Run, kind: LayerKind) -> Column:
    layer, moe = layer_parameters(run.architecture, kind), run.architecture.moe
    expert = layer.experts / moe.experts / run.etp if moe else 0.0
    return (layer.attention + layer.ffn) / run.tp + expert


def gathered_bytes(run: Run) -> tuple[Array, Array, Array]:
    """Weights that ZeRO-3 has gathered at once: whole layers, their experts, and on the last stage the head.

    gathered_layers * w * (largest layer); V_pad*d/tp * 2: the head stays BF16.
    """
    p = run.stack.memory
    element = p.gather_bytes
    if is_low_precision(run.precision) and p.fp8_gather_bytes is not None:
        element = p.fp8_gather_bytes
    held, head = p.gathered_layers * element, BF16 * padded_vocab(run) * run.architecture.hidden / run.tp
    return held * _largest(run, _local_layer), held * _largest(run, _local_experts), np.asarray(head)


def _local_layer(run: Run, kind: LayerKind) -> Column:
    return without_experts(run, layer_parameters(run.architecture, kind))


def _local_experts(run: Run, kind: LayerKind) -> Column:
    return layer_parameters(run.architecture, kind).experts / (run.ep * run.etp)
