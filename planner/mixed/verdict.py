"""Whether a plan on two pools beats the best one on a single pool, by how much, and why or why not."""

from __future__ import annotations

from typing import Any

import numpy as np

from costmodel.stage import Array
from planner import economics, solution
from planner.account import changes, driver_of
from planner.bound.mix import LayerMix
from planner.bound.quick import whole_model
from planner.economics import Economy
from planner.errors import TimeLimit
from planner.instance import Instance
from planner.mixed.answer import reported
from planner.mixed.best import BestOfPairs, best_of_pairs
from planner.mixed.plan import MixedPlan, mixed_of
from planner.mixing import Form
from planner.reason_words import days_words, money_words, part_name
from planner.search import Effort, Plan, goal_of
from planner.solution import MixingProof, MixingVerdict, Reason, Solution

WORDS: dict[Form, str] = {"stages": "pipeline stages", "replicas": "replicas"}
NONE_IN_TIME = "none on two pools was found in time, and there may be one"
CLEAR = 0.02
"""Tokens whose price differs by less than this share cost the same."""


def with_mixing(instance: Instance, found: Solution, best: Plan | None, search: BestOfPairs) -> Solution:
    """The solution with the best plan on two pools in it: first where it is better than `best`.

    Raises TimeLimit when there is no plan, and the time passes before that is proved of two pools.
    """
    plan, mine = search.best, None if best is None else keys_of(instance, best)
    better, proof = is_better(search, mine), proof_of(search)
    if plan is None:
        if best is None and not search.complete:
            raise TimeLimit(f"no single pool has a plan within the limits; {NONE_IN_TIME}")
        text = "No plan on two pools is within the limits." if search.complete else f"{NONE_IN_TIME}."
        verdict = MixingVerdict(better=False, proof=proof, text=text[0].upper() + text[1:])
        return found.model_copy(update={"mixing": verdict, **_proved(search, found, mine, better)})
    single = found.plans[0] if found.plans else None
    told = reported(instance, plan, reasons(instance, plan, single, search.effort) if better else ())
    verdict = MixingVerdict(
        better=better,
        effect={} if single is None else effect_of(told, single),
        plan=None if better else told,
        proof=proof,
        text=words(
            instance, plan, told, single, better, found.status != "feasible" if better else search.complete
        ),
    )
    first = {"plans": (told, *found.plans), "conflict": None} if better else {}
    proved = _proved(search, found, mine, better)
    return found.model_copy(update={"mixing": verdict, **first, **proved})


def keys_of(instance: Instance, plan: Plan) -> tuple[Array, ...]:
    """Sort keys of a plan on one pool, as the search on two pools has them."""
    economy = Economy.of(instance, plan.row, surely=False)
    return goal_of(instance).keys(economy, np.array([plan.step]))


def is_better(search: BestOfPairs, mine: tuple[Array, ...] | None) -> bool:
    """Whether the mixed plan comes before the best plan of a single pool in the order of the goal."""
    if search.achieved is None or mine is None:
        return search.achieved is not None
    both = tuple(np.concatenate(pair) for pair in zip(search.achieved, mine, strict=True))
    first, second = economics.ranks(both).tolist()
    return first < second


def _proved(
    search: BestOfPairs, found: Solution, mine: tuple[Array, ...] | None, better: bool
) -> dict[str, Any]:
    """Status and proof of single and mixed plans together: the gap is to the lower of both bounds."""
    chosen = search.achieved if better else mine
    if chosen is None:
        return {}
    value = float(chosen[0][0])
    alone = float("inf") if mine is None else float(mine[0][0]) * (1 - found.proof.gap)
    mixed = float("inf") if search.complete else search.least
    gap = economics.gap(value, min(alone, mixed))
    surely = found.status != "feasible" and (search.complete or search.least > value)
    return {
        "status": "optimal" if surely else "feasible",
        "proof": found.proof.model_copy(update={"gap": gap}),
    }


def proof_of(search: BestOfPairs) -> MixingProof:
    """What was looked at."""
    return MixingProof(
        node_pairs=search.cells,
        layouts=search.layouts,
        solved=search.solved,
        gap=search.gap,
        seconds=search.seconds,
    )


def effect_of(told: solution.Plan, single: solution.Plan) -> dict[str, float]:
    """The mixed plan minus the best one on a single pool."""
    mine, theirs = told.estimate, single.estimate
    return {
        "days": mine.days - theirs.days,
        "dollars": mine.dollars - theirs.dollars,
        "mfu": mine.mfu - theirs.mfu,
        "step_time_s": mine.step_time_s - theirs.step_time_s,
        "num_gpus": told.decisions.num_gpus - single.decisions.num_gpus,
    }


