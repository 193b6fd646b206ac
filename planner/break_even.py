"""At which price another pool wins, found by solving for the plan that decides it.

A pool is worth its price as long as a plan that uses it beats the best one without it, within the budget.
What a plan costs is a line in the price of a pool: through 0 if it uses that pool alone, higher by what it
pays for another pool, or by its time where time has a value.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from planner.account import by_money
from planner.choosing import Choosing, P
from planner.explanation import BreakEven
from planner.instance import Instance, Term
from planner.variants import aimed, pool_name, with_limits, with_pool

ROUNDS = 40
SAME = 1e-9
NEAR = 1e-6
"""How near a price is found that value of time and budget decide together; four digits of it are told."""
LEAST = 1e-6
"""Share of today's price below which a pool is as good as free."""
WORSE: dict[Term, str] = {"time": "takes longer", "energy": "takes more energy", "carbon": "emits more"}
"""How a plan of another pool is worse, by what the objective is first about."""


def break_evens(instance: Instance, plan: P, choose: Choosing[P]) -> Iterator[BreakEven]:
    """Of each other pool the price below which it wins, of those of a plan that above which they lose."""
    if len(instance.described) < 2:
        return
    if not by_money(instance) and choose.value(instance, plan) == 0:
        # Nothing emits on a grid that does not: what comes next decides.
        instance = replace(instance, objective=instance.objective[1:] or (("time", 1.0),))
    used = [
        index for own in choose.pools(plan) for index in instance.described if index in instance.variants(own)
    ]
    for index in instance.described:
        if index not in used:
            yield other_pool(instance, plan, index, choose)
    for index in used:
        yield own_pool(instance, plan, index, choose)


def other_pool(instance: Instance, plan: P, index: int, choose: Choosing[P]) -> BreakEven:
    """The price below which the best plan that uses another pool beats the chosen one."""
    pool, chosen = instance.pools[index], (instance, plan)
    common: dict[str, Any] = {"pool": pool.entry, "gpu": pool.gpu.name, "price": pool.price}
    name, price = pool_name(instance, index), price_until(instance, index, chosen, choose)
    if price is None:
        text = (
            f"{name} {choose.wins} at no price: {why_never(instance, index, choose.value(*chosen), choose)}."
        )
        return BreakEven(**common, break_even=None, wins="never", text=text)
    text = (
        f"{name} {choose.wins} below ${price:.4g} a GPU-hour (today ${pool.price:.4g}, "
        f"{abs(price / pool.price - 1):.0%} {'less' if price < pool.price else 'more'})."
    )
    return BreakEven(**common, break_even=price, wins="below", text=text)


def own_pool(instance: Instance, plan: P, index: int, choose: Choosing[P]) -> BreakEven:
    """The price above which the best plan no longer uses a pool: another wins, or the budget is gone."""
    pool, rest = instance.pools[index], others(instance, index)
    common: dict[str, Any] = {"pool": pool.entry, "gpu": pool.gpu.name, "price": pool.price}
    name, rival = pool_name(instance, index), choose.best(rest)
    price = price_until(instance, index, None if rival is None else (rest, rival), choose, plan)
    price = max(price or 0.0, pool.price)  # the chosen plan does today, be it for a tie
    if np.isinf(price):
        text = f"{name} {choose.stays} at any price."
        return BreakEven(**common, break_even=None, wins="always", text=text)
    why = "the budget is not enough" if rival is None else f"{choose.called(rest, rival)} wins"
    today = f"${price:.4g} a GPU-hour (today ${pool.price:.4g})"
    text = f"{name} {choose.stays} up to {today}; above, {why}."
    return BreakEven(**common, break_even=price, wins="above", text=text)


def why_never(instance: Instance, index: int, value: float, choose: Choosing[P]) -> str:
    """Why a pool wins at no price: it has no plan, or its best one is worse in what counts first."""
    free = with_limits(instance, budget=None)
    if choose.using(free, index) is None:
        return choose.why_none(free, index)
    if by_money(instance):
        return "even for nothing none of its plans within the limits is better"
    if choose.using(with_limits(free, **at_most(instance, just_below(value))), index) is not None:
        return "even for nothing its better plans are beyond the budget"
    if choose.using(with_limits(free, **at_most(instance, tied(value))), index) is not None:
        return "its best plan is no better"
    return f"its best plan {WORSE[instance.objective[0][0]]}"


def price_until(
    instance: Instance,
    index: int,
    rival: tuple[Instance, P] | None,
    choose: Choosing[P],
    known: P | None = None,
) -> float | None:
    """The highest price of a pool at which a plan that uses it beats another within the budget.

    inf if at any price, None if at none. Without a rival any plan will do; `known` is one that does today.
    """
    budget, free = instance.limits.budget, with_limits(instance, budget=None)
    if rival is None or not by_money(instance):
        found = [price_of_these(*each, index, choose) for each in better_ones(instance, rival, choose, known)]
        return max((price for price in found if price is not None), default=None)
    value = choose.value(*rival)
    price = price_of(free, index, value, choose, known)
    if price is None or budget is None or instance.lexicographic:
        return price  # what costs less than a plan within the budget is within it
    return price_of_both(instance, index, value, price, choose)


