"""Weights, gradients and optimizer states of the layers a GPU holds."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from costmodel.closed_form.states import zero_bytes
from costmodel.memory.profile import is_low_precision
from costmodel.memory.shape import add, per_layer, scaled
from costmodel.parameters import (
    LayerParameters,
    final_norm_parameters,
    layer_parameters,
    mtp_kind,
    mtp_parameters,
)
from costmodel.run import Column, Run
from costmodel.stage import PerLayer

WHOLE_CHUNKS = 2
"""Chunks of a rank whose gradients are whole at a time, where they are sharded round by round."""


@dataclass(frozen=True, slots=True)
class LocalParameters:
    """Parameters a GPU holds before ZeRO shards them further."""

    layers: PerLayer
    """All of a layer but its routed experts; the final norm and MTP modules on the last stage."""
    experts: PerLayer
    """Routed experts, replicated over the expert-data-parallel ranks only."""
    vocabulary: PerLayer
    """Embedding and LM head."""


@dataclass(frozen=True, slots=True)
class States:
    """Bytes on one GPU; `state_bytes` is their sum."""

    weights: PerLayer
    gradients: PerLayer
    optimizer: PerLayer


def padded_vocab(run: Run) -> Column:
    """Vocabulary rounded up so that tensor-parallel ranks hold equal, aligned shares.

    V_pad = ceil(V / (multiple*tp)) * multiple*tp. Source: Megatron-LM tokenizer,
    `--make-vocab-size-divisible-by`.
    """
    multiple = run.stack.memory.vocab_multiple * run.tp
    return np.ceil(run.architecture.vocab / multiple) * multiple


def local_parameters(run: Run) -> LocalParameters:
    """Parameters a GPU of each stage holds.

    A layer: (attention + ffn)/tp + norms + router, and experts/(ep*etp); embedding and head
    V_pad*d/tp each. Source: Megatron-Core parallel groups; Korthikanti et al. 2022, section 4.
    """
    a = run.architecture
    parts = {kind: layer_parameters(a, kind) for kind in a.kinds}
    layers = {kind: without_experts(run, p) for kind, p in parts.items()}
    experts = {kind: p.experts / (run.ep * run.etp) for kind, p in parts.items()}
    mtp, kind = a.mtp_layers, mtp_kind(a)
    joint = (mtp_parameters(a) - mtp * parts[kind].total) / run.tp
    table = padded_vocab(run) * a.hidden / run.tp
    return LocalParameters(
        layers=per_layer(list(layers.values()), 0.0, final_norm_parameters(a) + mtp * layers[kind] + joint),
        experts=per_layer(list(experts.values()), 0.0, mtp * experts[kind]),
        vocabulary=per_layer(
            [0.0] * len(parts), table + a.learned_positions * a.hidden, _tables_on_last_stage(run) * table
        ),
    )


def states(run: Run) -> States:
    """Bytes of weights, gradients and optimizer states on one GPU, by ZeRO stage.

    w*P_loc (/z from stage 3), g*P_loc (/z from stage 2), o*P_loc (/z from stage 1); z = dp*cp, for
    routed experts the expert-data-parallel size. Gradients accumulate in place, so the number of
    micro-batches does not matter. Source: Rajbhandari et al. 2020 (ZeRO), section 5.
    """
    p, local = run.stack.memory, local_parameters(run)
    optimizer = p.optimizer_bytes + p.partition_gradient_bytes
    weights = _on_gpu(run, local, weights=weight_bytes(run), table_weights=p.weight_bytes)
    gradients = _on_gpu(run, local, gradients=gradient_bytes(run))
    if run.stack.data_parallel.reduces_by_round:
        gradients = add(gradients, _whole_gradients(run, local))
    return States(
        weights=add(weights, _gathered_for_pipeline(run, local)),
        gradients=gradients,
        optimizer=_on_gpu(run, local, optimizer=optimizer),
    )


def state_bytes(run: Run, local: LocalParameters | None = None) -> PerLayer:
    """Weights, gradients and optimizer states together, bytes on one GPU: the sum of `states`.

    `local` is `local_parameters(run)` when the caller has it already.
    """
    p, held = run.stack.memory, local_parameters(run) if local is None else local
    usual = _on_gpu(
        run,
        held,
        weights=weight_bytes(run),
        table_weights=p.weight_bytes,
        gradients=gradient_bytes(run),
        optimizer=p.optimizer_bytes + p.partition_gradient_bytes,
    )
    if run.stack.data_parallel.reduces_by_round:
        usual = add(usual, _whole_gradients(run, held))
    return add(usual, _gathered_for_pipeline(run, held)) if p.pipeline_gathered_bytes else usual


def weight_bytes(run: Run) -> float:
    """Bytes per parameter of a layer's weights in the run's precision."""
    p = run.stack.memory
    if not is_low_precision(run.precision):
        return p.weight_bytes
    if run.gpu.generation == "blackwell" and p.fp8_weight_bytes_blackwell is not None:
        return p.fp8_weight_bytes_blackwell
    return p.fp8_weight_bytes


def gradient_bytes(run: Run) -> Column:
    """Bytes per parameter of the gradient buffers."""
    p = run.stack.memory
    usual = p.gradient_bytes
    if run.precision == "fp16" and p.gradient_bytes_fp16 is not None:
        usual = p.gradient_bytes_fp16
    if p.gradient_bytes_one_replica is None:
        return usual
    return np.where(np.asarray(run.dp) == 1, p.gradient_bytes_one_replica, usual)


def without_experts(run: Run, parameters: LayerParameters) -> Column:
    """A layer's parameters but its experts; norms and router are not split over tp."""
    return (parameters.attention + parameters.ffn) / run.tp + parameters.norms + parameters.router


