"""Parameter counts against the published model classes, to the last weight."""

from __future__ import annotations

from typing import Any

import pytest

from costmodel.architecture import Architecture
from costmodel.cards import load_card
from costmodel.parameters import (
    active_parameters,
    active_share,
    embedding_parameters,
    embedding_share,
    head_parameters,
    layer_parameters,
    mtp_parameters,
    total_parameters,
)

# Totals of the Hugging Face model classes (transformers 5.24.0, instantiated without weights).
CARD_TOTALS = {
    "llama-7b": 6_738_415_616,
    "llama-2-7b": 6_738_415_616,
    "llama-3-8b": 8_030_261_248,
    "llama-3-70b": 70_553_706_496,
    "llama-3.1-405b": 405_853_388_800,
    "mistral-7b": 7_241_732_096,
    "mixtral-8x7b": 46_702_792_704,
    "mixtral-8x22b": 140_620_634_112,
    "qwen-2.5-72b": 72_706_203_648,
    "qwen-3-30b-a3b": 30_532_122_624,
    "qwen-3-235b-a22b": 235_093_634_560,
    "deepseek-v2-lite": 15_706_484_224,
    "deepseek-v2": 235_741_434_880,
    "deepseek-v3": 671_026_404_352,
    "gemma-2-9b": 9_241_705_984,
    "gpt-oss-20b": 20_914_757_184,
    "gpt-oss-120b": 116_829_156_672,
}

BIASED: dict[str, Any] = {
    "qkv_bias": True,
    "output_bias": True,
    "mlp_bias": True,
    "norm": "layer",
    "gated_mlp": False,
}


def shape(
    layers: int, hidden: int, ffn: int, heads: int, kv: int, size: int, vocab: int, **rest: Any
) -> Architecture:
    fields = {
        "layers": layers,
        "hidden": hidden,
        "ffn": ffn,
        "heads": heads,
        "kv_heads": kv,
        "head_dim": size,
    }
    return Architecture(name="test", vocab=vocab, **fields, **rest)


QWEN_MOE: dict[str, Any] = {
    "experts": 60,
    "top_k": 4,
    "moe_ffn": 1408,
    "shared_expert_ffn": 5632,
    "shared_expert_gate": True,
}

SHAPE_TOTALS = {
    "gpt2-xl": (
        shape(48, 1600, 6400, 25, 25, 64, 50257, tied_embeddings=True, learned_positions=1024, **BIASED),
        1_557_611_200,
    ),
    "gpt-neox-20b": (shape(44, 6144, 24576, 64, 64, 96, 50432, **BIASED), 20_554_567_680),
    "qwen-1.5-moe-a2.7b": (
        shape(24, 2048, 5632, 16, 16, 128, 151936, qkv_bias=True, moe=QWEN_MOE),
        14_315_784_192,
    ),
    "qwen-3-0.6b": (
        shape(28, 1024, 3072, 16, 8, 128, 151936, qk_norm=True, tied_embeddings=True),
        596_049_920,
    ),
    "qwen-3-8b": (shape(36, 4096, 12288, 32, 8, 128, 151936, qk_norm=True), 8_190_735_360),
    "qwen-3-32b": (shape(64, 5120, 25600, 64, 8, 128, 151936, qk_norm=True), 32_762_123_264),
    "gemma-3-27b": (
        shape(62, 5376, 21504, 32, 16, 128, 262208, tied_embeddings=True, norms_per_layer=4, qk_norm=True),
        27_009_346_304,
    ),
}


@pytest.mark.parametrize("name", CARD_TOTALS)
def test_a_card_has_exactly_the_parameters_of_the_published_model(name: str) -> None:
    assert total_parameters(load_card(name)) == CARD_TOTALS[name]


@pytest.mark.parametrize("name", SHAPE_TOTALS)
def test_architectures_without_a_card_count_exactly_too(name: str) -> None:
    architecture, parameters = SHAPE_TOTALS[name]
    assert total_parameters(architecture) == parameters


@pytest.mark.parametrize(
    ("name", "billions"),
    [
        ("qwen-3-30b-a3b", 3.35),
        ("qwen-3-235b-a22b", 22.19),
        ("mixtral-8x7b", 12.88),
        ("mixtral-8x22b", 39.15),
        ("deepseek-v3", 37.55),
        ("gpt-oss-20b", 4.19),
        ("gpt-oss-120b", 5.71),
    ],
)
def test_active_parameters_leave_out_the_experts_a_token_is_not_routed_to(name: str, billions: float) -> None:
    assert round(active_parameters(load_card(name)) / 1e9, 2) == billions


def test_every_parameter_of_a_dense_model_is_active() -> None:
    llama = load_card("llama-2-70b")
    assert active_parameters(llama) == total_parameters(llama)
    assert active_share(llama) == 1


def test_gpt3_has_the_175_billion_parameters_of_its_name() -> None:
    gpt3 = load_card("gpt3-175b")
    assert total_parameters(gpt3) == pytest.approx(174.6e9, rel=1e-4)
    assert head_parameters(gpt3) == 0
    assert embedding_parameters(gpt3) == (50257 + 2048) * 12288


def test_the_stand_in_moe_has_about_1800_billion_parameters_and_220_active() -> None:
    card = load_card("moe-1.8t")
    assert total_parameters(card) == pytest.approx(1.8e12, rel=0.01)
    assert active_parameters(card) == pytest.approx(220e9, rel=0.01)


def test_multi_token_prediction_is_not_in_the_total_of_deepseek_v3() -> None:
    # 14B in the paper: 11.6B of its own weights, the rest a copy of embedding and head.
    v3 = load_card("deepseek-v3")
    layer, hidden = layer_parameters(v3, "moe").total, v3.hidden
    assert mtp_parameters(v3) == layer + 2 * hidden * hidden + 3 * hidden
    assert mtp_parameters(v3) == pytest.approx(11.6e9, rel=0.005)
    assert total_parameters(v3) == total_parameters(v3.model_copy(update={"mtp_layers": 0}))
    assert mtp_parameters(load_card("deepseek-v2")) == 0


def test_the_parts_of_a_layer_sum_to_the_model() -> None:
    v3 = load_card("deepseek-v3")
    layers = 3 * layer_parameters(v3, "dense").total + 58 * layer_parameters(v3, "moe").total
    rest = embedding_parameters(v3) + head_parameters(v3) + v3.hidden
    assert layers + rest == total_parameters(v3)


def test_shared_experts_belong_to_the_ffn_and_routed_ones_to_the_experts() -> None:
    layer = layer_parameters(load_card("deepseek-v2"), "moe")
    expert = 3 * 5120 * 1536
    assert (layer.ffn, layer.experts, layer.router) == (2 * expert, 160 * expert, 160 * 5120)


def test_a_large_vocabulary_on_a_small_model_takes_a_large_share() -> None:
    assert embedding_share(load_card("llama-3-8b")) == pytest.approx(0.131, abs=0.001)
    assert embedding_share(load_card("llama-3.1-405b")) == pytest.approx(0.010, abs=0.001)


def test_a_dense_model_has_no_moe_layer_to_count() -> None:
    with pytest.raises(ValueError, match="no MoE layers"):
        layer_parameters(load_card("llama-7b"), "moe")
