"""Textbook closed forms: identities and limits that the handbook's examples do not reach."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from costmodel.closed_form import (
    activations,
    alpha_beta,
    bubble,
    kv_cache,
    overlap,
    plan_arithmetic,
    states,
    volumes,
)

RANKS = st.integers(1, 4096)
BYTES = st.floats(1.0, 1e13)


@given(BYTES, RANKS)
def test_one_rank_sends_nothing_and_many_never_more_than_the_limit(buffer: float, ranks: int) -> None:
    assert volumes.all_reduce_bytes(buffer, 1) == 0
    assert volumes.all_reduce_bytes(buffer, ranks) <= volumes.tree_all_reduce_bytes(buffer)


@given(BYTES, RANKS)
def test_an_all_reduce_is_a_reduce_scatter_and_an_all_gather(buffer: float, ranks: int) -> None:
    assert volumes.all_reduce_bytes(buffer, ranks) == 2 * volumes.ring_bytes(buffer, ranks)


@given(BYTES, RANKS)
def test_zero_1_moves_what_data_parallelism_moves(parameters: float, dp: int) -> None:
    assert volumes.zero1_bytes(parameters, dp) == volumes.data_parallel_bytes(parameters, dp)
    assert volumes.zero1_bytes(parameters, dp, 4) == pytest.approx(1.5 * volumes.zero1_bytes(parameters, dp))


@given(BYTES, st.integers(2, 4096), st.integers(1, 256))
def test_zero_3_pays_for_every_micro_batch(parameters: float, dp: int, micro_batches: int) -> None:
    one, many = (volumes.zero3_bytes(parameters, dp, m) for m in (1, micro_batches))
    kept = volumes.zero3_bytes(parameters, dp, micro_batches, gathers=1)
    assert one == pytest.approx(1.5 * volumes.data_parallel_bytes(parameters, dp))
    assert many == pytest.approx(one * (4 * micro_batches + 2) / 6)
    assert kept < many


def test_full_recompute_makes_tensor_parallelism_half_as_much_again() -> None:
    plain = volumes.tensor_parallel_bytes(4096, 8192, 8)
    assert volumes.tensor_parallel_bytes(4096, 8192, 8, all_reduces=6) == 1.5 * plain


def test_ulysses_moves_less_than_a_ring_of_keys_and_values_without_grouped_queries() -> None:
    # MHA, d_q = d_kv = d: ring (c-1)*4*T/c*d, Ulysses (c-1)/c * 8*T/c*d.
    ring = volumes.ring_attention_bytes(32768, 8192, 8)
    assert volumes.ulysses_bytes(32768, 8192, 8192, 8) == pytest.approx(ring * 2 / 8)


def test_two_levels_beat_one_flat_ring_over_the_network() -> None:
    flat = alpha_beta.all_reduce_seconds(14e9, 64, 50e9)
    levels = alpha_beta.hierarchical_all_reduce_seconds(14e9, 8, 8, 150e9, 50e9)
    assert levels == pytest.approx(2 * 7 / 8 * 14e9 / 150e9 + 2 * 7 / 8 * 14e9 / 8 / 50e9)
    assert levels < flat


def test_latency_grows_with_ranks_in_a_ring_and_with_their_logarithm_in_a_tree() -> None:
    assert alpha_beta.all_reduce_seconds(0, 64, 1e9, 5e-6) == pytest.approx(126 * 5e-6)
    assert alpha_beta.ring_seconds(0, 64, 1e9, 5e-6) == pytest.approx(63 * 5e-6)
    assert alpha_beta.tree_all_reduce_seconds(0, 64, 1e9, 5e-6) == pytest.approx(12 * 5e-6)
    assert alpha_beta.transfer_seconds(1e9, 1e9, 5e-6) == pytest.approx(1 + 5e-6)


@given(st.floats(1e6, 1e13), st.integers(1, 4096))
def test_a_higher_zero_stage_never_holds_more(parameters: float, group: int) -> None:
    held = states.zero_bytes(parameters, np.arange(4), group)
    assert (np.diff(held) <= 0).all()
    assert held[0] == pytest.approx(states.state_bytes(parameters))
    assert held[3] == pytest.approx(states.state_bytes(parameters) / group)


def test_the_optimizer_ledger() -> None:
    assert states.optimizer_bytes() == 12
    assert states.optimizer_bytes(first=2, second=2) == 8
    assert states.state_bytes(1, gradients=4) == 18


def test_experts_are_divided_by_their_own_parallelism() -> None:
    assert states.local_parameters(64.0, 640.0, tp=4, pp=2, ep=8, etp=1) == 64 / 8 + 640 / 16


def test_selective_recompute_drops_the_quadratic_term() -> None:
    tokens, seq_len, hidden, heads = 2048, 2048, 12288, 96
    full = activations.gpt_layer_bytes(tokens, seq_len, hidden, heads)
    selective = activations.gpt_layer_bytes(tokens, seq_len, hidden, heads, scores=False)
    assert selective == 34 * tokens * hidden
    assert full - selective == activations.gpt_score_bytes(tokens, seq_len, heads)


@given(st.sampled_from([1, 2, 4, 8]))
def test_sequence_parallelism_divides_everything(tp: int) -> None:
    whole = activations.gpt_layer_bytes(4096, 4096, 8192, 64)
    assert activations.gpt_layer_bytes_sequence_parallel(4096, 4096, 8192, 64, tp) == pytest.approx(
        whole / tp
    )
    assert activations.gpt_layer_bytes(4096, 4096, 8192, 64, tp) >= whole / tp
    shape = (4096, 8192, 28672, 64, 8192, 1024)
    llama = activations.llama_layer_bytes(*shape)
    assert activations.llama_layer_bytes(*shape, tp) == pytest.approx(llama / tp)
    unsplit = 8 * 4096 * 8192 * (1 - 1 / tp)
    plain = activations.llama_layer_bytes(*shape, tp, sequence_parallel=False)
    assert plain == pytest.approx(llama / tp + unsplit)


def test_a_moe_layer_with_one_expert_of_the_same_width_keeps_more_than_the_dense_one() -> None:
    # The token's copy goes in and out of the expert: 4d more, and 4 bytes of routing.
    assert activations.moe_ffn_bytes(1, 4096, 14336, 1, 1) == 6 * 14336 + 4 * 4096 + 4


def test_the_first_stage_keeps_the_most_micro_batches() -> None:
    kept = activations.microbatches_in_flight(4, np.arange(4), 16)
    assert kept.tolist() == [4, 3, 2, 1]
    assert activations.microbatches_in_flight(8, 0, 4) == 4
    assert activations.interleaving_factor(4, 2) == 1.375
    assert activations.interleaving_factor(1, 2) == 1


def test_logits_of_a_large_vocabulary_take_gigabytes() -> None:
    assert activations.logits_bytes(8192, 128256, 2) == 6 * 8192 * 128256 / 2


def test_interleaving_divides_the_bubble() -> None:
    assert bubble.bubble_overhead(8, 32, 4) == bubble.bubble_overhead(8, 32) / 4
    assert bubble.bubble_overhead(1, 32) == bubble.bubble_share(1, 32) == 0


@given(st.integers(1, 64), st.integers(1, 512), st.integers(1, 8))
def test_the_share_of_a_bubble_follows_from_its_overhead(pp: int, micro_batches: int, vpp: int) -> None:
    overhead = bubble.bubble_overhead(pp, micro_batches, vpp)
    assert bubble.bubble_share(pp, micro_batches, vpp) == pytest.approx(overhead / (1 + overhead))


def test_cache_stops_shrinking_when_heads_run_out() -> None:
    assert kv_cache.kv_bytes_per_gpu(64e9, np.array([1, 8, 16]), 8).tolist() == [64e9, 8e9, 8e9]


def test_mfu_and_throughput_are_each_others_inverse() -> None:
    rate = plan_arithmetic.tokens_per_second(256, 989.5e12, 0.45, 420e9)
    assert plan_arithmetic.mfu(rate, 420e9, 256, 989.5e12) == pytest.approx(0.45)


def test_the_gpus_for_a_deadline_meet_it_and_one_fewer_does_not() -> None:
    job = (1.26e24, 989.5e12, 0.4)
    gpus = plan_arithmetic.gpus_for_deadline(job[0], 60, *job[1:])
    assert plan_arithmetic.training_days(job[0], gpus, *job[1:]) <= 60
    assert plan_arithmetic.training_days(job[0], gpus - 1, *job[1:]) > 60


def test_a_kernel_past_the_ridge_runs_at_peak() -> None:
    assert plan_arithmetic.attainable_flops(1000, 3.35e12, 989.5e12) == 989.5e12


def test_hidden_communication_costs_nothing_and_expert_traffic_is_added() -> None:
    assert overlap.microbatch_seconds(2.0, 1.0, hidden_share=1) == 2
    assert overlap.microbatch_seconds(2.0, 1.0, hidden_share=0.25, expert_parallel=0.5) == 3.25
    assert overlap.step_seconds(2.0, 8, 4, 3, per_step=1.0) == 19


def test_at_the_critical_count_the_ring_takes_half_the_step() -> None:
    gpus = overlap.critical_gpus(150e9, 1000.0, 14e9)
    assert overlap.communication_share(1000 / gpus, 2 * 14e9 / 150e9) == pytest.approx(0.5)
