"""Refit the curves of hardware/data/kernels/ on a measured table and print held-out errors.

    python scripts/fit_kernels.py gemm TABLE.csv --gpu H100-SXM [--rows 3000]
    python scripts/fit_kernels.py attention TABLE.csv --gpu H100-SXM --head 128
    python scripts/fit_kernels.py collective TABLE.csv --gpu H100-SXM --op all_gather --ranks 8

Tables are CSV (or CSV.gz) with a header. GEMM: gpu, dtype, m, n, k, latency_us_median. Attention: gpu,
phase, dtype, kv_dtype, causal, batch, seq_q, seq_kv, q_heads, d_qk, window, time_us (the fastest
implementation of a shape counts). Collectives: gpu, gpus, nodes, op, algo, kind,
message_bytes, time_us (only what NCCL chooses by itself, algo "auto").

30 % of the shapes are held out (random points of a grid: this measures interpolation). GEMM and attention: mean
absolute log error by coordinate descent from the constants that the catalogue holds, which is also what the printed
"stored" column scores (some held-out rows were in the fit of those). Collectives: robust least squares of the log
error. These are the fits of `planner calibrate` (costmodel/calibration), without its pull towards the catalogue.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from costmodel.calibration import collective, gemm
from costmodel.calibration.descent import descend
from costmodel.calibration.gemm import LARGE, SMALL_WEIGHT, GemmTable
from costmodel.collectives import wire_bytes
from hardware.accelerator import Accelerator, AttentionCurve, CollectiveCurve
from hardware.catalogue import load_accelerator

Values = NDArray[np.float64]
Predict = Callable[[Values], Values]
Fit = Callable[[NDArray[np.bool_]], Values]
SEED = 20
HELD_OUT = 0.3


def read_table(path: Path, keep: Callable[[dict[str, str]], bool]) -> list[dict[str, str]]:
    raw = path.read_bytes()
    text = (gzip.decompress(raw) if path.suffix == ".gz" else raw).decode()
    return [row for row in csv.DictReader(text.splitlines()) if keep(row)]


def column(rows: list[dict[str, str]], name: str) -> Values:
    return np.array([float(row[name]) for row in rows])


def report(
    names: list[str],
    stored: Values,
    time: Values,
    predict: Predict,
    weight: Values,
    groups: dict[str, Values],
    fit: Fit | None = None,
) -> None:
    """Fit on 70 % of the rows; print constants and held-out errors of the stored and the new ones.

    `fit` makes constants from a mask of the rows; without it the mean absolute error descends.
    """
    held = np.random.default_rng(SEED).random(len(time)) < HELD_OUT

    def errors(constants: Values) -> Values:
        return np.abs(np.log(predict(constants) / time))

    if fit is None:
        fitted = descend(lambda c: float(np.average(errors(c)[~held], weights=weight[~held])), stored)
    else:
        fitted = fit(~held)
    print(f"{(~held).sum()} rows fitted, {held.sum()} held out")
    print(f"{'':24}{'stored':>12}{'refitted':>12}")
    for name, old, new in zip(names, stored, fitted, strict=True):
        print(f"{name:24}{old:12.4g}{new:12.4g}")
    for group, members in groups.items():
        if not (members & held).any():
            continue
        old, new = (errors(constants)[members & held] for constants in (stored, fitted))
        print(f"{'error, ' + group:24}{old.mean():12.3f}{new.mean():12.3f}   n = {len(old)}")


def fit_gemm(path: Path, gpu: Accelerator, name: str, limit: int | None) -> None:
    rows = read_table(path, lambda row: row["gpu"] == name and row["dtype"] == "bfloat16")
    if limit is not None and limit < len(rows):
        chosen = np.random.default_rng(SEED).choice(len(rows), limit, replace=False)
        rows = [rows[index] for index in chosen]
    m, n, k = (column(rows, key) for key in "mnk")
    table = GemmTable(m, n, k, column(rows, "latency_us_median") * 1e-6)
    groups = {"m, n, k >= 1024": table.large, "m 128..1023": (m >= 128) & (m < LARGE), "all": m > 0}
    report(
        list(gemm.CONSTANTS),
        gemm.constants_of(gpu.curves.gemm),
        table.seconds,
        lambda constants: gemm.gemm_seconds(gpu, constants, table),
        table.weight,
        groups,
        lambda kept: gemm.fit_gemm(gpu, table.take(kept), prior=False),
    )


def fit_attention(path: Path, gpu: Accelerator, name: str, head: int) -> None:
    def wanted(row: dict[str, str]) -> bool:
        same = row["gpu"] == name and row["phase"] == "fwd" and row["dtype"] == row["kv_dtype"] == "bf16"
        whole = row["causal"] == "1" and row["seq_q"] == row["seq_kv"] and row["window"] == "0"
        return same and whole and row["d_qk"] == str(head) and row["time_us"] != ""

    fastest: dict[tuple[str, ...], dict[str, str]] = {}
    for row in read_table(path, wanted):
        shape = (row["batch"], row["seq_q"], row["q_heads"], row["kv_heads"])
        if shape not in fastest or float(row["time_us"]) < float(fastest[shape]["time_us"]):
            fastest[shape] = row
    rows = list(fastest.values())
    batch, length, heads = (column(rows, key) for key in ("batch", "seq_q", "q_heads"))
    curve: AttentionCurve = gpu.curves.attention[head]
    names = ["eff", "l0", "t0", "block_saturation"]
    blocks = batch * heads * np.ceil(length / 128)

    def predict(constants: Values) -> Values:
        eff, l0, t0, saturation = constants
        work = 4 * batch * heads * head * length * (length / 2 + l0)
        return t0 + work / (eff * gpu.peak_flops["bf16"]) * (1 + saturation * gpu.sm_count / blocks)

    large = 2 * batch * heads * head * length**2 > 2e10
    stored = np.array([getattr(curve, constant) for constant in names])
    weight = np.where(large, 1.0, SMALL_WEIGHT)
    groups = {"more than 2e10 FLOPs": large, "all": length > 0}
    report(names, stored, column(rows, "time_us") * 1e-6, predict, weight, groups)


def fit_collective(path: Path, gpu: Accelerator, name: str, op: str, ranks: int) -> None:
    def wanted(row: dict[str, str]) -> bool:
        same = row["gpu"] == name and row["gpus"] == str(ranks) and row["nodes"] == "1"
        return (
            same
            and row["op"].replace("alltoall", "all_to_all") == op
            and row["kind"] == "measured"
            and row["algo"] == "auto"
        )

    rows = [row for row in read_table(path, wanted) if row["message_bytes"] and row["time_us"]]
    curve: CollectiveCurve = gpu.curves.collectives[op][ranks]  # type: ignore[index]
    names = ["alpha", "bandwidth", "root"]
    sent = wire_bytes(op, column(rows, "message_bytes"), ranks)  # type: ignore[arg-type]
    stored = np.array([getattr(curve, constant) for constant in names])
    seconds = column(rows, "time_us") * 1e-6
    report(
        names,
        stored,
        seconds,
        lambda constants: collective.collective_seconds(constants, sent),
        np.ones(len(rows)),
        {"all": sent > 0, "1 MB and more": sent >= 1e6},
        lambda kept: collective.fit_collective(sent[kept], seconds[kept], stored),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="Refit kernel curves on a measured table.")
    parser.add_argument("what", choices=("gemm", "attention", "collective"))
    parser.add_argument("table", type=Path)
    parser.add_argument("--gpu", required=True, help="name in the table; also a name the catalogue knows")
    parser.add_argument("--rows", type=int, help="use a random part of the GEMM table")
    parser.add_argument("--head", type=int, default=128)
    parser.add_argument("--op", default="all_gather")
    parser.add_argument("--ranks", type=int, default=8)
    given = parser.parse_args()
    gpu = load_accelerator(given.gpu)
    if given.what == "gemm":
        fit_gemm(given.table, gpu, given.gpu, given.rows)
    elif given.what == "attention":
        fit_attention(given.table, gpu, given.gpu, given.head)
    else:
        fit_collective(given.table, gpu, given.gpu, given.op, given.ranks)


if __name__ == "__main__":
    main()
