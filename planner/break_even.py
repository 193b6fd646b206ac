"""At which price another pool wins, found by solving for the plan that decides it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from costmodel.units import DAY
from planner.account import Account
from planner.explanation import BreakEven
from planner.instance import Instance
from planner.search import Plan, Table, goal_of
from planner.shortfall import why_none
from planner.space.recompute import recompute_families
from planner.variants import best_plan, objective_value, only, with_limits, with_pool

ROUNDS = 40
SAME = 1e-9


def break_evens(instance: Instance, plan: Plan) -> list[BreakEven]:
    """For each other pool the price below which it wins, and for the chosen one that above which it loses."""
    own = instance.variants(plan.of("pool"))
    found = [other_pool(instance, plan, index) for index in instance.described if index not in own]
    return [*found, own_pool(instance, plan)] if found else []


def other_pool(instance: Instance, plan: Plan, index: int) -> BreakEven:
    """The price below which another pool's best plan beats the chosen one."""
    pool = instance.pools[index]
    common: dict[str, Any] = {"pool": pool.entry, "gpu": pool.gpu.name, "price": pool.price}
    cheap = with_limits(only(instance, index), budget=None)
    price, quick = (
        price_in_time(instance, plan, index)
        if by_time(instance)
        else (price_of(cheap, objective_value(instance, plan)), True)
    )
    if price is None or not price > 0:
        table = Table.of(cheap, goal_of(cheap), recompute_families(cheap))
        why = "its fastest plan takes longer" if quick is False else why_none(table, lambda rows: True)[1]
        text = f"{pool.gpu.name} wins at no price: {why}."
        return BreakEven(**common, break_even=None, wins="never", text=text)
    text = (
        f"{pool.gpu.name} wins below ${price:.4g} a GPU-hour (today ${pool.price:.4g}, "
        f"{abs(price / pool.price - 1):.0%} {'less' if price < pool.price else 'more'})."
    )
    return BreakEven(**common, break_even=price, wins="below", text=text)


def by_time(instance: Instance) -> bool:
    """Whether only time counts, so that a price matters through the budget alone."""
    return instance.lexicographic and instance.objective[0][0] == "time"


def price_of(alone: Instance, value: float) -> float | None:
    """The price at which a pool alone has a plan as good as a value of the objective; None if at none.

    The best value f(p) of a pool is the least of lines in p, one a plan: concave and growing. From the
    plan that is best at p, the price at which that plan has the value is the next p (Newton's step), and
    nothing is better once it does not move. Exact, whatever the number of plans.
    """
    price = alone.pools[0].price
    for _ in range(ROUNDS):
        now = with_pool(alone, 0, price=price)
        plan = best_plan(now)
        if plan is None:
            return None
        # At p = 0 nothing but the value of time is left of a plan.
        free = objective_value(with_pool(alone, 0, price=0.0), plan)
        slope = (objective_value(now, plan) - free) / price
        higher = (value - free) / slope
        if higher <= 0:
            return None
        if abs(higher - price) <= SAME * price:
            return higher
        price = higher
    raise AssertionError("prices do not settle")


def price_in_time(instance: Instance, plan: Plan, index: int) -> tuple[float | None, bool]:
    """The price at which a pool's faster plans come within the budget, and whether it has faster plans.

    Without a budget price decides nothing. The cheapest plan that is faster than the chosen one says it.
    """
    seconds = Account.within(instance, plan).days * DAY
    limits = replace(instance.limits, budget=None, deadline=seconds * (1 - SAME))
    faster = replace(only(instance, index), limits=limits, objective=(("cost", 1.0),), lexicographic=True)
    cheapest = best_plan(faster)
    if cheapest is None:
        return None, False
    budget = instance.limits.budget
    if budget is None:
        return None, True
    cost = Account.within(faster, cheapest).dollars
    return faster.pools[0].price * budget / cost, True


def own_pool(instance: Instance, plan: Plan) -> BreakEven:
    """The price above which the chosen pool is no longer the best: another wins, or the budget is gone."""
    chosen = plan.of("pool")
    pool, rest = instance.pools[chosen], others(instance, chosen)
    common: dict[str, Any] = {"pool": pool.entry, "gpu": pool.gpu.name, "price": pool.price}
    rival, limits = best_plan(rest), []
    if rival is not None and not by_time(instance):
        alone = with_limits(only(instance, chosen), budget=None)
        limits.append((price_of(alone, objective_value(rest, rival)), f"{gpu_of(rest, rival)} wins"))
    if instance.limits.budget is not None:
        spent = with_limits(only(instance, chosen), budget=None)
        spent = replace(spent, objective=(("cost", 1.0),), lexicographic=True)
        limits.append((price_of(spent, instance.limits.budget), "the budget is not enough"))
    known = [(price, why) for price, why in limits if price is not None]
    if not known:
        text = f"{pool.gpu.name} stays the best at any price."
        return BreakEven(**common, break_even=None, wins="always", text=text)
    price, why = min(known)
    today = f"${price:.4g} a GPU-hour (today ${pool.price:.4g})"
    text = f"{pool.gpu.name} stays the best up to {today}; above, {why}."
    return BreakEven(**common, break_even=price, wins="above", text=text)


def others(instance: Instance, chosen: int) -> Instance:
    """The instance without one of its pools, in any precision."""
    left = set(range(len(instance.pools))) - set(instance.variants(chosen))
    return replace(instance, pools=tuple(instance.pools[index] for index in sorted(left)))


def gpu_of(instance: Instance, plan: Plan) -> str:
    """GPU type of a plan."""
    return instance.pools[plan.of("pool")].gpu.name
