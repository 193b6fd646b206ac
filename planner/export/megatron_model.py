"""The model's shapes in Megatron-LM's argument names."""

from __future__ import annotations

from planner.export.job import Job
from planner.export.refusal import CannotExport

Value = bool | int | float | str | list[str]
Settings = dict[str, Value]
"""Argument (underscores for the flag's hyphens) to value; True is a flag without a value."""

USUAL_NORMS = 2
"""Before attention and before the FFN."""


def model_settings(job: Job, target: str) -> Settings:
    """Every shape of the architecture. Raises `CannotExport` for what Megatron-Core's GPT model has not."""
    a = job.architecture
    settings: Settings = {
        "num_layers": a.layers,
        "hidden_size": a.hidden,
        "ffn_hidden_size": a.ffn,
        "num_attention_heads": a.heads,
        "seq_length": job.seq_len,
        "max_position_embeddings": max(a.learned_positions, job.seq_len),
        "vocab_size": a.vocab,
        "make_vocab_size_divisible_by": job.stack.memory.vocab_multiple,
    }
    if a.norms_per_layer != USUAL_NORMS:
        raise CannotExport(target, "norms per layer", a.norms_per_layer, "its layers have two")
    settings |= attention(job, target) | positions(job, target) | biases(job, target)
    if a.norm == "rms":
        settings["normalization"] = "RMSNorm"
    if a.gated_mlp:
        settings["swiglu"] = True
    if not a.tied_embeddings:
        settings["untie_embeddings_and_output_weights"] = True
    if a.mtp_layers:
        settings["mtp_num_layers"] = a.mtp_layers
    # Megatron's default is a dropout of 0.1, which the estimate of such a profile does not keep masks for.
    if not job.stack.memory.dropout:
        settings |= {"attention_dropout": 0.0, "hidden_dropout": 0.0}
    return settings


def attention(job: Job, target: str) -> Settings:
    """Heads, or the ranks and widths of latent attention; norms, sinks and windows."""
    a, settings = job.architecture, Settings()
    if a.mla is not None:
        settings |= {
            "multi_latent_attention": True,
            "kv_lora_rank": a.mla.kv_lora,
            "qk_head_dim": a.mla.qk_nope,
            "qk_pos_emb_head_dim": a.mla.qk_rope,
            "v_head_dim": a.mla.v_dim,
            # DeepSeek normalises the compressed queries and keys; without it they stay as they are.
            "qk_layernorm": True,
        }
        if a.mla.q_lora:
            settings["q_lora_rank"] = a.mla.q_lora
    else:
        settings["kv_channels"] = a.head_dim
        if a.kv_heads != a.heads:
            settings |= {"group_query_attention": True, "num_query_groups": a.kv_heads}
    if a.qk_norm:
        settings["qk_layernorm"] = True
    if a.attention_sinks:
        settings["softmax_type"] = "learnable"
    return settings | window(job, target)


def window(job: Job, target: str) -> Settings:
    """A sliding window in all layers, or in all but every n-th."""
    a = job.architecture
    if a.sliding_window is None or not a.sliding_layers:
        return {}
    if a.chunked_window:
        raise CannotExport(target, "chunked attention of", f"{a.sliding_window} tokens", "its window slides")
    # Megatron's window counts tokens to the left of the current one.
    settings: Settings = {"window_size": f"{a.sliding_window - 1},0"}
    whole = a.layers - a.sliding_layers
    if whole:
        every = -(-a.layers // whole)
        if a.layers // every != whole:
            raise CannotExport(
                target,
                "windows in",
                f"{a.sliding_layers} of {a.layers} layers",
                "it leaves them out of every n-th layer",
            )
        settings["window_attn_skip_freq"] = every
    return settings


def positions(job: Job, target: str) -> Settings:
    """Rotary embeddings, or a learned table. The plan does not know the rotary base."""
    a = job.architecture
    if not a.learned_positions:
        return {"position_embedding_type": "rope"}
    if a.mtp_layers:
        raise CannotExport(
            target, "multi-token prediction modules:", a.mtp_layers, "they need rotary positions"
        )
    if job.seq_len > a.learned_positions:
        raise CannotExport(
            target, "sequences of", job.seq_len, f"the table of positions has {a.learned_positions} rows"
        )
    return {"position_embedding_type": "learned_absolute"}


def biases(job: Job, target: str) -> Settings:
    """All linear layers have one (Megatron's default), none, or only queries, keys and values."""
    a = job.architecture
    qkv = a.qkv_bias and a.mla is None
    if a.output_bias and a.mlp_bias and (qkv or a.mla is not None):
        return {}
    if a.output_bias or a.mlp_bias:
        found = f"on output {a.output_bias}, FFN {a.mlp_bias}, queries, keys and values {qkv}"
        raise CannotExport(target, "biases", found, "it has them on all linear layers, on none, or on QKV")
    settings: Settings = {"disable_bias_linear": True}
    return settings | {"add_qkv_bias": True} if qkv else settings


def experts(job: Job, target: str) -> Settings:
    """Experts, which layers have them, how they are spread, and how tokens reach them."""
    d, moe = job.decisions, job.architecture.moe
    if moe is None:
        return {}
    if d.tp > 1 and not d.sequence_parallel:
        raise CannotExport(
            target, "experts with tensor parallelism", f"tp = {d.tp}", "it needs sequence parallelism too"
        )
    settings: Settings = {
        "num_experts": moe.experts,
        "moe_router_topk": moe.top_k,
        "moe_ffn_hidden_size": moe.moe_ffn,
        "moe_layer_freq": layer_frequency(job),
        "expert_model_parallel_size": d.ep,
        "expert_tensor_parallel_size": d.etp,
        "moe_grouped_gemm": True,
        "moe_permute_fusion": True,
    }
    if moe.shared_expert_ffn:
        settings["moe_shared_expert_intermediate_size"] = moe.shared_expert_ffn
    if moe.shared_expert_gate:
        settings["moe_shared_expert_gate"] = True
    return settings | dispatch(job)


def layer_frequency(job: Job) -> str:
    """1 where every layer is MoE, else a list expression: ([0]*1+[1]*59)."""
    pattern = [int(kind == "moe") for kind in job.architecture.pattern()]
    if all(pattern):
        return "1"
    runs: list[tuple[int, int]] = []
    for value in pattern:
        runs = (
            [*runs[:-1], (value, runs[-1][1] + 1)] if runs and runs[-1][0] == value else [*runs, (value, 1)]
        )
    return f"({'+'.join(f'[{value}]*{number}' for value, number in runs)})"


def dispatch(job: Job) -> Settings:
    """The dispatcher that the plan was priced with. DeepEP needs ranks to exchange with."""
    d, profile = job.decisions, job.stack.expert_parallel
    settings: Settings = {"moe_token_dispatcher_type": "alltoall"}
    if profile.dispatcher == "deepep" and d.ep * d.etp > 1:
        settings = {
            "moe_token_dispatcher_type": "flex",
            "moe_flex_dispatcher_backend": "deepep",
            "moe_router_dtype": "fp32",
        }
    return settings
