"""The sections in words: why this plan, what else there is, how it is known, what it rests on."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

from planner.cli.proof_words import EVERY, EVERY_MIXED, mixed_rows, proof_words, removed_rows
from planner.cli.table import one_line
from planner.cli.words import share
from planner.report.data import ReportData
from planner.report.markup import bullets, facts, numbers, paragraph, section

REMOVED = ("removed by", "removed", "left")


def reasons(data: ReportData) -> str:
    """Why each decision is as it is."""
    if data.plan is None or not data.plan.reasons:
        return ""
    return section(
        "Why this plan",
        paragraph(
            "The best plan that decides otherwise, decision by decision, and what it would change.", "lede"
        ),
        bullets(reason.text for reason in data.plan.reasons),
    )


def others(data: ReportData) -> str:
    """The best plans of other GPU types, and further plans of the solution."""
    texts = [
        (other.gpu, " ".join(filter(None, (one_line(other.plan) if other.plan else "", other.text))))
        for other in data.solution.runner_ups
    ]
    more = [(f"plan {i}", one_line(plan)) for i, plan in enumerate(data.solution.plans[1:], 2)]
    return section("Other GPUs and plans", facts([*texts, *more])) if texts or more else ""


def together(data: ReportData) -> str:
    """Whether two pools together beat one."""
    of = data.solution.mixing
    if of is None:
        return ""
    best = paragraph(f"The best such plan: {one_line(of.plan)}.", "note") if of.plan is not None else ""
    return section("Two pools together", paragraph(of.text), best)


def proof(data: ReportData) -> str:
    """How it is known that nothing is better."""
    of = data.solution.proof
    words = {
        "optimal": "No plan in the space of decisions is better in this model: everything that was not "
        "solved exactly was ruled out by a limit or by a bound that no plan can beat.",
        "feasible": f"The search ran out of time: the best plan may be up to {share(of.gap)} better.",
        "infeasible": "No plan in the space of decisions satisfies the limits in this model.",
    }
    text = proof_words(data.solution)
    rows = _removed(removed_rows(data.solution), EVERY)
    mixed = "".join(
        paragraph(f"{title}.") + numbers(REMOVED, _removed(each, EVERY_MIXED))
        for title, each in mixed_rows(data.solution)
    )
    return section(
        "Proof",
        paragraph(words[data.solution.status]),
        numbers(REMOVED, rows) if rows else "",
        mixed,
        paragraph(text[0].upper() + text[1:] + ".", "note"),
    )


def _removed(rows: Iterable[tuple[str, int, int]], every: str) -> list[tuple[str, str, str]]:
    """Rows of what removed how many, in words."""
    return [(name or every, f"{number:,}" if name else "", f"{left:,}") for name, number, left in rows]


def assumptions(data: ReportData) -> str:
    """What the answer rests on."""
    import yaml

    of, problem = data.solution.provenance, data.problem
    evidence = data.plan.estimate.evidence if data.plan else None
    standing = [
        *data.solution.notes,
        "A plan uses GPUs of one pool; its figures are predictions of a cost model fitted on published runs."
        if problem.mixing is None
        else "Figures are predictions of a cost model fitted on published runs, none on two GPU types.",
        f"Software: {problem.search.profile}.",
        *([f"Evidence near this configuration: {evidence}."] if evidence else []),
        "The timeline gives transfers between stages no time of their own; the step counts them beside it.",
    ]
    versions = ", ".join(f"{library} {version}" for library, version in of.versions.items())
    source = yaml.safe_dump(data.solution.problem, sort_keys=False, allow_unicode=True)
    return section(
        "Assumptions",
        bullets(standing),
        f"<details><summary>The problem as it was solved</summary><pre>{escape(source)}</pre></details>",
        paragraph(
            f"planner {of.planner}; problem {of.problem_hash[:16]}; hardware facts and software profiles "
            f"{of.catalogue}; {versions}.",
            "note",
        ),
    )