def _tables_on_last_stage(run: Run) -> Column:
    """V*d tables on the last stage: the head, and with pp > 1 copies that are shared with stage 0.

    A tied head needs the embedding's weights on both stages; MTP modules embed tokens themselves. With
    DualPipe and DualPipeV the first and the last stage lie on the same rank and share one table (DeepSeek-AI
    2024, arXiv:2412.19437, section 3.2.3).
    """
    a, apart = run.architecture, (np.asarray(run.pp) > 1) & (run.stack.pipeline.placing == "loop")
    head = np.where(apart, 1, 0) if a.tied_embeddings else np.ones_like(apart, dtype=int)
    return head + np.where(apart & (a.mtp_layers > 0) & (not a.tied_embeddings), 1, 0)


def _gathered_for_pipeline(run: Run, local: LocalParameters) -> PerLayer:
    """What ZeRO-3 leaves gathered between micro-batches of a pipeline, if the stack does."""
    gathers = (np.asarray(run.zero) >= 3) & (np.asarray(run.pp) > 1)
    each = np.where(gathers, run.stack.memory.pipeline_gathered_bytes, 0.0)
    shared = scaled(add(local.layers, local.vocabulary), each * (np.asarray(run.state_shards) > 1))
    return add(shared, scaled(local.experts, each * (np.asarray(run.expert_shards) > 1)))


def _whole_gradients(run: Run, local: LocalParameters) -> PerLayer:
    """Gradients that are not sharded yet where they are reduced by rounds: g*P_loc*min(1, 2/v)*(1 - 1/z).

    Of the v chunks of a rank one accumulates, and the one before it is on its way: chunks are taken as equal.
    """
    chunks = np.minimum(1.0, WHOLE_CHUNKS / np.asarray(run.vpp, dtype=float))
    each = np.where(run.in_rounds, gradient_bytes(run) * chunks, 0.0)
    shared = scaled(add(local.layers, local.vocabulary), each * (1 - 1 / np.asarray(run.state_shards)))
    if run.architecture.moe is None:
        return shared
    return add(shared, scaled(local.experts, each * (1 - 1 / np.asarray(run.expert_shards))))


def _on_gpu(
    run: Run,
    local: LocalParameters,
    weights: Column = 0.0,
    table_weights: Column = 0.0,
    gradients: Column = 0.0,
    optimizer: Column = 0.0,
) -> PerLayer:
    """Bytes of the local parameters after ZeRO: dense ones over dp*cp, experts over their own replicas."""

    def each(group: Column, weights: Column) -> Column:
        return zero_bytes(1, run.zero, group, weights=weights, gradients=gradients, optimizer=optimizer)

    group = run.state_shards
    dense = each(group, weights)
    tables = dense if table_weights is weights else each(group, table_weights)
    shared = add(scaled(local.layers, dense), scaled(local.vocabulary, tables))
    if run.architecture.moe is None:
        return shared
    return add(shared, scaled(local.experts, each(run.expert_shards, weights)))
