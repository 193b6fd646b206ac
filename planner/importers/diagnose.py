"""What is wrong with a launch: arithmetic first, then what its estimate shows, with the change that helps."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from costmodel.architecture import Architecture
from costmodel.units import GIB
from planner.errors import Refused
from planner.importers.findings import Finding, in_order
from planner.importers.launch import Launch
from planner.importers.measured import measurements
from planner.importers.products import layout_of, products
from planner.importers.subject import Subject, predicted
from planner.importers.switches import gain_words, switches
from planner.runs import DescribedRun, describe
from planner.runs.facts import RunFacts
from planner.runs.model import architecture_of

MUCH = 0.2
"""Share of a step from which exposed communication is."""
RISKY, TIGHT = 0.67, 0.85
"""Shares of a GPU's memory in use from which fragmentation has been seen to end runs, and ends many."""
EXPANDABLE = "expandable_segments:True"


def diagnose(launch: Launch, folder: Path = Path()) -> list[Finding]:
    """Every finding about a launch, errors first."""
    found = list(launch.findings)
    if (architecture := _architecture(launch)) is not None:
        found += products(layout_of(launch.framework, launch.written, architecture))
    if launch.refused:
        if not any(launch.refused in each.text for each in found):
            found.append(Finding("not_modelled", "error", f"not estimated: {launch.refused}."))
        return in_order(_without_repeats(found))
    described = describe(launch.written, folder=folder)
    if isinstance(described, DescribedRun) and (current := predicted(described)) is not None:
        subject = Subject(launch, described, current, folder)
        found += [finding for check in CHECKS for finding in check(subject)]
    return in_order(_without_repeats(found))


def _architecture(launch: Launch) -> Architecture | None:
    """The model of a launch whose keys are all of the right kind."""
    try:
        return architecture_of(RunFacts.model_validate(launch.written).model)
    except (Refused, ValidationError, ValueError):
        return None


def _without_repeats(found: Iterable[Finding]) -> list[Finding]:
    """One finding a code where reading the file and the arithmetic saw the same thing."""
    once = ("vpp_without_pp", "heads", "fsdp_combination")
    kept: list[Finding] = []
    for finding in found:
        if not (finding.code in once and any(each.code == finding.code for each in kept)):
            kept.append(finding)
    return kept


def memory(subject: Subject) -> list[Finding]:
    """Does not fit, with the cheapest change that makes it fit; or fits so closely that it may not last."""
    total, limit = float(subject.estimate.memory.total), subject.limit
    room = subject.described.run.gpu.memory.driver
    if subject.estimate.fits:
        return _fragmentation(subject, total / room)
    text = (
        f"needs {total / GIB:.1f} GiB on the fullest GPU, {total / limit:.0%} of the "
        f"{limit / GIB:.1f} GiB that "
        f"{subject.described.run.gpu.name} has to give: {_largest(subject)}."
    )
    ways = fitting(subject)
    fix = (
        "; ".join(ways[:3])
        if ways
        else "Nothing tried by itself makes it fit: more GPUs, or the better plan."
    )
    return [Finding("does_not_fit", "error", text, fix, {"gib": total / GIB, "limit_gib": limit / GIB})]


def _largest(subject: Subject) -> str:
    memory = subject.estimate.memory
    names = ("weights", "gradients", "optimizer", "activations", "buffers", "overhead")
    sizes = sorted(((float(getattr(memory, name)) / GIB, name) for name in names), reverse=True)
    return ", ".join(f"{name} {size:.1f} GiB" for size, name in sizes[:3])


def _fragmentation(subject: Subject, share: float) -> list[Finding]:
    allocator = " ".join(subject.launch.environment.values())
    if share < RISKY or EXPANDABLE in allocator:
        return []
    text = (
        f"{share:.0%} of the GPU's memory is in use at the peak; from about {RISKY:.0%} on, runs "
        "with pipelines "
        "have been seen to end out of memory by fragmentation of the caching allocator."
    )
    fix = f"export PYTORCH_CUDA_ALLOC_CONF={EXPANDABLE} (not with CUDA graphs)."
    level = "warning" if share >= TIGHT else "note"
    return [Finding("fragmentation", level, text, fix, {"share": share})]


