"""Whether a plan on two pools beats the best one on a single pool, by how much, and why or why not."""

from __future__ import annotations

from typing import Any

from costmodel.stage import Array
from planner import economics, solution
from planner.account import changes
from planner.asking import Asking
from planner.bound.mix import LayerMix
from planner.bound.quick import whole_model
from planner.errors import TimeLimit
from planner.instance import Instance
from planner.mixed.answer import reported
from planner.mixed.best import BestOfPairs, Keys
from planner.mixed.plan import MixedPlan, mixed_of
from planner.mixed.reasons import effect_of, first_wins, keys_if_any, reasons, shares_of
from planner.mixed.tally import Tally
from planner.mixing import Form
from planner.reason_words import days_words, money_words, part_name
from planner.search import Plan, Table
from planner.solution import Fates, MixingProof, MixingVerdict, Solution

WORDS: dict[Form, str] = {"stages": "pipeline stages", "replicas": "replicas"}
NONE_IN_TIME = "none on two pools was found in time, and there may be one"
WHY = "what each decision of the plan on two pools would cost otherwise"
"""The question, as it is told of where the time was out first."""
CLEAR = 0.02
"""Tokens whose price differs by less than this share cost the same."""


def with_mixing(
    found: Solution, best: Plan | None, search: BestOfPairs, table: Table, asking: Asking
) -> Solution:
    """The solution with the best plan on two pools in it: first where it is better than `best` of the table.

    Raises TimeLimit when there is no plan, and the time passes before that is proved of two pools.
    """
    instance, plan = search.instance, search.best
    mine = keys_if_any(instance, best)
    better = is_better(search, mine)
    proof = proof_of(search, search.achieved if better else mine)
    if plan is None:
        if best is None and not search.complete:
            raise TimeLimit(f"no single pool has a plan within the limits; {NONE_IN_TIME}")
        text = "No plan on two pools is within the limits." if search.complete else f"{NONE_IN_TIME}."
        verdict = MixingVerdict(better=False, proof=proof, text=text[0].upper() + text[1:])
        return found.model_copy(update={"mixing": verdict, **_proved(search, found, mine, better)})
    single = found.plans[0] if found.plans else None
    why = asking.every(WHY, reasons(search, table, best, asking.until)) if better else ()
    told = reported(instance, plan, tuple(why))
    verdict = MixingVerdict(
        better=better,
        effect={} if single is None else against(told, single),
        plan=None if better else told,
        proof=proof,
        text=words(
            instance, plan, told, single, better, found.status != "feasible" if better else search.complete
        ),
    )
    first = {"plans": (told, *found.plans), "conflict": None} if better else {}
    proved = _proved(search, found, mine, better)
    return found.model_copy(update={"mixing": verdict, **first, **proved})


def is_better(search: BestOfPairs, mine: Keys | None) -> bool:
    """Whether the mixed plan comes before the best plan of a single pool in the order of the goal."""
    if search.achieved is None or mine is None:
        return search.achieved is not None
    return first_wins(search.achieved, mine)


def _proved(search: BestOfPairs, found: Solution, mine: Keys | None, better: bool) -> dict[str, Any]:
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


def proof_of(search: BestOfPairs, chosen: Keys | None) -> MixingProof:
    """What was looked at, with how far the plan that is chosen, by its sort keys, may be from the best."""
    return MixingProof(
        node_pairs=search.pairs.number,
        pairs=fates(search.pairs),
        layouts=search.written.number,
        written=fates(search.written),
        solved=search.solved,
        gap=search.gap(chosen),
        seconds=search.seconds,
    )


def fates(of: Tally) -> Fates:
    """What became of pairs of node counts, or of layouts."""
    return Fates(rejected=of.rejected, bounded=of.left, opened=of.opened)


def against(told: solution.Plan, single: solution.Plan) -> dict[str, float]:
    """The mixed plan minus the best one on a single pool."""
    gpus = told.decisions.num_gpus - single.decisions.num_gpus
    return effect_of(single, told) | {"num_gpus": gpus}


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
    effect = against(told, single)
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
    grown = changes(shares_of(single, False), shares_of(told, False))
    name = max(grown, key=lambda each: grown[each])
    return f" What grows most is {part_name(name)}: {grown[name]:+.1f} days." if grown[name] > 0 else ""
