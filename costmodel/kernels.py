"""GEMM time from its shape: tiles, waves, memory floor, and what a GPU sustains in training."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from costmodel.memory.profile import is_low_precision
from costmodel.run import Column, Run
from costmodel.stage import Array
from hardware.accelerator import Accelerator, GemmCurve

TILES = ((256, 128), (128, 256), (128, 128), (128, 64), (64, 128), (64, 64), (64, 32))
"""Output tiles that the curves were fitted with; the fastest one is taken."""
LARGE_TILE = 256 * 128
"""Area that a tile's efficiency is relative to."""


@dataclass(frozen=True, slots=True)
class GemmRate:
    """How fast one kind of GEMM runs on one GPU."""

    curve: GemmCurve
    sm_count: int
    flops: float
    """FLOP/s of full waves of large tiles: peak * eff_compute * sustained * software * precision."""
    k0: float
    """Elements of K that prologue and epilogue cost."""
    tile_penalty: float
    memory: float
    """bytes/s of memory-bound GEMMs."""
    input_bytes: float
    """Bytes an element of both inputs."""
    droop: float = 0.0
    """Clock droop a decade of FLOPs; none in training, where the sustained rate has it already."""


OUTPUT_BYTES = 2
"""BF16 results, whatever the inputs."""


def gemm_rate(run: Run, precision: str | None = None) -> GemmRate:
    """The GEMM rate of a run's linear layers, or of `precision` (the LM head stays BF16).

    flops = peak_bf16 * eff_compute * sustained.gemm * stack.gemm.factor * speedup(precision)
    """
    recipe, gpu, stack = precision or run.precision, run.gpu, run.stack.gemm
    low = is_low_precision(recipe)
    curve = gpu.curves.gemm
    sustained = curve.eff_compute * gpu.sustained.gemm * stack.factor.of(gpu.generation)
    return GemmRate(
        curve=curve,
        sm_count=gpu.sm_count,
        flops=gpu.peak_flops["bf16"] * sustained * precision_speedup(gpu, recipe, stack.recipes),
        k0=curve.k0 + (stack.low_precision_k0 if low else 0.0),
        tile_penalty=max(curve.tile_penalty, stack.tile_penalty_floor),
        memory=curve.eff_memory * gpu.memory.bandwidth,
        input_bytes=1.0 if low else 2.0,
    )


def isolated_gemm_rate(gpu: Accelerator) -> GemmRate:
    """The BF16 rate of a GEMM that runs alone: the fitted curve itself, clock droop included."""
    curve = gpu.curves.gemm
    return GemmRate(
        curve=curve,
        sm_count=gpu.sm_count,
        flops=gpu.peak_flops["bf16"] * curve.eff_compute,
        k0=curve.k0,
        tile_penalty=curve.tile_penalty,
        memory=curve.eff_memory * gpu.memory.bandwidth,
        input_bytes=2.0,
        droop=curve.droop,
    )


def precision_speedup(gpu: Accelerator, recipe: str, recipes: dict[str, float]) -> float:
    """GEMM rate of a precision recipe over BF16; raises ValueError where the GPU lacks it."""
    if not is_low_precision(recipe):
        return 1.0
    sustained = gpu.sustained
    speedup = sustained.nvfp4_speedup if recipe.endswith("fp4") else sustained.fp8_speedup
    if speedup is None:
        raise ValueError(
            f"precision {recipe!r}: {gpu.name} has no such tensor cores (or no measured speed-up)"
        )
    return speedup * recipes.get(recipe, 1.0)


def gemm_time(rate: GemmRate, m: Column, n: Column, k: Column, batch: Column = 1) -> Array:
    """Seconds of `batch` products (m,k) x (k,n) in one launch.

    t = t0 + max(min over tiles[ceil(tiles/SM) * wave] * droop, bytes/memory),
    wave = 2*tm*tn*(k + k0)*SM / (area^pen * flops), area = tm*tn/(256*128).
    Source: tile-wave form fitted to 69,000 measured shapes, 4-5 % for m, n, k >= 1024.
    """
    busy = _waves(rate, m, n, k, batch, whole=True)
    moved = batch * (rate.input_bytes * (m * k + k * n) + OUTPUT_BYTES * m * n)
    return rate.curve.t0 + np.maximum(busy * _droop(rate, m, n, k, batch), moved / rate.memory)


def grouped_gemm_time(rate: GemmRate, experts: Column, m: Column, n: Column, k: Column) -> Array:
    """Seconds of one (m,k) x (k,n) product for each of `experts` experts in one grouped launch.

    The tiles of all experts fill the waves together, so only the last wave of all is ragged and
    waves = tiles/SM; every expert's weights are read once.
    """
    busy = _waves(rate, np.ceil(m), n, k, experts, whole=False)
    moved = experts * (rate.input_bytes * (m * k + k * n) + OUTPUT_BYTES * m * n)
    return rate.curve.t0 + np.maximum(busy, moved / rate.memory)


def _waves(rate: GemmRate, m: Column, n: Column, k: Column, batch: Column, whole: bool) -> Array:
    """Seconds of the main loops with the best tile."""
    best = np.asarray(np.inf)
    for rows, columns in TILES:
        tiles = np.ceil(m / rows) * np.ceil(n / columns) * batch
        waves = np.ceil(tiles / rate.sm_count) if whole else np.maximum(tiles / rate.sm_count, 1.0)
        efficiency = (rows * columns / LARGE_TILE) ** rate.tile_penalty
        best = np.minimum(best, waves * (rows * columns / efficiency))
    return best * 2.0 * (k + rate.k0) * rate.sm_count / rate.flops


def _droop(rate: GemmRate, m: Column, n: Column, k: Column, batch: Column) -> Array:
    """Clock droop of long GEMMs: 1 + d*log10(FLOPs/droop_from) beyond droop_from."""
    work = 2.0 * batch * m * n * k / rate.curve.droop_from
    return 1.0 + rate.droop * np.log10(np.maximum(work, 1.0))


def linear_forward(rate: GemmRate, tokens: Column, inputs: Column, outputs: Column) -> Array:
    """Seconds of a linear layer forward: (tokens, inputs) x (inputs, outputs)."""
    return gemm_time(rate, tokens, outputs, inputs)


def linear_backward(rate: GemmRate, tokens: Column, inputs: Column, outputs: Column) -> Array:
    """Seconds of its backward: input gradients (tokens, inputs) and weight gradients (inputs, outputs)."""
    return gemm_time(rate, tokens, inputs, outputs) + gemm_time(rate, inputs, outputs, tokens)


def grouped_forward(
    rate: GemmRate, experts: Column, tokens: Column, inputs: Column, outputs: Column
) -> Array:
    """Seconds of one grouped linear forward; `tokens` are those of one expert."""
    return grouped_gemm_time(rate, experts, tokens, outputs, inputs)


def grouped_backward(
    rate: GemmRate, experts: Column, tokens: Column, inputs: Column, outputs: Column
) -> Array:
    """Seconds of its input and weight gradients."""
    data = grouped_gemm_time(rate, experts, tokens, inputs, outputs)
    return data + grouped_gemm_time(rate, experts, inputs, outputs, tokens)
