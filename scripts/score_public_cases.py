"""Holds the planner against what people saw: every case of tests/data/public_cases.yaml, as a table.

python scripts/score_public_cases.py
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from costmodel.estimate import estimate
from costmodel.layer import layer_cost
from costmodel.pipeline import stage_split
from costmodel.rates import stage_rates
from costmodel.stage import stage_memory
from costmodel.units import GB, GIB
from planner.estimates import reported
from planner.importers.diagnose import diagnose
from planner.importers.launch import Given, Launch, completed
from planner.importers.runs_file import FAMILIES
from planner.importers.script import read
from planner.runs import DescribedRun, describe

CASES = Path(__file__).parent.parent / "tests" / "data" / "public_cases.yaml"
WITHIN = 0.15
THROUGHPUT = {
    "tokens": "tokens_per_s_per_gpu",
    "tflops": "model_tflops_per_gpu",
    "step": "step_time_s",
    "mfu": "mfu",
}
BY = {"step_s": lambda r: r["step_time_s"], "gib": lambda r: r["memory_gib"]["total"]}


@dataclass(frozen=True)
class Outcome:
    """One expectation against what the planner says."""

    case: str
    kind: str
    what: str
    observed: str
    predicted: str
    holds: bool
    falls_short: str
    """Why it is known not to hold; empty if it has to."""


def cases() -> list[dict[str, Any]]:
    return yaml.safe_load(CASES.read_text(encoding="utf-8"))["cases"]


@cache
def _cases() -> dict[str, dict[str, Any]]:
    return {case["id"]: case for case in cases()}


@cache
def described(case: str, run: str) -> DescribedRun:
    found = describe(_cases()[case]["base"] | _cases()[case]["runs"][run], run)
    if not isinstance(found, DescribedRun):
        raise ValueError(f"{case}, {run}: {found.error}")
    return found


@cache
def result(case: str, run: str) -> dict[str, Any]:
    (found,) = reported([described(case, run)])
    return found


@cache
def findings(case: str, run: str) -> dict[str, Any]:
    """Findings by code, of a run or of the case's command line."""
    whole = _cases()[case]
    if "launch" in whole:
        (launch,) = read(whole["launch"], case, Given())
        launch = completed(launch, Given(gpu=whole["gpu"]), case, Path())
    else:
        family = FAMILIES.get(described(case, run).run.stack.family, "other")
        launch = Launch(run, family, whole["base"] | whole["runs"][run])
    return {finding.code: finding for finding in diagnose(launch)}


def outcomes(case: dict[str, Any]) -> Iterator[Outcome]:
    for check in case.get("checks", ()):
        observed, predicted, holds = CHECKS[check["kind"]](case["id"], check)
        what = check.get("run") or " < ".join(check.get("order", ())) or "command line"
        short = check.get("falls_short", {})
        yield Outcome(case["id"], check["kind"], what, observed, predicted, holds, short.get("why", ""))


Verdict = tuple[str, str, bool]


def fit(case: str, check: dict[str, Any]) -> Verdict:
    found = described(case, check["run"])
    predicted = estimate(found.run, found.layers, found.recomputed)
    words = {True: "fits", False: "does not fit"}
    size = f"{words[predicted.fits]}, {float(predicted.memory.total) / GIB:.1f} GiB"
    return words[check["fits"]], size, predicted.fits == check["fits"]


def peak_mem(case: str, check: dict[str, Any]) -> Verdict:
    unit, scale = ("GB", GIB / GB) if "gb" in check else ("GiB", 1.0)
    return near(check[unit.lower()], result(case, check["run"])["memory_gib"]["total"] * scale, unit)


def throughput(case: str, check: dict[str, Any]) -> Verdict:
    (unit,) = set(THROUGHPUT) & set(check)
    return near(check[unit], result(case, check["run"])[THROUGHPUT[unit]], unit)


