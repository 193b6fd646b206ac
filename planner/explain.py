"""Why each decision is as it is: the best plan that decides otherwise, and what it would cost."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from costmodel.pipeline import plain_layers
from planner.account import (
    Account,
    mode_of,
    modules_word,
    overlap_word,
    overlapped,
    scope_of,
)
from planner.asking import Asking
from planner.difference import Difference
from planner.economics import Economy
from planner.instance import Instance
from planner.keybook import KeyBook
from planner.reason_words import label, other_decisions, sizes
from planner.search import Effort, Mask, Plan, Table, best_each, priced
from planner.search.goal import differs, in_families
from planner.search.rows import one_microbatch_count
from planner.shortfall import why_none
from planner.solution import Reason
from planner.space.columns import NODE, LayerKeys, Pipelines
from planner.space.layouts import chunk_counts
from planner.space.recompute import (
    modules_of,
    offered_sets,
    overlaps,
    recompute_families,
    recompute_modes,
    variants,
)
from planner.stages.problem import StagePlan
from planner.why_overlap import switch_reasons

Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Question:
    """A decision and what counts as deciding otherwise."""

    decision: str
    chosen: Any
    value: Callable[[Plan], Any]
    mask: Mask


def questions(instance: Instance, plan: Plan) -> Iterator[Question]:
    """One question for each decision that the problem leaves open."""
    modes = recompute_modes(instance)
    usual = recompute_families(instance)
    moe = ("ep", "etp") if instance.architecture.moe else ()
    for name in ("num_gpus", "tp", "cp", "pp", "vpp", "dp", *moe, "micro_batch", "zero"):
        if instance.narrowing.open(name):
            differ = differs if name != "vpp" else partial(other_chunks, instance)
            mask = in_families(usual, differ(name, plan.of(name)))
            yield Question(name, plan.of(name), partial(Plan.of, decision=name), mask)
    if instance.narrowing.open("precision") and len(instance.precisions) > 1:
        chosen = precision_of(instance, plan)
        others = in_families(usual, of_other_precision(instance, chosen))
        yield Question("precision", chosen, partial(precision_of, instance), others)
    if plan.of("zero_scope") == NODE and instance.narrowing.open("zero_scope"):
        mask = in_families(usual, differs("zero_scope", NODE))
        yield Question("zero_scope", scope_of(plan), scope_of, mask)
    mode = mode_of(plan)
    if modes - {mode}:
        yield Question("recompute", mode, mode_of, in_families(recompute_families(instance, modes - {mode})))
    sets = offered_sets(instance)
    if mode == "selective" and len(sets) > 1:
        some = recompute_families(instance, frozenset({mode}))
        value = partial(modules_word, instance)
        mask = in_families(some, other_modules(instance, plan))
        yield Question("recompute_modules", value(plan), value, mask)
    if plan.of("ep") > 1 and len(overlaps(instance)) > 1:
        others = recompute_families(instance, hidden=(not overlapped(plan),))
        yield Question("ep_overlap", overlap_word(plan), overlap_word, in_families(others))


def other_modules(instance: Instance, plan: Plan) -> Mask:
    """Lets through rows that recompute other modules than a plan, whatever overlaps, and open variants."""
    mine = modules_of(instance.framework, plan.of("variant"))
    every = variants(instance.framework)
    same = [number for number, each in enumerate(every) if each.modules == mine]
    return lambda rows: ~np.isin(rows.variant, same)


def precision_of(instance: Instance, plan: Plan) -> str:
    """The precision that a plan trains in."""
    return instance.pools[plan.of("pool")].precision


def of_other_precision(instance: Instance, chosen: str) -> Mask:
    """Lets through rows of every precision but one."""
    indices = [i for i, pool in enumerate(instance.pools) if pool.precision != chosen]
    return lambda rows: np.isin(rows.pool, indices)


def other_chunks(instance: Instance, name: str, chosen: int) -> Mask:
    """`differs` of the chunks of a rank, which also knows the pipelines that cannot have any other number."""
    layers, usual = instance.architecture.layers, differs(name, chosen)
    counts = [chunk_counts(instance, pp) for pp in range(1, layers + 1)]
    may = np.array([False, *(any(vpp != chosen for vpp in of) for of in counts)])
    plain = np.array([False, *(chosen != 1 and 1 in of for of in counts)])

    def mask(rows: LayerKeys) -> Array | bool:
        if not isinstance(rows, Pipelines):
            return True
        # What does not fill the pipeline is not interleaved.
        return np.where(rows.filled == 1, may[rows.pp], plain[rows.pp]) & usual(rows)

    return mask


OTHERWISE = "what each decision would cost otherwise"
OTHER_TYPES = "the other GPU types"
"""Questions, as they are told of where the time was out before they were answered."""


def reasons(
    table: Table, plan: Plan, others: Sequence[RunnerUp], asking: Asking | None = None
) -> tuple[Reason, ...]:
    """A reason for every open decision, from the best plan that decides otherwise.

    `others` are the runner-ups of the other GPU types, which answer for the GPU type.
    """
    asking = asking or Asking()
    mine = Account.of(table.book, plan)
    asked = list(questions(table.instance, plan))
    # The best of the other types is not known where one of them was not looked at.
    found = [] if OTHER_TYPES in asking.unanswered else gpu_reason(table.book, mine, others)
    answers = asking.ask(OTHERWISE, lambda: proved(table, [of.mask for of in asked], asking.until))
    for pair in [] if answers is None else zip(asked, answers, strict=True):
        reason = asking.ask(OTHERWISE, partial(answer, table, mine, *pair, until=asking.until))
        found += [] if reason is None else [reason]
    found += [reason for reason in (microbatch_reason(table, mine), stage_reason(table, mine)) if reason]
    return (*found, *switch_reasons(table.instance, mine))


def proved(table: Table, masks: Sequence[Mask], until: float | None) -> list[Plan | None]:
    """The best plan of each mask. Raises OutOfTime where not all is proved by `until` (of time.monotonic)."""
    effort = Effort(until=until)
    found = best_each(table, masks, effort) if masks else []
    effort.conclude()
    return found


def gpu_reason(book: KeyBook, mine: Account, others: Sequence[RunnerUp]) -> list[Reason]:
    """The best plan of another GPU type, by the objective, or why no other type has one."""
    instance = book.instance
    if not others:
        return []
    chosen = instance.pools[int(mine.plan.row.pool[0])].gpu.name
    ready = [other for other in others if other.found is not None]
    if not ready:
        text = " ".join(f"{other.gpu}: {other.why}." for other in others)
        text = f"GPU type {chosen}: no other type has a plan within the limits. {text}"
        return [Reason(decision="gpu", chosen=chosen, because=others[0].limit, text=text)]
    first = min(ready, key=lambda other: other.key)
    assert first.found is not None
    return [compared(instance, mine, Account.of(book, first.found), "gpu", chosen, first.gpu)]


@dataclass(frozen=True, slots=True)
class RunnerUp:
    """The best plan of a GPU type that was not chosen, or why there is none."""

    gpu: str
    found: Plan | None
    key: tuple[float, ...] = ()
    limit: str = ""
    why: str = ""


def runner_ups(table: Table, plan: Plan, asking: Asking | None = None) -> tuple[RunnerUp, ...]:
    """One for each GPU type that was not chosen."""
    asking = asking or Asking()
    return tuple(asking.every(OTHER_TYPES, other_types(table, plan, asking.until)))


def other_types(table: Table, plan: Plan, until: float | None) -> Iterator[RunnerUp]:
    """The same, as they are found."""
    instance = table.instance
    chosen = instance.pools[plan.of("pool")].gpu.name
    every, permits = dict.fromkeys(pool.gpu.name for pool in instance.pools), instance.narrowing.permits
    names = [name for name in every if name != chosen and permits("gpu", name)]
    usual = recompute_families(instance)
    masks = [in_families(usual, of_type(instance, name)) for name in names]
    for name, mask, other in zip(names, masks, proved(table, masks, until), strict=True):
        if other is None:
            yield RunnerUp(name, None, (), *why_none(table, mask, until=until))
        else:
            keys = table.goal.keys(Economy.of(instance, other.row), np.array([other.step]))
            yield RunnerUp(name, other, tuple(float(key[0]) for key in keys))
    for name, precision in instance.without_precision:
        if permits("gpu", name):
            yield RunnerUp(name, None, (), "precision", f"{name} has no {precision}")


def of_type(instance: Instance, name: str) -> Mask:
    """Lets through rows of one GPU type."""
    indices = [i for i, pool in enumerate(instance.pools) if pool.gpu.name == name]
    return lambda rows: np.isin(rows.pool, indices)


def answer(
    table: Table, mine: Account, question: Question, other: Plan | None, until: float | None
) -> Reason:
    """What the best plan that decides otherwise would change. Raises OutOfTime as `why_none` does."""
    if other is None:
        because, text = why_none(table, question.mask, until=until)
        name = label(question.decision)
        sentence = f"{name} {question.chosen}: no plan that decides otherwise is within the limits; {text}."
        return Reason(decision=question.decision, chosen=question.chosen, because=because, text=sentence)
    theirs = Account.of(table.book, other)
    return compared(table.instance, mine, theirs, question.decision, question.chosen, question.value(other))


def compared(
    instance: Instance, mine: Account, theirs: Account, decision: str, chosen: Any, alternative: Any
) -> Reason:
    """What the other plan would change, and which part of the step changes most."""
    also = other_decisions(instance, mine.plan, theirs.plan, decision)
    head = f"{label(decision)} {chosen} -> {alternative}{also}"
    return Difference.of(instance, mine, theirs).reason(decision, chosen, alternative, head)


def microbatch_reason(table: Table, mine: Account) -> Reason | None:
    """The same layout with the next smaller number of micro-batches: why the batch is as large as it is."""
    plan, instance = mine.plan, table.instance
    row = plan.row
    step = int(row.pp[0]) if row.vpp[0] > 1 else 1
    fewer = int(row.m_high[0]) - step
    wanted = instance.narrowing.allowed.get("num_microbatches")
    sequences = int(row.micro_batch[0] * row.dp[0])
    if fewer < 1 or sequences * fewer < instance.min_batch or (wanted and len(wanted) == 1):
        return None
    required = replace(instance.narrowing, allowed={})
    if not required.permits("num_microbatches", fewer) or not required.permits(
        "global_batch", sequences * fewer
    ):
        return None
    other = priced(table.book, one_microbatch_count(row, fewer), plan.stages)
    theirs = Account.of(table.book, other)
    return compared(instance, mine, theirs, "num_microbatches", int(row.m_high[0]), fewer)


def stage_reason(table: Table, mine: Account) -> Reason | None:
    """Uneven stages against the even split of the same layout."""
    plan, instance = mine.plan, table.instance
    row = plan.row
    if row.pp[0] == 1:
        return None
    even = tuple(int(n) for n in plain_layers(instance.architecture.layers, int(row.pp[0]), int(row.vpp[0])))
    again = tuple(min(r, n) for r, n in zip(plan.stages.recomputed, even, strict=True))
    chosen, other = sizes(plan.stages.layers), sizes(even)
    if even == plan.stages.layers:
        return None
    alternative = priced(table.book, row, StagePlan(even, again))
    return compared(instance, mine, Account.of(table.book, alternative), "stages", chosen, other)
