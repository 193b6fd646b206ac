"""Mixture of experts: routed tokens, expert GEMMs, permutation, dispatch, and what shared experts add."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from costmodel.architecture import MixtureOfExperts
from costmodel.collectives import usable_domain
from costmodel.elementwise import activation_time, memory_rate, quantise_time, stream_time, token_shard
from costmodel.kernels import gemm_rate, grouped_backward, grouped_forward
from costmodel.linears import gate_count, linear
from costmodel.passes import Passes, together
from costmodel.run import Column, Run
from costmodel.stage import Array


def own_tokens(run: Run) -> Column:
    """Tokens of a micro-batch that one rank routes: b*S/(cp*tp)."""
    return run.tokens / run.tp


def imbalance(run: Run) -> Array:
    """Tokens of the fullest expert rank over the mean; nothing to balance without expert parallelism."""
    return np.where(np.greater(run.ep, 1), run.stack.expert_parallel.imbalance, 1.0)


def routed_tokens(run: Run, moe: MixtureOfExperts) -> Column:
    """Copies of tokens that the experts of one rank compute: b*S/(cp*tp) * k * etp * imbalance.

    Each rank of an expert-tensor group works on the tokens of all etp ranks, with 1/etp of the width.
    """
    return own_tokens(run) * moe.top_k * run.etp * imbalance(run)


def local_experts(run: Run, moe: MixtureOfExperts) -> Column:
    """Experts on one rank: E/ep."""
    return moe.experts / run.ep


def expert_linears(run: Run, moe: MixtureOfExperts) -> Passes:
    """Grouped GEMMs of the routed experts: d -> u*f/etp -> d for each local expert.

    Tokens an expert: b*S/(cp*tp)*k*etp*ep/E when balanced.
    """
    dense = gemm_rate(run)
    rate = replace(dense, flops=dense.flops * run.stack.gemm.grouped)
    experts, hidden, width = local_experts(run, moe), run.architecture.hidden, moe.moe_ffn / run.etp
    tokens = routed_tokens(run, moe) / experts
    inner = gate_count(run) * width
    forward = grouped_forward(rate, experts, tokens, hidden, inner) + grouped_forward(
        rate, experts, tokens, width, hidden
    )
    backward = grouped_backward(rate, experts, tokens, hidden, inner) + grouped_backward(
        rate, experts, tokens, width, hidden
    )
    return Passes(forward, backward)


def router_time(run: Run, moe: MixtureOfExperts) -> Passes:
    """Router GEMM d -> E in BF16 on a rank's own tokens, softmax and top-k."""
    tokens = run.tokens / token_shard(run)
    logits = stream_time(run, run.stack.elementwise.router * tokens * moe.experts)
    return together(linear(run, tokens, run.architecture.hidden, moe.experts, "bf16"), Passes(logits, logits))


def expert_activation(run: Run, moe: MixtureOfExperts) -> Passes:
    """Activation of the routed experts; experts with biases and a clamped GLU run it unfused."""
    tokens, width = routed_tokens(run, moe), moe.moe_ffn / run.etp
    forward, backward = activation_time(run, tokens, width)
    factor = run.stack.elementwise.moe_factor
    if not run.architecture.mlp_bias:
        return Passes(factor * forward, factor * backward)
    unfused = run.stack.elementwise.biased_expert_passes * 2 * tokens * width / memory_rate(run)
    return Passes(factor * forward + unfused / 3, factor * backward + unfused * 2 / 3)


def expert_quantise(run: Run, moe: MixtureOfExperts) -> Passes:
    """FP8 and FP4: casting expert inputs d + f/etp forward, output gradients u*f/etp + d backward."""
    tokens, width = routed_tokens(run, moe), moe.moe_ffn / run.etp
    hidden = tokens * run.architecture.hidden
    forward = quantise_time(run, hidden + tokens * width)
    return Passes(forward, quantise_time(run, hidden + gate_count(run) * tokens * width))


def permute_time(run: Run, moe: MixtureOfExperts) -> Passes:
    """Sorting tokens by expert and back: passes over routed tokens x d x 2 bytes, each way."""
    counts = run.stack.elementwise
    extra = counts.permute_alltoall if run.stack.expert_parallel.dispatcher == "alltoall" else 0.0
    moved = (counts.permute_passes + extra) * 2 * routed_tokens(run, moe) * run.architecture.hidden
    seconds = moved / memory_rate(run)
    return Passes(seconds, seconds)


def dispatch_time(run: Run, moe: MixtureOfExperts) -> Array:
    """Seconds of one dispatch (or combine) all-to-all over the ep ranks, before overlap."""
    kind = run.stack.expert_parallel.dispatcher
    exchange = _alltoall(run, moe) if kind == "alltoall" else _deepep(run, moe)
    exchange = exchange * imbalance(run) + run.stack.expert_parallel.latency
    return np.where(np.greater(run.ep, 1), exchange, 0.0) + _expert_tensor_time(run, moe)


def _ranks_in_domain(run: Run) -> Array:
    """Ranks of an expert group that share an NVLink domain: min(ep, domain/etp)."""
    return np.minimum(run.ep, np.maximum(usable_domain(run) / run.etp, 1.0))


def _alltoall(run: Run, moe: MixtureOfExperts) -> Array:
    """A copy for each expert: V = b*S/(cp*tp)*k*d*2 bytes, the larger of its NVLink and NIC parts.

    t = max(V*(g - 1)/ep / (e_nv*NVLink), V*(ep - g)/ep / min(e_nic*NIC, cap)), g ranks a domain.
    """
    stack, near = run.stack.expert_parallel, _ranks_in_domain(run)
    sent = own_tokens(run) * moe.top_k * run.architecture.hidden * 2.0
    inside = sent * (near - 1) / run.ep / (stack.alltoall_nvlink * run.fabric.nvlink)
    across = sent * (run.ep - near) / run.ep / min(stack.alltoall_nic * run.fabric.nic, stack.nic_cap)
    return np.maximum(inside, across)


def _deepep(run: Run, moe: MixtureOfExperts) -> Array:
    """A copy for each distinct rank (NVLink) and node (network) that a token's k experts lie on.

    Expected distinct among n: n*(1 - (1 - 1/n)^k), of which (n - 1)/n are not the sender itself.
    """
    stack = run.stack.expert_parallel
    token = own_tokens(run) * run.architecture.hidden * 2.0
    nodes = run.ep / _ranks_in_domain(run)
    speed = stack.deepep_nvlink.of(run.gpu.generation) * run.fabric.nvlink
    inside = token * _distinct(run.ep, moe.top_k) / speed
    across = token * _distinct(nodes, moe.top_k) / min(stack.deepep_nic * run.fabric.nic, stack.nic_cap)
    return np.maximum(inside, across)


def _distinct(places: Column, draws: int) -> Array:
    """Expected distinct places other than one's own that `draws` random choices hit."""
    chance = 1.0 / np.asarray(places, dtype=float)
    return (1 - (1 - chance) ** draws) / chance * (1 - chance)


def _expert_tensor_time(run: Run, moe: MixtureOfExperts) -> Array:
    """All-gather (or reduce-scatter) of routed tokens over etp ranks: n*d*2*(etp - 1)/etp bytes."""
    stack = run.stack.expert_parallel
    sent = routed_tokens(run, moe) * run.architecture.hidden * 2.0 * (run.etp - 1) / run.etp
    return np.asarray(sent / (stack.alltoall_nvlink * run.fabric.nvlink))
