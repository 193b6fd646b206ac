"""How a Megatron-LM command line deals layers out to stages, and where that goes wrong."""

from __future__ import annotations

from typing import Any

from planner.export.layout import pipeline_layout
from planner.importers.findings import Finding
from planner.importers.options import Options
from planner.runs.layout import expanded_layout

Layout = tuple[dict[str, Any], list[Finding]]
CONFLICTING = (
    "num-layers-per-virtual-pipeline-stage",
    "num-virtual-stages-per-pipeline-rank",
    "pipeline-model-parallel-layout",
)
FIRST, LAST = "decoder-first-pipeline-num-layers", "decoder-last-pipeline-num-layers"


def pipeline_of(options: Options, model: dict[str, Any], pp: int) -> Layout:
    """Keys `vpp`, `pp_layout` and `embedding_slots` of a run, and findings. Raises Refused."""
    layers = model.get("layers")
    chosen = [name for name in CONFLICTING if options.has(name)]
    findings: list[Finding] = []
    if len(chosen) > 1:
        text = f"{' and '.join(f'--{name}' for name in chosen)} exclude each other: Megatron-LM stops."
        findings.append(Finding("split_twice", "error", text, f"Keep only --{chosen[-1]}."))
    if layers is None:
        return {"vpp": 1}, findings
    if written := options.text("pipeline-model-parallel-layout", key="pp_layout"):
        return _written(written, pp, findings)
    vpp, more = virtual_stages(options, layers, pp)
    findings += more
    if pp == 1:
        return {"vpp": 1}, findings + _one_stage(options, layers)
    split, more = split_of(options, layers, pp, vpp)
    findings += more
    if split is None:
        return {"vpp": vpp}, findings
    return {"vpp": vpp, "pp_layout": pipeline_layout(split, model.get("mtp_layers") or 0)}, findings


def _written(layout: str, pp: int, findings: list[Finding]) -> Layout:
    stages = expanded_layout(layout).count("|") + 1
    if stages % pp:
        text = f"the layout has {stages} stages, which pp {pp} does not divide: Megatron-LM stops."
        findings.append(Finding("layout_stages", "error", text, "A layout with a multiple of pp stages."))
        return {"vpp": 1}, findings
    return {"vpp": stages // pp, "pp_layout": layout}, findings


def slots(options: Options) -> tuple[int, int]:
    """Places that the embedding and the loss take in the split."""
    return (
        int(options.has("account-for-embedding-in-pipeline-split")),
        int(options.has("account-for-loss-in-pipeline-split")),
    )


def virtual_stages(options: Options, layers: int, pp: int) -> tuple[int, list[Finding]]:
    """Virtual stages a rank; interleaving without a pipeline is refused by Megatron-LM."""
    each = options.whole("num-layers-per-virtual-pipeline-stage", key="vpp")
    vpp = options.whole("num-virtual-stages-per-pipeline-rank", key="vpp") or 1
    findings: list[Finding] = []
    if each:
        total = layers + sum(slots(options))
        if total % pp or (total // pp) % each:
            text = (
                f"{total} layers on pp {pp} in virtual stages of {each}: {total / pp:g} layers a "
                "rank are not "
                f"whole virtual stages, and Megatron-LM stops."
            )
            fits = [n for n in range(1, total // pp + 1) if total % pp == 0 and (total // pp) % n == 0]
            fix = (
                f"--num-layers-per-virtual-pipeline-stage one of {', '.join(map(str, fits))}." if fits else ""
            )
            findings.append(
                Finding("virtual_stages", "error", text, fix or "Another pp, or an uneven layout.")
            )
        vpp = max(1, total // pp // each)
    if vpp > 1 and pp == 1:
        text = f"{vpp} virtual stages on one pipeline rank: interleaving needs pp > 1, and Megatron-LM stops."
        findings.append(
            Finding("vpp_without_pp", "error", text, "Drop the option, or raise pp.", {"vpp": vpp})
        )
        vpp = 1
    return vpp, findings


def _one_stage(options: Options, layers: int) -> list[Finding]:
    """First- and last-stage counts on one stage: the model is built with that many layers."""
    counts = [n for name in (FIRST, LAST) if (n := options.whole(name))]
    if not counts:
        return []
    text = (
        f"pp is 1, but a first or last stage of {counts[-1]} layers is given: Megatron-LM builds "
        f"{counts[-1]} of {layers} layers while it counts FLOPs of {layers}, so its throughput reads "
        f"{layers / counts[-1]:.0f} times too high."
    )
    fix = f"Drop --{FIRST} and --{LAST} at pp 1."
    return [Finding("layers_dropped", "error", text, fix, {"built": counts[-1], "layers": layers})]


def split_of(options: Options, layers: int, pp: int, vpp: int) -> tuple[list[int] | None, list[Finding]]:
    """Layers of each virtual stage; none where they divide evenly."""
    first, last = options.whole(FIRST), options.whole(LAST)
    stages = pp * vpp
    if first is not None or last is not None:
        return _ends(layers, pp, vpp, first, last)
    before, behind = slots(options)
    total = layers + before + behind
    if total % stages == 0:
        if not before and not behind:
            return [layers // stages] * stages, []
        split = [total // stages] * stages
        split[0] -= before
        split[-1] -= behind
        return split, []
    return None, [uneven(layers, pp, total)] if total % pp else []


def _ends(
    layers: int, pp: int, vpp: int, first: int | None, last: int | None
) -> tuple[list[int] | None, list[Finding]]:
    ranks: list[int | None] = [first, *[None] * (pp - 2), last]
    rest = layers - (first or 0) - (last or 0)
    free = ranks.count(None)
    if rest < 0 or (free and rest % free) or (not free and rest):
        text = (
            f"{layers} layers less {first or 0} on the first and {last or 0} on the last stage leave "
            f"{rest} for {free} stages."
        )
        return None, [Finding("layers_do_not_divide", "error", text, "Other counts, or an explicit layout.")]
    counts = [rest // free if each is None else each for each in ranks]
    if any(each % vpp for each in counts):
        text = (
            f"stages of {', '.join(map(str, sorted(set(counts))))} layers are not {vpp} equal virtual stages."
        )
        return None, [Finding("virtual_stages", "error", text, "Counts that the virtual stages divide.")]
    return [each // vpp for each in counts] * vpp, []


def uneven(layers: int, pp: int, total: int) -> Finding:
    """Layers that the stages do not divide: old releases drop the rest, new ones stop."""
    built = layers // pp * pp
    even = [layers // pp + (1 if rank and rank <= layers % pp else 0) for rank in range(pp)]
    text = (
        f"{total} layers on pp {pp}: {total} % {pp} = {total % pp}. Releases without the check "
        f"build {built} of {layers} layers in silence; later ones stop. "
        "The estimate spreads them as evenly as can be."
    )
    layout = f'--pipeline-model-parallel-layout "{pipeline_layout(even, 0)}" (since core 0.13)'
    fix = f"{layout}, or pp {_nearest(total, pp)}."
    return Finding("layers_do_not_divide", "error", text, fix, {"layers": layers, "pp": pp, "built": built})


def _nearest(total: int, pp: int) -> int:
    """The divisor of the layers that is nearest to pp."""
    return min((n for n in range(1, total + 1) if total % n == 0), key=lambda n: (abs(n - pp), n))
