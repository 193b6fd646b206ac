"""Numbers and decisions in the words of a terminal table."""

from __future__ import annotations

from itertools import groupby

from planner.solution import Decisions, Solution, Stage


def status_line(solution: Solution) -> str:
    """The verdict."""
    if solution.status == "optimal":
        return "proved optimal"
    if solution.status == "feasible":
        return f"feasible; at most {solution.proof.gap:.1%} from the best"
    return "proved infeasible"


def layout_words(decisions: Decisions) -> str:
    """Parallel sizes: TP8 PP4 DP20, and those of the others that are above one."""
    sizes = {
        "TP": decisions.tp,
        "CP": decisions.cp,
        "PP": decisions.pp,
        "VPP": decisions.vpp,
        "DP": decisions.dp,
    }
    experts = {"EP": decisions.ep, "ETP": decisions.etp}
    always = ("TP", "PP", "DP")
    return " ".join(f"{k}{n}" for k, n in (sizes | experts).items() if n > 1 or k in always)


def decisions_line(decisions: Decisions) -> str:
    """The layout as people say it: TP8 PP4 DP20, ZeRO 1, recompute none."""
    modules = f" ({', '.join(decisions.recompute_modules)})" if decisions.recompute_modules else ""
    sequence = ", sequence parallel" if decisions.sequence_parallel else ""
    recompute = f"recompute {decisions.recompute}{modules}"
    return f"{layout_words(decisions)}, ZeRO {decisions.zero}, {recompute}, {decisions.precision}{sequence}"


def stages_line(decisions: Decisions) -> str:
    """Layers a pipeline rank, equal neighbours together."""
    if len(decisions.stages) == 1:
        return f"1 with {_stage(decisions.stages[0])}"
    groups = [(text, len(list(group))) for text, group in groupby(map(_stage, decisions.stages))]
    return "; ".join(f"{count} x {text}" for text, count in groups)


def _stage(stage: Stage) -> str:
    kinds = " + ".join(f"{n} {kind}" for kind, n in stage.kinds.items() if n) if len(stage.kinds) > 1 else ""
    layers = f"{stage.layers} layers" + (f" ({kinds})" if kinds else "")
    chunks = f" in chunks of {', '.join(map(str, stage.chunks))}" if len(stage.chunks) > 1 else ""
    recomputed = f", {stage.recomputed_layers} recomputed" if stage.recomputed_layers else ""
    return layers + chunks + recomputed


def batch_words(decisions: Decisions, seq_len: int | None) -> str:
    """The batch of a step and how it comes about."""
    tokens = f" = {decisions.global_batch * seq_len / 1e6:.2f}M tokens" if seq_len else ""
    return (
        f"{decisions.global_batch} sequences{tokens}: micro-batch {decisions.micro_batch} x "
        f"{decisions.num_microbatches} micro-batches x {decisions.dp} replicas"
    )


def dollars(value: float) -> str:
    """$1,843,200."""
    return f"${value:,.0f}"


def seconds(value: float) -> str:
    """4.65 s, 12.3 ms."""
    return f"{value:.2f} s" if value >= 1 or value == 0 else f"{value * 1e3:.1f} ms"


def share(value: float) -> str:
    """40.1 %."""
    return f"{value * 100:.1f} %"


def amount(value: float, unit: str) -> str:
    """A number with its unit, money as money."""
    if unit in ("USD", "dollars", "$"):
        return f"-{dollars(-value)}" if value < 0 else dollars(value)
    text = f"{value:,.0f}" if float(value).is_integer() and abs(value) >= 100 else f"{value:,.1f}"
    return f"{text} {unit}"
