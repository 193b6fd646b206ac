"""Options of Megatron-LM that contradict each other, as its own checks and silences have them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from planner.importers.findings import Finding
from planner.importers.options import Options
from planner.importers.overlap_rules import expert_overlap, overlap
from planner.importers.recompute_rules import recompute, told

FP32 = "neither --bf16 nor --fp16 is given, so Megatron-LM trains in FP32, which is not modelled"
Rule = Callable[[Options, dict[str, Any]], list[Finding]]


def contradictions(options: Options, model: dict[str, Any]) -> list[Finding]:
    """Every contradiction. Raises Refused where a number is none."""
    return [finding for rule in RULES for finding in rule(options, model)]


def attention(options: Options, model: dict[str, Any]) -> list[Finding]:
    """Grouped queries that are not switched on; positions shorter than the sequence."""
    groups, heads = options.whole("num-query-groups"), model.get("heads", 0)
    seq, rows = options.whole("seq-length"), options.whole("max-position-embeddings")
    return [
        *told(
            groups is not None and groups != heads and not options.has("group-query-attention"),
            "grouped_queries_off",
            "error",
            f"--num-query-groups {groups} without --group-query-attention: the model is built "
            f"with {heads} key-value heads.",
            "Add --group-query-attention.",
        ),
        *told(
            seq is not None and rows is not None and rows < seq,
            "positions",
            "error",
            f"--max-position-embeddings {rows} is below --seq-length {seq}: Megatron-LM stops.",
            f"--max-position-embeddings {seq}.",
        ),
    ]


def tensor_parallel(options: Options, model: dict[str, Any]) -> list[Finding]:
    """Sequence parallelism, and what needs it."""
    tp, sequence = options.whole("tensor-model-parallel-size", 1) or 1, options.has("sequence-parallel")
    return [
        *told(
            sequence and tp == 1,
            "sequence_parallel_off",
            "note",
            "--sequence-parallel with TP 1 is switched off by Megatron-LM.",
            "Nothing to do.",
        ),
        *told(
            options.has("tp-comm-overlap") and not (sequence and tp > 1),
            "tp_overlap",
            "error",
            "--tp-comm-overlap without sequence parallelism: Megatron-LM stops.",
            "Add --sequence-parallel (TP > 1), or drop --tp-comm-overlap.",
        ),
        *told(
            bool(model.get("moe")) and tp > 1 and not sequence,
            "moe_needs_sequence_parallel",
            "error",
            f"experts with TP {tp} and no --sequence-parallel: Megatron-LM stops when it trains.",
            "Add --sequence-parallel.",
        ),
    ]


def experts(options: Options, model: dict[str, Any]) -> list[Finding]:
    """Expert parallelism without experts, and slow ways to run them."""
    ep, moe = options.whole("expert-model-parallel-size", 1) or 1, model.get("moe") or {}
    allgather = options.text("moe-token-dispatcher-type", "allgather") == "allgather"
    ratio = ep / moe["top_k"] if moe else 0.0
    return [
        *told(
            ep > 1 and not moe,
            "experts_missing",
            "error",
            f"--expert-model-parallel-size {ep} without --num-experts: Megatron-LM stops.",
            "Drop it.",
        ),
        *told(
            ep > 1 and options.has("fp16"),
            "experts_fp16",
            "error",
            "expert parallelism with --fp16: Megatron-LM stops.",
            "--bf16.",
        ),
        *told(
            bool(moe) and ep > 1 and allgather,
            "allgather_dispatcher",
            "warning",
            f"the allgather dispatcher (Megatron-LM's default) sends every token to all {ep} "
            "expert-parallel ranks, "
            f"{ratio:.3g} times what top-{moe.get('top_k')} routing needs; priced as alltoall, so "
            "real steps are longer.",
            "--moe-token-dispatcher-type alltoall, or flex with DeepEP.",
        ),
        *told(
            bool(moe) and not options.has("moe-grouped-gemm"),
            "sequential_experts",
            "warning",
            f"without --moe-grouped-gemm each of {moe.get('experts', 0) // ep} local experts runs "
            "by itself; priced as "
            "grouped, so real steps are longer.",
            "Add --moe-grouped-gemm.",
        ),
    ]


def data_parallel(options: Options, model: dict[str, Any]) -> list[Finding]:
    """Overlap without what it overlaps, and FSDP beside what it cannot be combined with."""
    distributed = options.has("use-distributed-optimizer")
    sharded = options.has("use-torch-fsdp2") or options.has("use-megatron-fsdp")
    pp, ep = (options.whole(f"{n}-model-parallel-size", 1) or 1 for n in ("pipeline", "expert"))
    clash = {
        f"pipeline parallelism (PP {pp})": pp > 1,
        f"expert parallelism (EP {ep})": ep > 1,
        "--use-distributed-optimizer": distributed,
        "gradient accumulation fusion (add --no-gradient-accumulation-fusion)": not options.has(
            "no-gradient-accumulation-fusion"
        ),
        "tied embeddings (add --untie-embeddings-and-output-weights)": not options.has(
            "untie-embeddings-and-output-weights"
        ),
    }
    with_fsdp2 = [what for what, there in clash.items() if there and options.has("use-torch-fsdp2")]
    return [
        *told(
            options.has("overlap-param-gather") and not (distributed or sharded),
            "overlap_param_gather",
            "error",
            "--overlap-param-gather without --use-distributed-optimizer: Megatron-LM stops.",
            "Add --use-distributed-optimizer.",
        ),
        *told(
            options.has("overlap-param-gather") and not options.has("overlap-grad-reduce"),
            "overlap_param_gather",
            "error",
            "--overlap-param-gather without --overlap-grad-reduce: Megatron-LM stops.",
            "Add --overlap-grad-reduce.",
        ),
        *told(
            options.has("fp8-param-gather") and not (distributed or sharded),
            "fp8_param_gather",
            "error",
            "--fp8-param-gather without --use-distributed-optimizer: Megatron-LM stops.",
            "Add --use-distributed-optimizer.",
        ),
        *told(
            bool(with_fsdp2),
            "fsdp_combination",
            "error",
            f"--use-torch-fsdp2 cannot be combined with {'; '.join(with_fsdp2)}: Megatron-LM stops.",
            "The distributed optimizer instead of FSDP2 where the model is split over a pipeline or experts.",
        ),
        *told(
            options.has("use-megatron-fsdp") and options.text("ckpt-format", "torch_dist") != "fsdp_dtensor",
            "fsdp_checkpoint",
            "error",
            "--use-megatron-fsdp without --ckpt-format fsdp_dtensor: Megatron-LM stops.",
            "--ckpt-format fsdp_dtensor.",
        ),
    ]


def precision(options: Options, model: dict[str, Any]) -> list[Finding]:
    """FP32 by omission, and two precisions at once."""
    return [
        *told(
            not options.has("bf16") and not options.has("fp16"),
            "fp32",
            "error",
            f"{FP32}: no BF16 tensor cores, and twice the bytes of weights, gradients and activations.",
            "Add --bf16.",
        ),
        *told(
            options.has("bf16") and options.has("fp16"),
            "precision_twice",
            "error",
            "--bf16 and --fp16 together: Megatron-LM stops.",
            "Keep --bf16.",
        ),
    ]


RULES: tuple[Rule, ...] = (
    recompute,
    attention,
    tensor_parallel,
    experts,
    data_parallel,
    precision,
    overlap,
    expert_overlap,
)
