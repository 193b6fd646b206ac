"""Lays the planner's best plan beside the layout of well-known runs (`docs/known-plans.md`).

    python scripts/known_plans.py [--write]

Exits 1 if a published layout that fits, or one that is launched with its sizes, is predicted faster than the plan.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from planner.compare import compared
from planner.comparison import Comparison, Side
from planner.files import write_whole
from planner.reason_words import part_name
from planner.solve import solve
from scripts.known_runs import Known, Sides, known_plans, sides

PAGE = Path(__file__).resolve().parents[1] / "docs" / "known-plans.md"
SHOWN = 0.005
"""Seconds a step by which a part has to differ to be shown."""


def page(runs: Sequence[tuple[Known, Sides]]) -> str:
    """The page: one table of all runs, then each with its layouts and what makes the difference."""
    rows = [
        f"| {known.name} | {of.plan.step_time_s:.2f} | {of.launched.step_time_s:.2f} | "
        f"{of.published.step_time_s:.2f}{'' if of.published.fits else ' (does not fit)'}, "
        f"MFU {of.published.mfu:.0%}, HFU {of.published.hfu:.0%} | "
        f"{100 * (1 - of.plan.step_time_s / of.rival.step_time_s):.0f} % less | {measured_words(known)} |"
        for known, of in runs
    ]
    head = [
        "| run | plan, s | published sizes as the planner launches them, s | published, s | plan against it "
        "| measured on the software of then |",
        "|---|---|---|---|---|---|",
    ]
    return "\n".join([INTRODUCTION, *head, *rows, "", *(section(*each) for each in runs)])


def measured_words(known: Known) -> str:
    """What the source measured."""
    form = {
        "mfu": "MFU {:.0%}",
        "hfu": "HFU {:.0%}",
        "tflops_per_gpu": "{:.0f} TFLOP/s",
        "step_time_s": "{:.1f} s",
    }
    found = ", ".join(form[name].format(value) for name, value in known.measured.items())
    return found or "nothing published"


ROWS: tuple[tuple[str, Callable[[Side], str]], ...] = (
    ("step time", lambda of: f"{of.step_time_s:.2f} s"),
    ("MFU, HFU", lambda of: f"{of.mfu:.1%}, {of.hfu:.1%}"),
    ("memory, GiB", lambda of: f"{of.memory_gib.total:.1f}{'' if of.fits else ', does not fit'}"),
    (
        "TP, CP, PP, VPP, DP",
        lambda of: ", ".join(str(of.decisions[n]) for n in ("tp", "cp", "pp", "vpp", "dp")),
    ),
    ("EP, ETP", lambda of: f"{of.decisions['ep']}, {of.decisions['etp']}"),
    ("micro-batch, number", lambda of: f"{of.decisions['micro_batch']}, {of.decisions['num_microbatches']}"),
    ("ZeRO", lambda of: str(of.decisions["zero"])),
    ("recompute", lambda of: str(of.decisions["recompute"])),
    ("layers a rank", lambda of: str(of.decisions["stages"])),
)


def section(known: Known, of: Sides) -> str:
    """One run: source, the three layouts side by side, and where the time goes."""
    three = (of.plan, of.launched, of.published)
    table = [f"| {name} | {' | '.join(cell(each) for each in three)} |" for name, cell in ROWS]
    found = compared(of.rival, of.plan, float(known.problem.training.tokens))
    parts = [
        f"| {part_name(p.part)} | {p.b_s:.3f} | {p.a_s:.3f} |"
        for p in found.parts
        if abs(p.a_s - p.b_s) > SHOWN
    ]
    rival = "published" if of.published.fits else "published sizes as launched"
    outside = "".join(f" Outside the planner's space: {fault}." for fault in known.outside)
    return "\n".join(
        [
            f"## {known.name}\n",
            f"Source: {known.source.rstrip()}. {known.represented.rstrip()}{outside}\n",
            "| | plan | published sizes as the planner launches them | published |",
            "|---|---|---|---|",
            *table,
            f"\nWhere the time of a step goes, seconds (A: {rival}, B: the plan). {found.text}\n",
            "| part | plan | " + rival + " |",
            "|---|---|---|",
            *parts,
            "\nWhy the plan decides as it does:\n",
            *(f"- {text}" for text in why(known, found)),
            "",
        ]
    )


def why(known: Known, found: Comparison) -> list[str]:
    """The planner's own reasons for what it decides otherwise."""
    differ = {each.decision for each in found.decisions}
    reasons = solve(known.problem).plans[0].reasons
    return [reason.text for reason in reasons if reason.decision in differ] or ["Both decide alike."]


INTRODUCTION = """# Known plans

Well-known runs, with the planner's best plan for the same model, batch, GPU type and number of GPUs beside what was
published. Written by `python scripts/known_plans.py --write`; the layouts and their sources are in
`validation/known_plans.yaml`.

Everything here is predicted by one cost model, the columns of a row with one software profile, so that they differ
in the layout alone. That is today's Megatron-Core, and for Llama 3 its own software too: profile `llama-3`, made from
what the paper says and not from how fast it ran, so that the measured column is a test of it. The middle column takes
the published TP, CP, PP, DP, EP and micro-batch, and leaves schedule, ZeRO, recompute and stages to the planner; it is
what the plan is measured by where the published layout needs more memory than the model allows. A faster prediction
is not a faster run: [accuracy](accuracy.md) says how far predictions are off, and the last column shows what was
measured beside what the published column predicts.
"""


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--write", action="store_true", help="write docs/known-plans.md instead of printing it"
    )
    asked = parser.parse_args()
    runs = [(known, sides(known)) for known in known_plans()]
    if asked.write:
        write_whole(PAGE, page(runs))
    else:
        print(page(runs))
    slower = [known.name for known, of in runs if not of.holds]
    for name in slower:
        print(f"{name}: the published layout is predicted faster than the plan", file=sys.stderr)
    return 1 if slower else 0


if __name__ == "__main__":
    sys.exit(main())
