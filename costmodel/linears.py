"""GEMM time of the linear layers: projections of attention and of dense or shared FFNs."""

from __future__ import annotations

from costmodel.architecture import LatentAttention
from costmodel.elementwise import quantise_time, token_shard
from costmodel.kernels import gemm_rate, linear_backward, linear_forward
from costmodel.passes import Passes, together
from costmodel.run import Column, Run


def linear(run: Run, tokens: Column, inputs: Column, outputs: Column, precision: str | None = None) -> Passes:
    """Seconds of (tokens, inputs) x (inputs, outputs) forward, and of both its gradients backward."""
    rate = gemm_rate(run, precision)
    return Passes(
        linear_forward(rate, tokens, inputs, outputs), linear_backward(rate, tokens, inputs, outputs)
    )


def attention_linears(run: Run) -> Passes:
    """QKV and output projections: d -> (d_q + 2*d_kv)/tp and d_v/tp -> d."""
    arch = run.architecture
    output = linear(run, run.tokens, arch.v_width / run.tp, arch.hidden)
    if arch.mla:
        return together(latent_down(run, arch.mla), latent_up(run, arch.mla), output)
    width = arch.q_width + 2 * arch.kv_width
    return together(linear(run, run.tokens, arch.hidden, width / run.tp), output)


def latent_down(run: Run, mla: LatentAttention) -> Passes:
    """MLA's compressions d -> r_q and d -> r_kv + d_rope, whole on each rank's own tokens."""
    tokens = run.tokens / token_shard(run)
    keys = linear(run, tokens, run.architecture.hidden, mla.kv_lora + mla.qk_rope)
    if not mla.q_lora:
        return keys
    return together(keys, linear(run, tokens, run.architecture.hidden, mla.q_lora))


def latent_up(run: Run, mla: LatentAttention) -> Passes:
    """MLA's expansions r_q -> h*(d_nope + d_rope)/tp and r_kv -> h*(d_nope + d_v)/tp."""
    arch = run.architecture
    queries = linear(run, run.tokens, mla.q_lora or arch.hidden, arch.q_width / run.tp)
    width = arch.heads * (mla.qk_nope + mla.v_dim)
    return together(queries, linear(run, run.tokens, mla.kv_lora, width / run.tp))


def ffn_linears(run: Run, width: int) -> Passes:
    """A dense FFN (or the shared experts) of that width: d -> u*width/tp -> d, u = 2 if gated."""
    return together(ffn_input(run, width), ffn_output(run, width))


def ffn_input(run: Run, width: int) -> Passes:
    """First linear d -> u*width/tp, u = 2 if gated (gate and up in one GEMM)."""
    outputs = gate_count(run) * width / run.tp
    return linear(run, run.tokens, run.architecture.hidden, outputs)


def ffn_output(run: Run, width: int) -> Passes:
    """Second linear width/tp -> d."""
    return linear(run, run.tokens, width / run.tp, run.architecture.hidden)


def gate_count(run: Run) -> int:
    """Matrices in front of the activation: 2 gated, 1 plain."""
    return 2 if run.architecture.gated_mlp else 1


def attention_quantise(run: Run) -> Passes:
    """FP8 and FP4: casting inputs (the norm's output on its own tokens) and output gradients.

    Elements a token: d/tp + d_v/tp forward, (d_q + 2*d_kv)/tp + d/tp backward.
    """
    arch = run.architecture
    width = arch.q_width + 2 * arch.kv_width if not arch.mla else 2 * arch.q_width + arch.v_width
    hidden = run.tokens * arch.hidden / token_shard(run)
    forward = hidden + run.tokens * arch.v_width / run.tp
    return Passes(quantise_time(run, forward), quantise_time(run, hidden + run.tokens * width / run.tp))


def ffn_quantise(run: Run, width: int) -> Passes:
    """The same of an FFN: d/tp + width/tp forward, u*width/tp + d/tp backward."""
    hidden = run.tokens * run.architecture.hidden / token_shard(run)
    inner = run.tokens * width / run.tp
    return Passes(quantise_time(run, hidden + inner), quantise_time(run, hidden + gate_count(run) * inner))