def fitting(subject: Subject) -> list[str]:
    """Single changes that make it fit, the fastest first."""
    found: list[tuple[float, str]] = []
    domain = subject.described.run.fabric.domain
    for words, changes in reductions(subject.launch.written).items():
        if changes.get("tp", 1) > domain:
            continue
        changed = subject.variant(**changes)
        if changed is not None and changed.fits:
            seconds = changed.step_time
            found.append(
                (seconds, f"{words}: {float(changed.memory.total) / GIB:.1f} GiB, {seconds:.3g} s a step")
            )
    return [text for _, text in sorted(found)]


def reductions(written: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Changes that save memory, one at a time."""
    tp, pp = int(written.get("tp") or 1), int(written.get("pp") or 1)
    micro = int(written.get("micro_batch") or 1)
    found: dict[str, dict[str, Any]] = {}
    if written.get("flash_attention") is False:
        found["flash attention"] = {"flash_attention": True}
    if written.get("zero_stage") == 0:
        found["the distributed optimizer (ZeRO-1)"] = {"zero_stage": 1}
    if written.get("recompute") != "full":
        found["full recompute"] = {"recompute": "full", "recompute_detail": None}
    if tp > 1 and not written.get("sequence_parallel"):
        found["sequence parallelism"] = {"sequence_parallel": True}
    if micro > 1:
        found[f"micro_batch {micro // 2}"] = {"micro_batch": micro // 2}
    found[f"tp {2 * tp}"] = {"tp": 2 * tp, "sequence_parallel": True, "etp": None}
    found[f"pp {2 * pp}"] = {"pp": 2 * pp, "vpp": 1, "pp_layout": None}
    return found


def node_crossing(subject: Subject) -> list[Finding]:
    """Tensor parallelism beyond an NVLink domain."""
    run = subject.described.run
    tp, domain = int(run.tp), run.fabric.domain
    if tp <= domain:
        return []
    inside = subject.variant(tp=domain, etp=None)
    share = subject.estimate.breakdown["tp"] / subject.estimate.step_time
    text = (
        f"tp {tp} spans {tp // domain} NVLink domains of {domain} GPUs: its collectives take "
        f"{share:.0%} of the step."
    )
    # Fewer ranks a replica are more replicas: with a small batch their pipelines may idle for longer.
    slower = inside is not None and inside.step_time >= subject.estimate.step_time
    fix = f"tp {domain} {'alone gains nothing' if slower else 'or less'}"
    fix += f"{gain_words(subject, inside) if inside else ''}."
    level = "note" if slower else "warning"
    return [Finding("tp_across_nodes", level, text, fix, {"tp": tp, "domain": domain, "share": share})]


def communication(subject: Subject) -> list[Finding]:
    """Exposed communication that takes much of a step."""
    parts, step = subject.estimate.breakdown, subject.estimate.step_time
    words = {
        "tp": "tensor-parallel",
        "cp": "context-parallel",
        "ep": "expert-parallel",
        "data_parallel": "data-parallel",
    }
    large = {name: parts[name] / step for name in words if parts.get(name, 0.0) / step > MUCH}
    return [
        Finding(
            "communication",
            "warning",
            f"{words[name]} communication that nothing hides takes {share:.0%} of the step "
            f"({parts[name]:.3g} s).",
            f"A smaller {name.replace('data_parallel', 'dp or ZeRO stage, a larger batch')}, or a "
            "faster network.",
            {"share": share, "seconds": parts[name]},
        )
        for name, share in large.items()
    ]


def told_elsewhere(subject: Subject) -> list[Finding]:
    """Measured figures and peaks that the file names."""
    return measurements(subject.launch, subject.described, subject.estimate)


CHECKS: tuple[Callable[[Subject], list[Finding]], ...] = (
    memory,
    node_crossing,
    switches,
    communication,
    told_elsewhere,
)