def better_ones(
    instance: Instance, rival: tuple[Instance, P] | None, choose: Choosing[P], known: P | None
) -> list[tuple[Instance, float | None, P | None]]:
    """Where a price matters through the budget alone: the plans that are better, and what they may cost.

    The cheapest of them says the price. What ties is decided by cost where that comes second. A plan that is
    known to be one of them comes third.
    """
    budget, free = instance.limits.budget, aimed(with_limits(instance, budget=None), "cost")
    if rival is None:
        return [(free, budget, known)]
    value = choose.value(*rival)
    less, no_more = (
        with_limits(free, **at_most(instance, most)) for most in (just_below(value), tied(value))
    )
    if [term for term, _ in instance.objective[1:2]] == ["cost"]:
        cost = choose.value(aimed(rival[0], "cost"), rival[1])
        return [(less, budget, None), (no_more, cost, None)]
    return [(less, budget, None)] if known is None else [(no_more, budget, known)]


def price_of_these(
    instance: Instance, most: float | None, known: P | None, index: int, choose: Choosing[P]
) -> float | None:
    """The price up to which such a plan costs no more than that; inf where it may cost anything."""
    if most is not None:
        return price_of(instance, index, most, choose, known)
    return None if known is None and choose.using(instance, index) is None else np.inf


def price_of(
    instance: Instance, index: int, value: float, choose: Choosing[P], known: P | None = None
) -> float | None:
    """The price of a pool up to which a plan that uses it has a value of the objective; None if at none.

    The best value f(p) of such plans is the least of lines in p, one a plan: concave and growing. From the
    plan that is best at p, the price at which that plan has the value is the next p (Newton's step), which is
    never too high, and nothing is better once it does not move. Exact, whatever the number of plans. `known`:
    a plan to start from.
    """
    plan = choose.using(instance, index) if known is None else known
    if plan is None:
        return None
    least = LEAST * instance.pools[index].price
    price = max(price_at(instance, index, plan, value, choose), least)
    for _ in range(ROUNDS):
        plan = choose.using(with_pool(instance, index, price=price), index, plan)
        assert plan is not None, "a known plan is lost"
        higher = price_at(instance, index, plan, value, choose)
        if higher <= price * (1 + SAME):
            return price if price > least else None
        price = higher
    raise AssertionError("prices do not settle")


def price_at(instance: Instance, index: int, plan: P, value: float, choose: Choosing[P]) -> float:
    """The price of a pool at which a plan that uses it has a value; below 0 if it never has."""
    today = instance.pools[index].price
    free, now = (choose.value(with_pool(instance, index, price=price), plan) for price in (0.0, today))
    return (value - free) * today / (now - free)


def price_of_both(
    instance: Instance, index: int, value: float, most: float, choose: Choosing[P]
) -> float | None:
    """The price up to which a plan has a value of the objective and is within the budget; at most `most`.

    Where time has a value, plans that have the value longest may be beyond the budget before. Whether a plan
    has both at a price is found by solving; the price is where that ends, looked for between prices known.
    """
    budget, dollars = instance.limits.budget, aimed(with_limits(instance, budget=None), "cost")
    assert budget is not None
    affordable = price_of(dollars, index, budget, choose)
    if affordable is None:
        return None
    low, high = LEAST * instance.pools[index].price, min(most, affordable)
    price = high * (1 - SAME)
    while high > low * (1 + NEAR):
        plan = choose.using(with_pool(instance, index, price=price), index)
        until = 0.0 if plan is None else price_at(instance, index, plan, value, choose)
        if plan is not None:
            until = min(until, price_at(dollars, index, plan, budget, choose))
        if until < price:
            high = price
        else:
            low = min(until, high)
        price = (low + high) / 2
    return low if low > LEAST * instance.pools[index].price else None


def just_below(value: float) -> float:
    """What is better than a value beyond rounding."""
    return min(value * (1 - SAME), float(np.nextafter(value, -np.inf)))


def tied(value: float) -> float:
    """A value with what rounding may add."""
    return value * (1 + SAME)


def at_most(instance: Instance, value: float) -> dict[str, float]:
    """The limit within which a plan has so much time, energy or carbon, by its name."""
    term = instance.objective[0][0]
    name = "deadline" if term == "time" else term
    known = getattr(instance.limits, name)
    return {name: value if known is None else min(known, value)}


def others(instance: Instance, chosen: int) -> Instance:
    """The instance without one of its pools, in any precision."""
    left = set(range(len(instance.pools))) - set(instance.variants(chosen))
    return replace(instance, pools=tuple(instance.pools[index] for index in sorted(left)))
