"""Limits in conflict of which no value alone is enough, and what the nearest plan breaks with them."""

from __future__ import annotations

from planner.asking import Asking
from planner.conflict import HOW_FAR
from planner.english import enumerated
from planner.limit_words import label_of
from planner.narrowed import PREFIX
from planner.relaxed import OTHERS, TERMS
from planner.solution import Conflict, Nearest

NEAREST = "the plan nearest to the limits"
"""A question, as it is told of where the time was out before it was answered."""
WHATEVER = ("search", "reliability")
"""What leaves no plan whatever the limits (`planner.conflict.obstacle`)."""


def with_nearest(conflict: Conflict, nearest: Nearest | None, asking: Asking) -> Conflict:
    """The conflict with the nearest plan, and a sentence on each limit of which no change alone is enough.

    No sentence where there was no time to look at all changes.
    """
    if asking.over if nearest is None else not nearest.proved:
        asking.unanswered.append(NEAREST)
    if not asking.answered(HOW_FAR):
        return conflict.model_copy(update={"nearest": nearest})
    helped = {move.limit for move in conflict.relaxations}
    stuck = {name: alone_words(name, nearest) for name in conflict.limits if name not in (*helped, *WHATEVER)}
    if "memory_headroom" in helped:
        stuck.pop("memory", None)
    return conflict.model_copy(update={"nearest": nearest, "stuck": stuck | conflict.stuck})


def alone_words(name: str, nearest: Nearest | None) -> str:
    """That no value of a limit is enough by itself, and what the nearest plan breaks."""
    text = f"{no_value(name)} makes a plan possible by itself"
    if nearest is None:
        return text
    broken = (*nearest.over, *nearest.let_go)
    others = [label_of(other) for other in broken if other != name]
    also = " as well" if name in broken else ""
    return f"{text}: the nearest plan breaks {enumerated(others)}{also}" if others else text


def no_value(name: str) -> str:
    """No other deadline; no other value in mfu >= 0.6; nothing in place of tp == 3."""
    if name == "memory":
        return "no memory headroom"
    if name in OTHERS:
        return "no larger storage" if name == "storage" else f"no other limit on {name}"
    if name in TERMS:
        return f"no other {name}"
    decided = any(sign in name for sign in (" == ", " != ", " in ["))
    if name.startswith(PREFIX) or decided:
        return f"nothing in place of {name}"
    return f"no other value in {name}"
