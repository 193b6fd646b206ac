"""Pipeline schedules beside 1F1B and its interleaved form: how much of the bubble they leave.

Of a micro-batch on a stage F is the forward pass, B the whole backward pass, W the part of B that is for
weights and may wait, F&B a forward and a backward pass of two micro-batches that run as one and hide each
other's communication. Bubbles on p ranks, from the tables of Qi et al. 2023 ("Zero Bubble Pipeline
Parallelism", arXiv:2401.10241, section 2) and of DeepSeek-AI 2024 (arXiv:2412.19437, section 3.2.1, Table 2;
DualPipeV: github.com/deepseek-ai/DualPipe):

    1F1B        (p - 1)(F + B)
    ZB-1p       (p - 1)(F + B - 2W)
    ZB-2p, -V   0
    DualPipe    (p/2 - 1)(F&B + B - 3W)     every rank holds the stages of both directions, p even
    DualPipeV   (p - 1)(F&B + B - 3W)       on p ranks of two stages each, F, B and W of one of them

The time of a stage in this model is that of F&B where communication hides behind compute, so that it is taken
for F + B, and F : B : W = 1 : 2 : 1, as for every GEMM.
"""

from __future__ import annotations

FORWARD, BACKWARD, WEIGHTS = 1 / 3, 2 / 3, 1 / 3
"""Shares of F + B."""
PAIR = FORWARD + BACKWARD
"""F&B."""
OVERLAPPED = ("dualpipe", "dualpipev")
"""Schedules made to run dispatch and combine of one micro-batch behind the compute of another."""


def bubble_left(schedule: str, pp: int) -> float:
    """Share of the bubble that a schedule leaves: of 1F1B's, or with two stages a rank of interleaved 1F1B's.

    1F1B's is (p - 1)(F + B), interleaved 1F1B's (p - 1)(F + B)/v (`step.bubble_time`).
    """
    if schedule == "zb-1p":
        return FORWARD + BACKWARD - 2 * WEIGHTS
    if schedule in ("zb-2p", "zb-v"):
        return 0.0
    if schedule == "dualpipe":
        return (pp / 2 - 1) * (PAIR + BACKWARD - 3 * WEIGHTS) / (pp - 1)
    if schedule == "dualpipev":
        return PAIR + BACKWARD - 3 * WEIGHTS
    return 1.0
