"""Claims about kernels: GEMMs, attention, elementwise work."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from time_runs import some_run

from costmodel.attention import attention_time, flash_flops, visible_tokens
from costmodel.elementwise import memory_rate, norm_time, quantise_time
from costmodel.kernels import gemm_rate, gemm_time, grouped_gemm_time, isolated_gemm_rate
from hardware.catalogue import load_accelerator

sizes = st.integers(1, 20_000)


def test_a_gemm_of_full_waves_reaches_its_efficiency() -> None:
    rate = gemm_rate(some_run())
    tiles_down, tiles_across, k = rate.sm_count, 8, 65536
    seconds = gemm_time(rate, 256 * tiles_down, 128 * tiles_across, k)
    flops = 2.0 * 256 * tiles_down * 128 * tiles_across * k
    assert flops / seconds == pytest.approx(rate.flops, rel=0.01)


def test_one_tile_more_than_a_wave_costs_a_second_wave() -> None:
    rate = replace(gemm_rate(some_run()), tile_penalty=1.0)
    rows = 256 * rate.sm_count // 4
    full, more = gemm_time(rate, rows, 512, 8192), gemm_time(rate, rows + 1, 512, 8192)
    assert more / full > 1.8


def test_h100_runs_a_large_gemm_alone_at_the_published_rate() -> None:
    gpu = load_accelerator("H100")
    seconds = gemm_time(isolated_gemm_rate(gpu), 8192, 8192, 8192)
    assert 650e12 < 2 * 8192.0**3 / seconds < 820e12


def test_thin_gemms_wait_for_memory() -> None:
    rate = gemm_rate(some_run())
    seconds = gemm_time(rate, 1, 16384, 16384) - rate.curve.t0
    assert seconds == pytest.approx(2 * 16384.0 * 16384 / rate.memory, rel=0.01)


@given(sizes, sizes, sizes)
def test_no_gemm_beats_the_peak_or_the_memory(m: int, n: int, k: int) -> None:
    rate = gemm_rate(some_run())
    seconds = gemm_time(rate, m, n, k)
    assert seconds >= 2.0 * m * n * k / load_accelerator("H100").peak_flops["bf16"]
    assert seconds >= 2.0 * (m * k + k * n + m * n) / load_accelerator("H100").memory.bandwidth


@given(sizes, sizes, sizes)
def test_a_faster_chip_is_never_slower(m: int, n: int, k: int) -> None:
    rate = gemm_rate(some_run())
    faster = replace(rate, flops=2 * rate.flops, memory=1.5 * rate.memory)
    assert gemm_time(faster, m, n, k) <= gemm_time(rate, m, n, k)


@given(st.integers(1, 64), sizes, st.integers(64, 8192))
def test_grouping_experts_is_never_slower_than_launching_each(experts: int, m: int, k: int) -> None:
    rate = gemm_rate(some_run())
    assert grouped_gemm_time(rate, experts, m, 4096, k) <= experts * gemm_time(rate, m, 4096, k) * (1 + 1e-9)


def test_gemm_times_of_a_column_are_those_of_its_rows() -> None:
    rate, tokens = gemm_rate(some_run()), np.array([1, 100, 4096, 50_000])
    column = gemm_time(rate, tokens, 8192, 1024)
    assert column.tolist() == [float(gemm_time(rate, int(t), 8192, 1024)) for t in tokens]


def test_fp8_gemms_run_at_the_measured_speed_up() -> None:
    bf16, fp8 = gemm_rate(some_run()), gemm_rate(some_run(), "fp8")
    assert fp8.flops / bf16.flops == pytest.approx(load_accelerator("H100").sustained.fp8_speedup)


def test_a_gpu_without_fp8_says_so() -> None:
    with pytest.raises(ValueError, match=r"fp8.*A100"):
        gemm_rate(some_run("A100-80"), "fp8")


def test_causal_attention_costs_half_of_the_square() -> None:
    run = some_run(seq_len=131072)
    arch = run.architecture
    square = 4 * arch.heads * arch.head_dim * 131072.0**2 / run.tp
    assert flash_flops(run) / square == pytest.approx(0.5, rel=0.01)


def test_a_sliding_window_as_long_as_the_sequence_is_no_window() -> None:
    run = some_run()
    wide = run.architecture.model_copy(update={"sliding_window": 4096, "sliding_layers": 80})
    assert visible_tokens(replace(run, architecture=wide)) == visible_tokens(run)


def test_a_sliding_window_never_shows_more_than_itself() -> None:
    run = some_run()
    narrow = run.architecture.model_copy(update={"sliding_window": 128, "sliding_layers": 80})
    assert 100 < visible_tokens(replace(run, architecture=narrow)) <= 128


def test_context_parallelism_splits_attention_but_for_the_diagonal() -> None:
    whole, split = some_run(seq_len=32768), some_run(seq_len=32768, cp=8)
    assert 1 / 8 < flash_flops(split) / flash_flops(whole) < 1.3 / 8


def test_attention_without_flash_is_slower_where_scores_do_not_fit_in_cache() -> None:
    run = some_run()
    stack = run.stack.attention.model_copy(update={"kernel": "unfused"})
    old = replace(run, stack=run.stack.model_copy(update={"attention": stack}))
    assert sum(attention_time(old)) > 3 * sum(attention_time(run))


def test_backward_attention_takes_at_least_twice_the_forward() -> None:
    forward, backward = attention_time(some_run(seq_len=32768))
    assert 2 < backward / forward < 5


def test_norms_move_twenty_odd_bytes_an_element_at_hbm_speed() -> None:
    run = some_run()
    forward, _ = norm_time(run)
    moved = forward * memory_rate(run) * run.tp / (run.tokens * run.architecture.hidden)
    assert 16 < moved < 40


def test_bf16_quantises_nothing() -> None:
    assert quantise_time(some_run(), 1e9) == 0.0
    assert quantise_time(some_run(precision="mxfp8"), 1e9) > 0.0
