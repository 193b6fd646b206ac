"""FLOPs per token: conventions, special attention, recompute."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from costmodel.cards import card_names, load_card
from costmodel.flops import (
    attention_span,
    core_flops,
    core_share,
    flops_6nd,
    forward_flops_2n,
    forward_flops_per_token,
    head_flops,
    layer_flops,
    model_flops_per_token,
    module_flops,
    mtp_flops,
    recompute_factor,
    recomputed_flops_per_token,
)
from costmodel.parameters import active_parameters, embedding_parameters

SEQ = st.integers(min_value=1, max_value=1 << 20)


@pytest.mark.parametrize(
    ("name", "seq_len", "tokens_per_s", "tflops"),
    [
        ("deepseek-v3", 4096, 6288, 1635),
        ("qwen-3-30b-a3b", 4096, 44544, 1029),
        ("llama-3-70b", 4096, 4819, 2083),
    ],
)
def test_model_flops_are_what_megatron_bridge_reports(
    name: str, seq_len: int, tokens_per_s: float, tflops: float
) -> None:
    # NVIDIA Megatron-Bridge performance summary, containers 26.08 and 26.06: tokens/s and TFLOP/s a GPU.
    assert model_flops_per_token(load_card(name), seq_len) * tokens_per_s / 1e12 == pytest.approx(
        tflops, rel=0.005
    )


def test_short_sequences_cost_six_flops_a_parameter() -> None:
    llama = load_card("llama-2-70b")
    met = active_parameters(llama) - embedding_parameters(llama)
    assert model_flops_per_token(llama, 1) == pytest.approx(flops_6nd(met, 1), rel=1e-3)


def test_a_moe_token_pays_for_the_experts_it_meets() -> None:
    mixtral = load_card("mixtral-8x7b")
    met = active_parameters(mixtral) - embedding_parameters(mixtral)
    assert model_flops_per_token(mixtral, 1) == pytest.approx(flops_6nd(met, 1), rel=1e-3)


def test_causal_attention_does_half_the_work() -> None:
    llama = load_card("llama-7b")
    assert core_flops(llama, 4096) * 2 == core_flops(llama, 4096, causal=False) == 4 * 4096 * 4096


def test_grouped_queries_save_parameters_but_no_attention_flops() -> None:
    gqa = load_card("llama-2-70b")
    mha = gqa.model_copy(update={"kv_heads": gqa.heads})
    assert core_flops(gqa, 4096) == core_flops(mha, 4096)
    assert layer_flops(gqa, "dense", 4096).projections < layer_flops(mha, "dense", 4096).projections


def test_latent_attention_scores_are_wider_than_its_values() -> None:
    v3 = load_card("deepseek-v3")
    assert core_flops(v3, 4096, causal=False) == 2 * 4096 * 128 * ((128 + 64) + 128)


def test_a_window_shorter_than_the_sequence_cuts_the_span() -> None:
    # 8 tokens, window 2: rows see about 1, 2, 2, ... keys, on average w - w^2/(2S).
    assert attention_span(8, window=2) == pytest.approx(1.75)
    assert attention_span(8, window=2, causal=False) == 2


@given(SEQ)
def test_a_window_as_long_as_the_sequence_changes_nothing(seq_len: int) -> None:
    assert attention_span(seq_len, window=seq_len) == attention_span(seq_len) == seq_len / 2


@given(SEQ, st.integers(min_value=1, max_value=1 << 20))
def test_a_window_never_adds_work(seq_len: int, window: int) -> None:
    assert attention_span(seq_len, window=window) <= attention_span(seq_len)


def test_only_the_sliding_half_of_gemma_2_is_cut() -> None:
    gemma = load_card("gemma-2-9b")
    full = gemma.model_copy(update={"sliding_window": None, "sliding_layers": 0})
    window = gemma.model_copy(update={"sliding_layers": gemma.layers})
    mean = (core_flops(full, 32768) + core_flops(window, 32768)) / 2
    assert core_flops(gemma, 32768) == pytest.approx(mean)


def test_a_tied_head_is_still_computed() -> None:
    gemma = load_card("gemma-2-9b")
    untied = gemma.model_copy(update={"tied_embeddings": False})
    assert forward_flops_per_token(gemma, 4096) == forward_flops_per_token(untied, 4096)


def test_multi_token_prediction_is_work_and_counts() -> None:
    v3 = load_card("deepseek-v3")
    without = v3.model_copy(update={"mtp_layers": 0})
    extra = forward_flops_per_token(v3, 4096) - forward_flops_per_token(without, 4096)
    layer = layer_flops(v3, "moe", 4096).total
    assert extra == mtp_flops(v3, 4096) == layer + 2 * (2 * 7168) * 7168 + head_flops(v3)
    assert mtp_flops(without, 4096) == 0


@pytest.mark.parametrize("name", card_names())
def test_flops_of_columns_are_those_of_their_entries(name: str) -> None:
    card, lengths = load_card(name), [1024, 4096, 131072]
    columns = model_flops_per_token(card, np.array(lengths))
    assert columns == pytest.approx([model_flops_per_token(card, length) for length in lengths])


def test_the_gate_of_shared_experts_is_one_more_column_of_the_router() -> None:
    v2 = load_card("deepseek-v2")
    assert v2.moe
    gated = v2.model_copy(update={"moe": v2.moe.model_copy(update={"shared_expert_gate": True})})
    gate = layer_flops(gated, "moe", 4096).ffn - layer_flops(v2, "moe", 4096).ffn
    assert gate * v2.moe.experts == layer_flops(v2, "moe", 4096).router


def test_full_recompute_repeats_the_layers_and_nothing_else() -> None:
    v3 = load_card("deepseek-v3")
    layers = forward_flops_per_token(v3, 4096) - head_flops(v3) - mtp_flops(v3, 4096)
    assert recomputed_flops_per_token(v3, 4096, (), {"dense": 3, "moe": 58}) == pytest.approx(layers)
    assert recomputed_flops_per_token(v3, 4096, (), {}) == 0


def test_selective_recompute_repeats_its_modules_in_layers_that_are_not_repeated_whole() -> None:
    llama = load_card("llama-7b")
    layer = layer_flops(llama, "dense", 4096)
    executed = recomputed_flops_per_token(llama, 4096, ("core_attn",), {"dense": 8})
    assert executed == pytest.approx(8 * layer.total + 24 * layer.core)


def test_modules_that_lie_in_one_another_are_repeated_once() -> None:
    v3 = load_card("deepseek-v3")
    moe = recomputed_flops_per_token(v3, 4096, ("moe",), {})
    assert recomputed_flops_per_token(v3, 4096, ("shared_experts", "moe"), {}) == moe


def test_per_operator_checkpointing_repeats_a_share_of_every_layer() -> None:
    llama = load_card("llama-7b")
    executed = recomputed_flops_per_token(llama, 4096, ("per_op",), {}, per_op_share=0.5)
    assert executed == pytest.approx(0.5 * 32 * layer_flops(llama, "dense", 4096).total)
    assert recomputed_flops_per_token(llama, 4096, (), {}, per_op_share=0.5) == 0


def test_modules_of_a_moe_layer_are_those_megatron_names() -> None:
    v3 = load_card("deepseek-v3")
    moe, dense = layer_flops(v3, "moe", 4096), layer_flops(v3, "dense", 4096)
    assert module_flops(moe, v3, "moe") == moe.ffn + moe.router + moe.experts
    assert module_flops(moe, v3, "shared_experts") == moe.ffn
    assert module_flops(moe, v3, "mlp") == 0
    assert module_flops(dense, v3, "mlp") == dense.ffn
    assert module_flops(dense, v3, "moe") == module_flops(dense, v3, "shared_experts") == 0
    assert module_flops(moe, v3, "mla_up_proj") == 2 * (1536 * 128 * 192 + 512 * 128 * 256)
    assert module_flops(moe, v3, "layernorm") == module_flops(moe, load_card("llama-7b"), "mla_up_proj") == 0


def test_full_recompute_costs_a_third_more() -> None:
    assert recompute_factor(1) == pytest.approx(4 / 3)
    assert recompute_factor(0) == 1


@given(st.floats(1e6, 1e13), st.integers(1, 200), SEQ, st.integers(64, 32768))
def test_the_attention_share_is_a_share(parameters: float, layers: int, seq_len: int, width: int) -> None:
    share = core_share(parameters, layers, seq_len, width)
    total = forward_flops_2n(parameters, layers, seq_len, width)
    assert 0 < share < 1
    assert share * total == pytest.approx(4 * layers * seq_len * width, rel=1e-4)


def test_a_dense_model_has_no_moe_layer_to_compute() -> None:
    with pytest.raises(ValueError, match="no MoE layers"):
        layer_flops(load_card("llama-7b"), "moe", 4096)
