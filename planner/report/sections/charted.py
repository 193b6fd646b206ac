"""The sections around charts: the time of a step, memory, the pipeline, what 10 % would change."""

from __future__ import annotations

from planner.cli.words import dollars, seconds, share
from planner.english import enumerated
from planner.report import charts
from planner.report.charts.sensitivity import HIGH, LOW
from planner.report.charts.theme import BLUE, GREEN, MEMORY_COLORS, ORANGE, PART_COLORS
from planner.report.data import ReportData
from planner.report.markup import chart, legend, numbers, paragraph, section
from planner.report.timeline import ends

DIFFERS = 0.02
"""A schedule that takes longer by more than this share of the cost model's time is worth a warning."""


def step(data: ReportData, made: set[str]) -> str:
    """Where the time of a step goes."""
    if "step-time" not in made or data.plan is None:
        return ""
    of, total = charts.time.parts(data), data.plan.estimate.step_time_s
    order = sorted(of, key=lambda part: -of[part])
    rows = [(charts.time.LABELS[part], seconds(of[part]), share(of[part] / total)) for part in order]
    stages = ""
    if "stage-time" in made:
        stages = (
            "<h3>On each pipeline stage</h3>"
            + paragraph(
                "Every stage is busy or waits; the slowest sets the pace. Colours are those of the table.",
                "lede",
            )
            + chart("stage-time", "Seconds of a step on each pipeline stage, by cause")
            + legend([("waiting for others", PART_COLORS["idle"])])
        )
    return section(
        "Where the time of a step goes",
        paragraph(f"One step takes {seconds(total)}.", "lede"),
        chart("step-time", "Seconds of a step by cause"),
        numbers(
            ("part", "time", "share"),
            [*rows, ("step", seconds(total), share(1.0))],
            [PART_COLORS[part] for part in order],
            total=True,
        ),
        stages,
    )


def memory(data: ReportData, made: set[str]) -> str:
    """Memory of each stage."""
    if "stage-memory" not in made or data.plan is None:
        return ""
    of, room = data.plan.estimate.memory_gib, data.plan.slack.get("memory")
    allowed = f" of {room.limit:.1f} GiB that a plan may use" if room else ""
    marked = "; lines mark what a plan may use on each" if data.ranks is not None and data.ranks.room else ""
    return section(
        "Memory of each pipeline stage against the limit",
        paragraph(f"The fullest stage needs {of.total:.1f} GiB{allowed} on each GPU{marked}.", "lede"),
        chart("stage-memory", "GiB at the peak of each pipeline stage by category, with the limit"),
        legend([(charts.memory.LABELS[part], color) for part, color in MEMORY_COLORS.items()]),
    )


def timeline(data: ReportData, made: set[str]) -> str:
    """What each stage runs when."""
    if "timeline" not in made or data.ranks is None or data.plan is None:
        return ""
    d = data.plan.decisions
    kind = f"interleaved 1F1B, {d.vpp} chunks a stage" if d.vpp > 1 else "1F1B" if d.pp > 1 else "one stage"
    counts = " and ".join(str(each.num_microbatches) for each in data.ranks.pipelines)
    each = ", one replica of each pool" if len(data.ranks.pipelines) > 1 else ""
    cut = "timeline-end" in made
    return section(
        "The pipeline during one step",
        paragraph(
            f"{kind[0].upper()}{kind[1:]}, {counts} micro-batches{each}, simulated pass by pass from "
            f"the times of the stages. {agreement(ends(list(data.passes)), data.ranks.pipeline_seconds())}",
            "lede",
        ),
        "<h3>How the step begins</h3>" if cut else "",
        chart("timeline", "Forward and backward passes of each pipeline stage over time"),
        "<h3>How the step ends</h3>" if cut else "",
        chart("timeline-end", "Forward and backward passes at the end of the step") if cut else "",
        legend([("forward", BLUE), ("backward", ORANGE), ("gradients, optimizer, stragglers", GREEN)]),
        paragraph("Paler passes belong to later chunks of a stage." if d.vpp > 1 else "", "note"),
    )


def agreement(simulated: float, told: float) -> str:
    """How the simulated pipeline compares with the cost model's time of it."""
    more = simulated / told - 1
    if abs(more) <= DIFFERS:
        return f"The pipeline ends after {seconds(simulated)}; the cost model counts {seconds(told)}."
    later = "later" if more > 0 else "sooner"
    off = f"The pipeline ends after {seconds(simulated)}, {share(abs(more))} {later} than the cost model says"
    why = (
        " Its stages are uneven: a launcher that keeps strictly to this order waits where the model does not "
        "count it."
    )
    return f"{off} ({seconds(told)}).{why if more > 0 else ''}"


def sensitivity(data: ReportData, made: set[str]) -> str:
    """What moves the answer most."""
    if "sensitivity" not in made:
        return paragraph(unasked_words(data), "note") if data.left_out else ""

    def words(days: float | None, cost: float | None) -> str:
        return "no plan" if days is None or cost is None else f"{days:.1f} days, {dollars(cost)}"

    rows = [
        (swing.name, *(words(end.days, end.dollars) for end in (swing.low, swing.high)))
        for swing in data.swings
    ]
    return section(
        "What 10 % less or more would change",
        paragraph("At each end the plan is chosen again, with everything else as it is.", "lede"),
        chart("sensitivity", "The answer with each quantity 10 % less and 10 % more"),
        legend([(LOW, BLUE), (HIGH, ORANGE)]),
        numbers(("quantity", LOW, HIGH), rows),
        paragraph(unasked_words(data), "note"),
    )


def unasked_words(data: ReportData) -> str:
    """What these answers do not cover, as the time ran out."""
    words = ""
    if data.left_out:
        words = f"Not asked, as the time ran out: 10 % less or more {enumerated(data.left_out)}. "
    if not data.found.complete:
        words += "What is chosen again is chosen among plans that were found in time: better ones may exist. "
    return f"{words}A report with a longer time limit tells." if words else ""
