"""Buffers that live for one layer or for the loss: the peak adds the largest once."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from costmodel.architecture import LayerKind
from costmodel.memory.activations import BF16, layer_bytes, routed_tokens
from costmodel.memory.profile import is_low_precision
from costmodel.memory.shape import per_layer
from costmodel.memory.states import local_parameters, padded_vocab
from costmodel.parameters import layer_parameters
from costmodel.run import Column, Run
from costmodel.stage import Array


def working_bytes(run: Run) -> Array:
    """Transient bytes of the backward pass on every stage.

    Largest layer's gradients + weight-gradient placeholders + layers gathered under ZeRO-3.
    """
    return np.asarray(_layer_gradients(run) + _placeholders(run) + _gathered_layers(run))


def loss_bytes(run: Run) -> Array:
    """Transient bytes of the last stage: logits with what the loss makes of them, or a backward layer.

    b*S/cp * V_pad/tp * logit_bytes for the head and each MTP module, then as in `working_bytes`, with
    the head's own placeholder and gathered weight. Source: Megatron-Core vocabulary-parallel loss.
    """
    a, p = run.architecture, run.stack.memory
    split = p.logit_bytes if p.logit_bytes_tp is None else p.logit_bytes_tp
    logit = np.where(np.asarray(run.tp) > 1, split, p.logit_bytes)
    logits = run.tokens * padded_vocab(run) / run.tp * logit * (1 + a.mtp_layers)
    largest = np.maximum(logits, _layer_gradients(run))
    table = padded_vocab(run) * a.hidden / run.tp
    head = table * (p.dummy_wgrad_bytes + np.where(np.asarray(run.zero) >= 3, BF16, 0))
    return np.asarray(largest + head + _placeholders(run) + _gathered_layers(run))


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


def _gathered_layers(run: Run) -> Array:
    """Whole layers that ZeRO-3 has gathered: the current and the prefetched ones; 0 below stage 3."""
    p, local = run.stack.memory, local_parameters(run)
    element = p.gather_bytes
    if is_low_precision(run.precision) and p.fp8_gather_bytes is not None:
        element = p.fp8_gather_bytes
    layer = (local.layers.kinds + local.experts.kinds).max(axis=-1)
    return np.where(np.asarray(run.zero) >= 3, p.gathered_layers * element * layer, 0.0)
