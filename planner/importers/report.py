"""What is said about a launch: the run as it was read, its estimate, findings, and a better plan."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from costmodel.estimate import estimate
from costmodel.stack import load_stack
from planner.estimates import reported
from planner.importers.better import Better, changed_settings
from planner.importers.diagnose import diagnose
from planner.importers.findings import Finding
from planner.importers.launch import Launch
from planner.runs import DescribedRun, RefusedRun, describe
from planner.solution import Plan, Solution

SIZES = frozenset(
    {"tp", "cp", "pp", "vpp", "ep", "etp", "dp", "micro_batch", "pp_layout", "embedding_slots", "fsdp_shard"}
)
DOES_NOT_FIT = "does_not_fit"
Search = Callable[[DescribedRun], Better]


def report(launch: Launch, search: Search | None = None, folder: Path = Path()) -> dict[str, Any]:
    """One object a launch: the keys of `planner estimate`, and `framework, run, findings, better`."""
    findings = diagnose(launch, folder)
    described = describe(launch.written, launch.id, folder)
    (result,) = reported([RefusedRun(launch.id, launch.refused) if launch.refused else described])
    result |= {"framework": launch.framework, "run": launch.written}
    if "error" in result:
        result["error"] = stopping(result["error"], findings)
    result["warnings"] = [*launch.warnings, *result.get("warnings", ())]
    result["findings"] = [finding.as_data() for finding in findings]
    if search is not None:
        starts = isinstance(described, DescribedRun) and not stops(findings)
        result["better"] = compared(job_of(launch, folder), starts, search)
    return result


def job_of(launch: Launch, folder: Path) -> DescribedRun | RefusedRun:
    """The job of a launch whatever its layout: of one that cannot be laid out, with every size 1."""
    described = describe(launch.written, launch.id, folder)
    if isinstance(described, DescribedRun):
        return described
    kept = {key: value for key, value in launch.written.items() if key not in SIZES}
    return describe(kept | {"ep": 1}, launch.id, folder)


def stops(findings: list[Finding]) -> bool:
    """Something other than memory keeps the launch from starting, or from training what it says."""
    return any(each.level == "error" and each.code != DOES_NOT_FIT for each in findings)


def stopping(error: str, findings: list[Finding]) -> str:
    """Why there is no estimate, in the words of the findings where one says it."""
    errors = [each.text for each in findings if each.level == "error"]
    return error if not errors or error in errors[0] else errors[0].rstrip(".")


def compared(described: DescribedRun | RefusedRun, as_launched: bool, search: Search) -> dict[str, Any]:
    """The better plan, and what it gains over the run if that can be launched."""
    if isinstance(described, RefusedRun):
        return {"status": "not searched", "text": f"the run cannot be read as a job: {described.error}"}
    found = search(described)
    if found.solution is None:
        return {"status": "not searched", "text": found.why_not}
    if not found.solution.plans:
        return {"status": found.solution.status, "text": no_plan(described, found.solution)}
    plan = found.solution.plans[0]
    return {
        "status": found.solution.status,
        "decisions": plan.decisions.model_dump(mode="json"),
        "step_time_s": plan.estimate.step_time_s,
        "mfu": plan.estimate.mfu,
        "memory_gib": plan.estimate.memory_gib.total,
        **(
            gain(described, plan) if as_launched else {"text": "can be launched, which today's layout cannot"}
        ),
    }


def no_plan(described: DescribedRun, solution: Solution) -> str:
    """Why there is none, and what would have to change where that is known."""
    facts = described.facts
    text = f"no plan that can be launched has a batch of {facts.global_batch} on {facts.num_gpus} GPUs"
    of = solution.conflict
    if of is None or not of.limits or of.limits[0].startswith("search"):
        return text
    ways = "; ".join(each.text for each in of.relaxations)
    return f"{text} within {', '.join(of.limits)}" + (f": {ways}" if ways else "")


def gain(described: DescribedRun, plan: Plan) -> dict[str, Any]:
    """Time saved, and how much of it is settings rather than layout."""
    today = estimate(described.run, described.layers, described.recomputed)
    plain = replace(described.run, stack=load_stack(described.run.stack.name))
    settled = estimate(plain, described.layers, described.recomputed)
    settings = changed_settings(described.run.stack)
    saved = 1 - plan.estimate.step_time_s / today.step_time
    words: dict[str, Any] = {"time_saved": saved, "text": verdict(saved, today.fits)}
    if settings:
        words |= {"settings": settings, "today_with_settings_s": settled.step_time}
    return words


def verdict(saved: float, fits: bool) -> str:
    """The gain in a sentence."""
    if not fits:
        return "fits, which today's layout does not"
    if saved < 0.005:
        return "today's layout is as good as the best that was found"
    return f"saves {saved:.1%} of each step"