def near(observed: float, predicted: float, unit: str) -> Verdict:
    off = predicted / observed - 1
    return f"{observed:g} {unit}", f"{predicted:.4g} ({off:+.0%})", abs(off) <= WITHIN


def rank(case: str, check: dict[str, Any]) -> Verdict:
    values = [BY[check["by"]](result(case, run)) for run in check["order"]]
    return "in this order", " ".join(f"{value:.4g}" for value in values), sorted(set(values)) == values


def explain(case: str, check: dict[str, Any]) -> Verdict:
    run = check.get("run", "")
    if "finding" in check:
        return told(case, check)
    if "parts" in check:
        parts = result(case, run)["breakdown_s"]
        share = sum(parts[name] for name in check["parts"]) / result(case, run)["step_time_s"]
        return (
            f"{' + '.join(check['parts'])} explain {check['share']:.0%}",
            f"{share:.0%}",
            share >= check["share"],
        )
    if "more" in check:
        sizes = [result(case, name)["memory_gib"][check["more"]] for name in (run, check["than"])]
        observed = f"{check['times']:g} times the {check['more']} of {check['than']}"
        return observed, f"{sizes[0] / sizes[1]:.3g} times", sizes[0] >= check["times"] * sizes[1]
    stages = stage_bytes(described(case, run))
    ratio = max(stages) / min(stages)
    if "stages_apart" in check:
        return (
            "first stage fuller",
            f"{ratio:.2f} times",
            stages[0] == max(stages) and ratio >= check["stages_apart"],
        )
    return "stages alike", f"{ratio:.2f} times", ratio <= check["stages_within"]


def stage_bytes(found: DescribedRun) -> list[float]:
    """Bytes of each pipeline rank."""
    run = found.run
    split = stage_split(
        run.architecture, int(run.pp), int(run.vpp), int(run.num_microbatches), found.layers, found.recomputed
    )
    return stage_memory(stage_rates(run, layer_cost(run)), split).tolist()


def told(case: str, check: dict[str, Any]) -> Verdict:
    found = findings(case, check.get("run", ""))
    finding = found.get(check["finding"])
    if finding is None:
        return check["finding"], f"only {', '.join(found) or 'nothing'}", False
    numbers = {key: finding.numbers.get(key) for key in check.get("numbers", {})}
    holds = numbers == check.get("numbers", {}) and check.get("says", "") in finding.text + finding.fix
    return check["finding"], finding.text, holds


def identity(case: str, check: dict[str, Any]) -> Verdict:
    if "finding" in check:
        return told(case, check)
    errors = [code for code, each in findings(case, check["run"]).items() if each.level == "error"]
    return "legal", ", ".join(errors) or "legal", not errors


CHECKS = {
    "fit": fit,
    "peak_mem": peak_mem,
    "throughput": throughput,
    "rank": rank,
    "explain": explain,
    "identity": identity,
}


def table() -> str:
    rows = ["| case | kind | what | observed | predicted | |", "|---|---|---|---|---|---|"]
    tally: Counter[str] = Counter()
    for case in cases():
        if "out" in case:
            tally["out"] += 1
            rows.append(f"| {case['id']} | - | not checked | | {case['out']} | - |")
        for each in case.get("unchecked", ()):
            tally["unchecked"] += 1
            rows.append(f"| {case['id']} | - | {each['what']} | | {each['why']} | not checked |")
        for each in outcomes(case):
            verdict = "holds" if each.holds else f"falls short: {each.falls_short}"
            tally[f"{each.kind} {'holds' if each.holds else 'falls short'}"] += 1
            rows.append(
                f"| {each.case} | {each.kind} | {each.what} | {each.observed} | {each.predicted} | {verdict} |"
            )
    counts = ", ".join(f"{key}: {count}" for key, count in sorted(tally.items()))
    return "\n".join([*rows, "", f"{len(cases())} cases; {counts}"])


if __name__ == "__main__":
    print(table())
