"""Arithmetic that a launch has to satisfy: products, divisors, pipelines. No estimate is needed for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from costmodel.architecture import Architecture
from costmodel.closed_form.bubble import bubble_share
from planner.importers.findings import Finding
from planner.importers.launch import Framework

FULLY_SHARDED_GRADIENTS = 2
LARGE_BUBBLE = 0.2
"""Share of the busy time that a pipeline may idle before it is worth a word."""
SMALL_BUBBLE = 0.1
STOPS = {
    "megatron": "Megatron-LM stops",
    "deepspeed": "DeepSpeed stops",
    "torchtitan": "torchtitan stops",
    "other": "frameworks stop",
}


@dataclass(frozen=True, slots=True)
class Layout:
    """The sizes of a launch."""

    framework: Framework
    architecture: Architecture
    gpus: int
    tp: int
    cp: int
    pp: int
    vpp: int
    ep: int
    etp: int
    zero: int
    micro_batch: int
    global_batch: int
    seq_len: int
    sequence_parallel: bool

    @property
    def stops(self) -> str:
        """What the framework does about it."""
        return STOPS[self.framework]

    @property
    def dp(self) -> int:
        """Replicas, if the sizes divide the GPUs."""
        return max(1, self.gpus // (self.tp * self.cp * self.pp))

    @property
    def microbatches(self) -> int:
        """Micro-batches a step."""
        return max(1, round(self.global_batch / (self.micro_batch * self.dp)))


def layout_of(framework: Framework, written: dict[str, Any], architecture: Architecture) -> Layout:
    """The sizes of a run as it is written; what is missing is 1."""
    sizes = {name: int(written.get(name) or 1) for name in ("tp", "cp", "pp", "vpp", "ep", "micro_batch")}
    zero = written.get("zero_stage")
    return Layout(
        framework=framework,
        architecture=architecture,
        gpus=int(written["num_gpus"]),
        etp=int(written.get("etp") or sizes["tp"]),
        zero=int(zero) if zero is not None else (3 if framework == "torchtitan" else 1),
        global_batch=int(written["global_batch"]),
        seq_len=int(written["seq_len"]),
        sequence_parallel=bool(written.get("sequence_parallel", framework == "torchtitan"))
        and sizes["tp"] > 1,
        **sizes,
    )


def world(at: Layout) -> list[Finding]:
    """tp*cp*pp divides the GPUs."""
    product = at.tp * at.cp * at.pp
    if at.gpus % product == 0:
        return []
    text = f"tp {at.tp} * cp {at.cp} * pp {at.pp} = {product} does not divide {at.gpus} GPUs: {at.stops}."
    near = [n for n in (at.gpus // product * product, -(-at.gpus // product) * product) if n]
    fix = f"Sizes whose product divides {at.gpus}, or {' or '.join(map(str, dict.fromkeys(near)))} GPUs."
    return [Finding("world", "error", text, fix, {"gpus": at.gpus, "product": product})]


def batch(at: Layout) -> list[Finding]:
    """micro_batch*dp divides the global batch."""
    each = at.micro_batch * at.dp
    if at.gpus % (at.tp * at.cp * at.pp) or at.global_batch % each == 0:
        return []
    text = (
        f"a batch of {at.global_batch} is no multiple of micro_batch {at.micro_batch} * dp {at.dp} = "
        f"{each}: {at.stops}."
    )
    near = [n for n in (at.global_batch // each * each, -(-at.global_batch // each) * each) if n]
    fix = f"A batch of {' or '.join(map(str, near))}"
    smaller = [b for b in range(at.micro_batch - 1, 0, -1) if at.global_batch % (b * at.dp) == 0]
    fix += f", or micro_batch {smaller[0]}." if smaller else "."
    return [Finding("batch", "error", text, fix, {"global_batch": at.global_batch, "divisor": each})]


def heads(at: Layout) -> list[Finding]:
    """Heads divide over tp; key-value heads divide over it or are shared evenly."""
    a, found = at.architecture, []
    if a.heads % at.tp:
        fits = [n for n in range(1, min(a.heads, 64) + 1) if a.heads % n == 0]
        text = f"{a.heads} heads on tp {at.tp}: {a.heads} % {at.tp} = {a.heads % at.tp}, {at.stops}."
        found.append(Finding("heads", "error", text, f"tp one of {', '.join(map(str, fits))}."))
    elif not a.mla and a.kv_heads % at.tp and at.tp % a.kv_heads:
        text = f"{a.kv_heads} key-value heads on tp {at.tp}: neither divides the other, {at.stops}."
        found.append(
            Finding("kv_heads", "error", text, f"tp that divides {a.kv_heads}, or a multiple of it.")
        )
    elif not a.mla and at.tp > a.kv_heads:
        copies = at.tp // a.kv_heads
        text = (
            f"tp {at.tp} is above {a.kv_heads} key-value heads: each is kept and computed on {copies} ranks."
        )
        found.append(
            Finding("kv_heads_repeated", "note", text, f"tp {a.kv_heads} or less.", {"copies": copies})
        )
    return found


def sequence(at: Layout) -> list[Finding]:
    """The sequence divides over context-parallel halves and sequence-parallel ranks."""
    found = []
    if at.cp > 1 and at.seq_len % (2 * at.cp):
        text = (
            f"{at.seq_len} tokens on cp {at.cp}: each rank holds two parts of "
            f"{at.seq_len / 2 / at.cp:g}, {at.stops}."
        )
        found.append(Finding("sequence_cp", "error", text, f"A length that is a multiple of {2 * at.cp}."))
    elif at.sequence_parallel and at.seq_len // at.cp % at.tp:
        text = (
            f"{at.seq_len // at.cp} tokens of a rank on tp {at.tp} with sequence parallelism do not "
            f"divide, {at.stops}."
        )
        found.append(
            Finding("sequence_tp", "error", text, f"A length that is a multiple of {at.cp * at.tp}.")
        )
    return found


def experts(at: Layout) -> list[Finding]:
    """Experts divide over ep, and the ranks of a stage over ep*etp."""
    moe, found = at.architecture.moe, []
    if moe is None:
        return []
    ranks = at.gpus // at.pp
    if moe.experts % at.ep:
        fits = [n for n in range(1, moe.experts + 1) if moe.experts % n == 0 and ranks % (n * at.etp) == 0]
        text = f"{moe.experts} experts on ep {at.ep}: {moe.experts / at.ep:g} a rank, {at.stops}."
        found.append(Finding("experts", "error", text, f"ep one of {', '.join(map(str, fits))}."))
    if ranks % (at.ep * at.etp):
        text = (
            f"ep {at.ep} * etp {at.etp} = {at.ep * at.etp} does not divide the {ranks} GPUs of a stage "
            f"(experts live inside tp*cp*dp = {ranks}): {at.stops}."
        )
        fits = [n for n in range(1, ranks + 1) if moe.experts % n == 0 and ranks % (n * at.etp) == 0]
        fix = f"ep one of {', '.join(map(str, fits))} at etp {at.etp}." if fits else "A smaller etp."
        found.append(
            Finding("expert_product", "error", text, fix, {"product": at.ep * at.etp, "ranks": ranks})
        )
    return found


def interleaving(at: Layout) -> list[Finding]:
    """Interleaving needs a pipeline, and micro-batches in multiples of it."""
    if at.vpp > 1 and at.pp == 1:
        text = f"vpp {at.vpp} with pp 1: there is nothing to interleave, {at.stops}."
        return [Finding("vpp_without_pp", "error", text, "vpp 1, or pp above 1.")]
    if at.vpp > 1 and at.framework == "megatron" and at.microbatches % at.pp:
        m = at.microbatches
        text = f"{m} micro-batches with interleaving on pp {at.pp}: {m} % {at.pp} = {m % at.pp}, {at.stops}."
        step = at.micro_batch * at.dp * at.pp
        fix = f"A batch of {-(-at.global_batch // step) * step}, or vpp 1."
        return [Finding("microbatches_interleaved", "error", text, fix, {"num_microbatches": m, "pp": at.pp})]
    return []


def bubble(at: Layout) -> list[Finding]:
    """The share (pp-1)/(vpp*m + pp-1) that a pipeline idles, and how many micro-batches would help."""
    if at.pp == 1:
        return []
    m, share = at.microbatches, float(bubble_share(at.pp, at.microbatches, at.vpp))
    if share <= LARGE_BUBBLE:
        return []
    needed = next(n for n in range(1, 64 * at.pp + 2) if bubble_share(at.pp, n, at.vpp) <= SMALL_BUBBLE)
    text = (
        f"{m} micro-batch{'es' if m > 1 else ''} on pp {at.pp}"
        + (f" and vpp {at.vpp}" if at.vpp > 1 else "")
        + f": the pipeline idles "
        f"{share:.0%} of the step, (pp-1)/({'vpp*' if at.vpp > 1 else ''}m+pp-1)."
    )
    ways = [f"{needed} micro-batches (a batch of {needed * at.micro_batch * at.dp}) for {SMALL_BUBBLE:.0%}"]
    if at.micro_batch > 1:
        ways.append(f"micro_batch {at.micro_batch // 2}")
    if at.vpp == 1 and at.architecture.layers % (2 * at.pp) == 0 and m % at.pp == 0:
        ways.append("virtual stages")
    fix = ", ".join(ways) + ", or a smaller pp."
    return [
        Finding("bubble", "warning", text, fix, {"bubble": share, "num_microbatches": m, "needed": needed})
    ]


def sharding(at: Layout) -> list[Finding]:
    """ZeRO 2 and 3 with a pipeline: refused, or paid for in every micro-batch."""
    if at.pp == 1 or at.zero < FULLY_SHARDED_GRADIENTS or at.framework == "torchtitan":
        return []
    if at.framework == "deepspeed":
        text = (
            f"ZeRO-{at.zero} with {at.pp} pipeline stages: DeepSpeed stops, since gradients of a "
            "stage accumulate."
        )
        return [Finding("zero_with_pipeline", "error", text, "ZeRO-1 with the pipeline, or ZeRO without it.")]
    text = (
        f"ZeRO-{at.zero} with pp {at.pp}: gradients{' and weights' if at.zero > 2 else ''} travel in each of "
        f"{at.microbatches} micro-batches instead of once a step."
    )
    return [
        Finding("zero_with_pipeline", "warning", text, "The distributed optimizer (ZeRO-1) with pipelines.")
    ]


CHECKS: tuple[Callable[[Layout], list[Finding]], ...] = (
    world,
    batch,
    heads,
    sequence,
    experts,
    interleaving,
    bubble,
    sharding,
)


def products(at: Layout) -> list[Finding]:
    """Every check."""
    return [finding for check in CHECKS for finding in check(at)]
