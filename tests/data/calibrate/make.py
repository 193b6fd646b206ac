"""Writes the measurements beside it: the format of nccl-tests and Megatron-LM, times from known curves.

    python tests/data/calibrate/make.py

`TRUTH` is what a calibration should find again. Times carry noise of 2 % with a fixed seed.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parents[2]))
NOISE = 0.02
HOSTS = ("gpu-node-017", "gpu-node-018")
TRUTH = {
    "all_reduce": (18e-6, 170e9, 9.0e-9),
    "all_gather": (13e-6, 150e9, 7.0e-9),
    "all_reduce_2n": (60e-6, 120e9, 10.0e-9),
    "alltoall_2n": (70e-6, 55e9, 8.0e-9),
    "sendrecv_2n": (30e-6, 31e9, 2.0e-9),
}
"""(alpha, B, c) of each table: seconds, bytes/s, s/sqrt(byte)."""
GEMM = {"eff_compute": 0.92, "eff_memory": 1.0, "t0": 1.2, "k0": 1.0, "tile_penalty": 1.0, "droop": 1.0}
"""Constants of the measured GEMM curve over those of the catalogue's H800."""
WARM, COLD = 2.25, 5.0
"""Seconds of a step after and during warm-up."""


def share(op: str, ranks: int) -> float:
    """Bytes a rank sends over the size that nccl-tests prints; also busbw over algbw."""
    if op == "sendrecv":
        return 1.0
    return (2 if op == "all_reduce" else 1) * (ranks - 1) / ranks


def number(value: float, width: int) -> str:
    """As `getFloatStr` of nccl-tests prints: as many decimals as fit."""
    digits = len(str(int(value))) if value >= 1 else 1
    return f"{value:{width}.{2 if digits < width - 2 else 1 if digits < width - 1 else 0}f}"


def nccl_text(
    op: str, nodes: int, truth: tuple[float, float, float], seed: int, gpu: str = "NVIDIA H800"
) -> str:
    """Output of `mpirun ... {op}_perf -b 1K -e 8G -f 2 -g 1` on nodes of eight GPUs."""
    rng, ranks = np.random.default_rng(seed), 8 * nodes
    lines = [
        "# nccl-tests version 2.17.6 nccl-headers=22807 nccl-library=22807",
        f"# Collective test starting: {op}_perf",
        "# nThread 1 nGpus 1 minBytes 1024 maxBytes 8589934592 step: 2(factor) warmup iters: 5 iters: 20 agg iters: 1 "
        "validation: 1 graph: 0",
        "#",
        "# Using devices",
    ]
    bus = (0x19, 0x3B, 0x4C, 0x5D, 0x9B, 0xBB, 0xCB, 0xDB)
    for rank in range(ranks):
        host, device = HOSTS[rank // 8], rank % 8
        lines.append(
            f"#  Rank {rank:2d} Group  0 Pid {62767 + rank:6d} on {host} device {device:2d} [0000:{bus[device]:02x}:00] {gpu}"
        )
    lines += [
        "#",
        "#                                                              out-of-place                       in-place          ",
        "#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong",
        "#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)       ",
    ]
    alpha, bandwidth, root = truth
    rates: list[float] = []
    redop = "sum" if op in ("all_reduce", "reduce_scatter") else "none"
    for power in range(10, 34):
        size = 2**power
        count = size // 4 if op in ("all_reduce", "sendrecv") else size // 4 // ranks
        sent = size * share(op, ranks)
        text = f"{size:12d}  {count:12d}  {'float':>8}  {redop:>6}  {-1:6d}"
        for place in ("out", "in"):
            seconds = (alpha + sent / bandwidth + root * sent**0.5) * np.exp(rng.normal(0, NOISE))
            algbw = size / seconds / 1e9
            rates.append(algbw * share(op, ranks))
            wrong = "   N/A" if place == "in" and op == "alltoall" else "     0"
            text += f"  {number(seconds * 1e6, 7)}  {number(algbw, 6)}  {number(rates[-1], 6)}  {wrong}"
        lines.append(text)
    lines += [
        "# Out of bounds values : 0 OK",
        f"# Avg bus bandwidth    : {np.mean(rates):g} ",
        "#",
        "",
        f"# Collective test concluded: {op}_perf",
    ]
    return "\n".join(lines) + "\n"


def gemm_text(seed: int = 7) -> str:
    """A CSV of BF16 and FP8 shapes on an H800 whose clocks are lower than usual."""
    from costmodel.calibration.gemm import CONSTANTS, GemmTable, constants_of, gemm_seconds
    from hardware.catalogue import load_accelerator

    gpu, rng = load_accelerator("H800"), np.random.default_rng(seed)
    truth = constants_of(gpu.curves.gemm) * np.array([GEMM[name] for name in CONSTANTS])
    m = 2.0 ** rng.integers(9, 15, 60)
    n = 1024.0 * rng.integers(1, 28, 60)
    k = 1024.0 * rng.integers(1, 16, 60)
    lines = ["M,N,K,DType,Latency (us)"]
    for dtype, speedup in (("bfloat16", None), ("float8_e4m3fn", 1.8)):
        seconds = gemm_seconds(gpu, truth, GemmTable(m, n, k, np.ones(60)), speedup)
        seconds = seconds * np.exp(rng.normal(0, NOISE, 60))
        for row in zip(m, n, k, seconds, strict=True):
            lines.append(f"{row[0]:.0f},{row[1]:.0f},{row[2]:.0f},{dtype},{row[3] * 1e6:.2f}")
    return "\n".join(lines) + "\n"


def log_text(seconds: float = WARM, batch: int = 512, seed: int = 3) -> str:
    """A log of Megatron-LM: one slow first iteration, a slow second, a straggler."""
    rng = np.random.default_rng(seed)
    times = seconds * np.exp(rng.normal(0, 0.01, 30))
    times[0], times[1], times[17] = seconds + 21.0, COLD, 2 * seconds
    lines = [
        "using world size: 256, data-parallel size: 32, context-parallel size: 1, tensor-model-parallel size: 4, pipeline-model-parallel size: 2",
        "[before the start of training step] datetime: 2026-03-02 10:11:12 ",
    ]
    for step, each in enumerate(times, 1):
        lines.append(
            f" [2026-03-02 10:{step:02d}:00] iteration {step:8d}/     500 | consumed samples: {step * batch:12d} | "
            f"elapsed time per iteration (ms): {each * 1e3:.1f} | throughput per GPU (TFLOP/s/GPU): {881 / each:.1f} | "
            f"learning rate: 1.500000E-04 | global batch size: {batch:5d} | lm loss: 1.0{step:02d}E+01 | loss scale: 1.0 | "
            "grad norm: 1.204 | number of skipped iterations:   0 | number of nan iterations:   0 |"
        )
    return "\n".join(lines) + "\n"


def files() -> dict[str, str]:
    """Every file and its text."""
    return {
        "all_reduce.txt": nccl_text("all_reduce", 1, TRUTH["all_reduce"], 1),
        "all_gather.txt": nccl_text("all_gather", 1, TRUTH["all_gather"], 2),
        "all_reduce_2nodes.txt": nccl_text("all_reduce", 2, TRUTH["all_reduce_2n"], 4),
        "alltoall_2nodes.txt": nccl_text("alltoall", 2, TRUTH["alltoall_2n"], 5),
        "sendrecv_2nodes.txt": nccl_text("sendrecv", 2, TRUTH["sendrecv_2n"], 6),
        "gemm.csv": gemm_text(),
        "train.log": log_text(),
    }


def main() -> None:
    for name, text in files().items():
        (HERE / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
