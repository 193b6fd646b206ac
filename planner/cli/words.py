"""Numbers and decisions in the words of a terminal table."""

from __future__ import annotations

from itertools import groupby

from planner.english import counted
from planner.limit_words import safer_words
from planner.solution import Decisions, Estimate, Kept, Losses, MemoryRisk, Meter, Solution, Stage

NO_PLAN = {
    "search": "no layout divides batch, layers, heads and GPUs as it must, within what `search` allows",
    "reliability": "no run would ever end: stops, checkpoints and restarts leave no time to train",
}
"""What leaves no plan, whatever the limits, by its name among those in conflict."""
NOT_KNOWN = "the time was out before it was known which limits"
"""Of a conflict without names."""


def status_line(solution: Solution) -> str:
    """The verdict."""
    if solution.status == "optimal":
        return "proved optimal"
    if solution.status == "feasible":
        gap = solution.proof.gap
        return f"feasible; at most {f'{gap:.1%}' if gap >= 1e-3 else f'{100 * gap:.1g}%'} from the best"
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
    words = [layout_words(decisions), zero_words(decisions), recompute, decisions.precision]
    return f"{', '.join(words)}{sequence}{overlap_words(decisions)}"


def overlap_words(decisions: Decisions) -> str:
    """Overlap where it is not what goes without saying: of experts if it is on, else what traffic shows."""
    d = decisions
    shown = {
        "TP": d.sequence_parallel and not d.tp_overlap,
        "DP": d.dp * d.cp > 1 and not d.dp_overlap,
        "PP": d.pp > 1 and d.vpp > 1 and not d.pp_overlap,
    }
    off = [name for name, so in shown.items() if so]
    said = ["EP overlap"] if d.ep_overlap else []
    said += [f"no {'/'.join(off)} overlap"] if off else []
    return "".join(f", {each}" for each in said)


def zero_words(decisions: Decisions) -> str:
    """ZeRO 1, or ZeRO 3 within a node."""
    return f"ZeRO {decisions.zero}" + (" within a node" if decisions.zero_scope == "node" else "")


def stages_line(decisions: Decisions) -> str:
    """Layers a pipeline rank, equal neighbours together."""
    if len(decisions.stages) == 1:
        return f"1 with {_stage(decisions.stages[0])}"
    groups = [(text, len(list(group))) for text, group in groupby(map(_stage, decisions.stages))]
    return "; ".join(f"{count} x {text}" for text, count in groups)


def _stage(stage: Stage) -> str:
    kinds = " + ".join(f"{n} {kind}" for kind, n in stage.kinds.items() if n) if len(stage.kinds) > 1 else ""
    layers = counted(stage.layers, "layer", "") + (f" ({kinds})" if kinds else "")
    chunks = f" in chunks of {', '.join(map(str, stage.chunks))}" if len(stage.chunks) > 1 else ""
    recomputed = f", {stage.recomputed_layers} of them recomputed" if stage.recomputed_layers else ""
    return layers + recomputed + (f",{chunks}" if recomputed and chunks else chunks)


def batch_words(decisions: Decisions, seq_len: int | None) -> str:
    """The batch of a step and how it comes about."""
    tokens = f" = {decisions.global_batch * seq_len / 1e6:.2f}M tokens" if seq_len else ""
    batch = counted(decisions.global_batch, "sequence", "")
    head = f"{batch}{tokens}: micro-batch {decisions.micro_batch}"
    if decisions.mixed == "replicas":
        each = " + ".join(
            f"{batches_words(of.num_microbatches, of.dp)} on {of.gpu}" for of in decisions.parts
        )
        return f"{head} x ({each})"
    return f"{head} x {batches_words(decisions.num_microbatches, decisions.dp)}"


def batches_words(num_microbatches: int, dp: int) -> str:
    """50 micro-batches x 26 replicas."""
    return f"{counted(num_microbatches, 'micro-batch', '')} x {counted(dp, 'replica', '')}"


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
    counted = float(value).is_integer() and (abs(value) >= 100 or unit == "nodes")
    text = f"{value:,.0f}" if counted else f"{value:,.1f}"
    return f"{f'{value:.2g}' if 0 < abs(value) < 1 else text} {unit}"


def figure(value: float) -> str:
    """A quantity to three digits, larger ones to the whole: 0.0123, 38.2, 1,234."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def goodput_words(estimate: Estimate, lost: Losses) -> str:
    """What stopping costs, and how often it happens."""
    ideal = "" if estimate.ideal_days is None else f": {estimate.ideal_days:.1f} days if nothing stopped it"
    stops = f"{counted(lost.stops, 'stop', '.0f')}, one in {lost.mtbf_hours:.3g} h"
    return f"{share(estimate.goodput or 0.0)}{ideal}; {stops}, {lost.restart_minutes:.0f} min each"


def memory_risk_words(of: MemoryRisk) -> str:
    """How likely memory is not enough, and what would lower a high risk."""
    words = f"{of.risk}: {share(of.probability)} run out"
    return words if of.headroom is None else f"{words}; {safer_words(of.headroom)}"


def checkpoint_words(lost: Losses) -> str:
    """How often to save, and what that takes."""
    behind = f", {seconds(lost.write_s)} written beside it" if lost.write_s else ""
    return (
        f"every {counted(lost.checkpoint_steps, 'step')} ({lost.checkpoint_minutes:.3g} min): "
        f"{lost.checkpoint_gb:,.0f} GB, {seconds(lost.stall_s)} of standing still{behind}"
    )


def energy_words(meter: Meter) -> str:
    """Electricity, its carbon and its price."""
    drawn = f"{meter.mwh:,.0f} MWh" if meter.mwh >= 10 else f"{meter.mwh * 1e3:,.0f} kWh"
    return f"{drawn}, {figure(meter.tonnes_co2)} t CO2, {dollars(meter.dollars)} of electricity"


def storage_words(kept: Kept) -> str:
    """What is kept, and how fast storage has to be."""
    return (
        f"{figure(kept.total_tb)} TB: data {figure(kept.data_tb)}, checkpoints "
        f"{figure(kept.checkpoints_tb)}, logs {figure(kept.logs_tb)}; writes {kept.write_gb_s:.3g} and reads "
        f"{kept.read_gb_s:.3g} GB/s"
    )
