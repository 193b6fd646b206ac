"""Explanations as people read them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from planner.cli.grid import INDENT, section, sentences
from planner.cli.table import one_line
from planner.explanation import Answer, ExplainedReason, Explanation, LimitMoved
from planner.payment import Paying


def explanation_table(found: Explanation) -> RenderableType:
    """Everything, from the plan down to how sure it is."""
    head = f"{found.name}: {one_line(found.plan)}"
    binding = [each.text for each in found.limits if each.binds]
    slack = free_limits(found.limits)
    parts: list[tuple[str, RenderableType | None]] = [
        ("Why", reasons(found.reasons) if found.reasons else None),
        ("Limits moved a little", sentences([*binding, *slack]) if found.limits else None),
        (
            "Prices that decide",
            sentences(each.text for each in found.break_evens) if found.break_evens else None,
        ),
        ("Ways to pay", ways_to_pay(found.paying) if found.paying else None),
        ("Other hardware", sentences(each.text for each in found.what_ifs) if found.what_ifs else None),
        ("How sure", sentences(found.sureness.text) if found.sureness.text else None),
        ("Notes", sentences(found.notes) if found.notes else None),
    ]
    return Group(
        Text(head, style="bold"), *(section(title, body) for title, body in parts if body is not None)
    )


def free_limits(limits: Iterable[LimitMoved]) -> list[str]:
    """One sentence for all limits that change nothing, and one for each that moved one way alone."""
    binding = {each.limit for each in limits if each.binds}
    left = [each for each in limits if each.limit not in binding]
    ways = Counter(each.limit for each in left)
    free = list(dict.fromkeys(each.called for each in left if ways[each.limit] > 1))
    alone = [each.text for each in left if ways[each.limit] == 1]
    return [*alone, *([f"A little more or less changes nothing: {', '.join(free)}."] if free else [])]


def reasons(found: Iterable[ExplainedReason]) -> Table:
    """Reasons, with what becomes of the plan's own layout below them."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column(no_wrap=True, style="dim")
    grid.add_column(overflow="fold")
    for reason in found:
        grid.add_row("-", reason.text)
        for just in reason.alone:
            grid.add_row("", Padding(Text(just.text, style="dim"), INDENT))
    return grid


def ways_to_pay(found: Paying) -> Table:
    """What each costs, where they cross, and what else there is to know."""
    told = [*found.ways, *found.unpriced, *found.cheaper, *([found.fine_tune] if found.fine_tune else [])]
    return sentences([*(each.text for each in told), *found.text])


def answer_table(found: Answer) -> RenderableType:
    """The answer to one question."""
    asked = ", ".join(f"{name}={value}" for name, value in found.question.items())
    chosen = ", ".join(f"{name}={value}" for name, value in found.chosen.items())
    lines = [found.text, *([found.alone.text[:1].upper() + found.alone.text[1:]] if found.alone else ())]
    parts: list[RenderableType] = [
        Text(f"{found.name}: why not {asked}? The plan has {chosen}.", style="bold"),
        Padding(sentences(lines), INDENT),
    ]
    if found.plan is not None:
        parts.append(section("Best plan that decides so", Text(one_line(found.plan))))
    if found.notes:
        parts.append(section("Notes", sentences(found.notes)))
    return Group(*parts)
