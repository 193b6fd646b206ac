"""Cost against time, and the sliders that choose again."""

from __future__ import annotations

from planner.cli.words import decisions_line
from planner.english import enumerated
from planner.report import sliders
from planner.report.candidates import Candidate
from planner.report.charts.theme import SERIES
from planner.report.data import ReportData
from planner.report.markup import chart, legend, paragraph, section


def what_if(data: ReportData, made: set[str]) -> str:
    """The frontier, with sliders that choose again."""
    inputs = sliders.sliders(data)
    if "frontier" not in made or not inputs:
        return ""
    front, gpus = data.frontier(), list(dict.fromkeys(pool.gpu.name for pool in data.instance.pools))
    answer = (
        '<div class="answer" id="answer" aria-live="polite"><strong data-part="plan"></strong>'
        '<p data-part="layout"></p><p class="note" data-part="status"></p>'
        '<code data-part="command"></code></div>'
    )
    return section(
        "Cost against time, and what would be chosen otherwise",
        paragraph(
            frontier_words(len(front), data.found.complete),
            "lede",
        ),
        sliders.markup(inputs),
        answer,
        '<button id="reset" type="button">back to the problem as it is</button>',
        chart("frontier", "Days against dollars of every plan, with the frontier and the chosen plan"),
        legend([*zip(gpus, SERIES, strict=False)]) if len(gpus) > 1 else "",
        paragraph(f"{known_words(data)} Hover over a point for its plan.", "note"),
    )


def frontier_words(number: int, complete: bool) -> str:
    """How many plans there are to choose from, as far as that is known."""
    move = "Move a limit or a price to see which plan would be chosen then."
    if not complete and number == 1:
        return f"One plan within the limits was found in time; that there is no other is not proven. {move}"
    if not complete and number:
        return (
            f"{number} plans within the limits are beaten by no other that was found in time in both days "
            f"and dollars (joined by the dashed line); that there is no other is not proven. {move}"
        )
    if number == 0:
        return f"No plan is within the limits. {move}"
    if number == 1:
        return f"One plan within the limits is both the quickest and the cheapest. {move}"
    return (
        f"{number} plans within the limits are beaten by no other in both days and dollars (joined by the "
        f"line). {move}"
    )


def known_words(data: ReportData) -> str:
    """How far the choice among what the page knows can be trusted."""
    if data.problem.mixing is not None:
        return f"{known_of_single(data)} Plans on two pools, which may be better, are not among them."
    return known_of_single(data)


def known_of_single(data: ReportData) -> str:
    """The same of plans on one pool."""
    if not data.found.complete:
        proven = dict.fromkeys(pool.gpu.name for pool in data.instance.pools)
        whole = [name for name in proven if name not in data.found.unproven]
        known = f" Of {enumerated(whole)} every plan in reach of the sliders is here." if whole else ""
        best = " That the reported plan is the best within the limits is proven."
        return (
            f"The search for other plans on {enumerated(data.found.unproven)} ran out of time: better ones "
            f"may exist, and a report with a longer time limit finds them.{known}"
            f"{best if data.solution.status == 'optimal' else ''} Beside exact plans there may be plain "
            "stage splits (said so when chosen), which solving again can only improve."
        )
    every = "Every plan in reach of the sliders that no other of its pool beats is here"
    if data.instance.limits.chance is not None:
        return f"{every}; one that is beaten but surer to keep the limits is not, and may be chosen instead."
    return f"{every}, so that the choice is the planner's own and exact."


def candidate_words(one: Candidate) -> dict[str, str]:
    """A candidate as the sliders name it."""
    decisions = one.plan.decisions
    return {"words": f"{decisions.num_gpus} x {decisions.gpu}", "layout": decisions_line(decisions)}