def words(
    instance: Instance,
    plan: MixedPlan,
    told: solution.Plan,
    single: solution.Plan | None,
    better: bool,
    surely: bool = True,
) -> str:
    """The verdict in a sentence or two.

    `surely`: whether the plan that is not chosen is the best of its kind, or the best that was found in time.
    """
    name = f"{told.decisions.machines} as {WORDS[plan.form]} of one run"
    if single is None:
        return f"No single pool has a plan within the limits, {name} has. {worth_words(instance, plan)}"
    effect = effect_of(told, single)
    change = f"{days_words(effect['days'])}, {money_words(effect['dollars'])}"
    if better:
        best = f"the best plan {'' if surely else 'found '}on one pool ({single.decisions.machines})"
        return f"{name}: {change} than {best}. {worth_words(instance, plan)}"
    why = grown_words(told, single)
    best = "The best" if surely else "The best that was found in time"
    return f"{best} would be {name}: {change} than the chosen plan. {worth_words(instance, plan)}{why}"


def worth_words(instance: Instance, plan: MixedPlan) -> str:
    """What a GPU of the slower type does for its price, by the time that the whole model takes on each."""
    work = speeds(instance, plan)
    slow = int(work[1] > work[0])
    pools = [instance.pools[index] for index in plan.pools]
    slower, faster = pools[slow], pools[1 - slow]
    does = work[1 - slow] / work[slow]
    asks = slower.price / faster.price if faster.price else float("inf")
    ratio = asks / does
    told = "as much" if abs(ratio - 1) < CLEAR else f"{ratio:.2f} times as much"
    return (
        f"{_an(slower.gpu.name)} does {does:.2f} of the work of {_an(faster.gpu.name, False)} "
        f"for {asks:.2f} of its price, so a token costs {told} on it."
    )


def _an(name: str, begins: bool = True) -> str:
    """A GPU with its article: an H20, a B200."""
    article = "an" if name[0].upper() in "AEFHILMNORSX" else "a"
    return f"{article.capitalize() if begins else article} {name}"


def speeds(instance: Instance, plan: MixedPlan) -> tuple[float, float]:
    """Seconds a micro-batch that the whole model takes on a rank of each pool, at the plan's layout."""
    mixed, layers = mixed_of(instance, plan), LayerMix.of(instance.architecture).totals
    times: list[Array] = [whole_model(mixed.rates(index).work, layers) for index in (0, 1)]
    return float(times[0]), float(times[1])


def grown_words(told: solution.Plan, single: solution.Plan) -> str:
    """Which part of the run grows most, in days."""
    grown = changes(days_of(single), days_of(told))
    name = max(grown, key=lambda each: grown[each])
    return f" What grows most is {part_name(name)}: {grown[name]:+.1f} days." if grown[name] > 0 else ""


def days_of(plan: solution.Plan) -> dict[str, float]:
    """Days of the run by part of the step."""
    of = plan.estimate
    return {name: of.days * part / of.step_time_s for name, part in of.breakdown_s.items()}


def reasons(
    instance: Instance, plan: MixedPlan, single: solution.Plan | None, effort: Effort
) -> tuple[Reason, ...]:
    """Why two pools, and why in this form."""
    assert instance.mixing is not None
    told = reported(instance, plan)
    found = []
    if single is not None:
        found.append(_reason("gpu", told.decisions.gpu, single.decisions.gpu, told, single))
    others: tuple[Form, ...] = tuple(form for form in instance.mixing.forms if form != plan.form)
    if others and not effort.out_of_time:
        search = best_of_pairs(instance, effort, others)
        other = search.best
        if not search.complete:
            return tuple(found)  # nothing is proved of the other form
        if other is None:
            text = f"Form {plan.form}: no plan with {WORDS[others[0]]} of both types is within the limits."
            found.append(Reason(decision="mixed", chosen=plan.form, because="limits", text=text))
        else:
            found.append(_reason("mixed", plan.form, other.form, told, reported(instance, other)))
    return tuple(found)


def _reason(
    decision: str, chosen: str, alternative: str, mine: solution.Plan, theirs: solution.Plan
) -> Reason:
    effect = {name: -value for name, value in effect_of(mine, theirs).items() if name != "num_gpus"}
    effect["memory_gib"] = theirs.estimate.memory_gib.total - mine.estimate.memory_gib.total
    grown = changes(days_of(mine), days_of(theirs))
    driver = driver_of(grown)
    head = f"{'GPU types' if decision == 'gpu' else 'Form'} {chosen} -> {alternative}"
    change = f"{days_words(effect['days'])}, {money_words(effect['dollars'])}"
    most = f"{part_name(driver)} {grown[driver]:+.2f} days"
    text = f"{head} ({theirs.decisions.machines}): {change}; {most}."
    return Reason(
        decision=decision,
        chosen=chosen,
        alternative=alternative,
        effect=effect,
        because=part_name(driver),
        text=text,
    )
