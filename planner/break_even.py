"""At which price another pool wins, found by solving for the plan that decides it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from planner.account import by_money
from planner.economics import Economy
from planner.explanation import BreakEven
from planner.instance import Instance, Term
from planner.search import Plan, Table, goal_of
from planner.shortfall import why_none
from planner.space.recompute import recompute_families
from planner.variants import best_plan, objective_value, only, with_limits, with_pool

ROUNDS = 40
SAME = 1e-9
WORSE: dict[Term, str] = {"time": "takes longer", "energy": "takes more energy", "carbon": "emits more"}
"""How a plan of another pool is worse, by what the objective is first about."""


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
    price, better = (
        (price_of(cheap, objective_value(instance, plan)), True)
        if by_money(instance)
        else price_within_budget(instance, plan, index)
    )
    if price is None or not price > 0:
        text = f"{pool.gpu.name} wins at no price: {why_never(cheap, better)}."
        return BreakEven(**common, break_even=None, wins="never", text=text)
    text = (
        f"{pool.gpu.name} wins below ${price:.4g} a GPU-hour (today ${pool.price:.4g}, "
        f"{abs(price / pool.price - 1):.0%} {'less' if price < pool.price else 'more'})."
    )
    return BreakEven(**common, break_even=price, wins="below", text=text)


def why_never(cheap: Instance, better: bool) -> str:
    """Why a pool wins at no price: it has no plan, or its best one is worse in what counts first."""
    if not better and best_plan(cheap) is not None:
        return f"its best plan {WORSE[cheap.objective[0][0]]}"
    table = Table.of(cheap, goal_of(cheap), recompute_families(cheap))
    return why_none(table, lambda rows: True)[1]


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


def price_within_budget(instance: Instance, plan: Plan, index: int) -> tuple[float | None, bool]:
    """The price at which a pool's better plans come within the budget, and whether it has better plans.

    For objectives that are not about money first: there a price matters through the budget alone, and
    decides nothing without one. The cheapest plan that is better than the chosen one says it.
    """
    better = with_limits(only(instance, index), budget=None, **just_below(instance, plan))
    better = replace(better, objective=(("cost", 1.0),), lexicographic=True)
    if best_plan(better) is None:
        return None, False
    budget = instance.limits.budget
    return (None if budget is None else price_of(better, budget)), True


def just_below(instance: Instance, plan: Plan) -> dict[str, float]:
    """The limit within which a plan has less time, energy or carbon than the chosen one, by its name."""
    term = instance.objective[0][0]
    name = "deadline" if term == "time" else term
    economy = Economy.of(instance, plan.row, surely=False)
    total = float(economy.total(term, economy.seconds(np.array([plan.step])))[0])
    known = getattr(instance.limits, name)
    less = min(total * (1 - SAME), np.nextafter(total, -np.inf))
    return {name: less if known is None else min(known, less)}


def own_pool(instance: Instance, plan: Plan) -> BreakEven:
    """The price above which the chosen pool is no longer the best: another wins, or the budget is gone."""
    chosen = plan.of("pool")
    pool, rest = instance.pools[chosen], others(instance, chosen)
    common: dict[str, Any] = {"pool": pool.entry, "gpu": pool.gpu.name, "price": pool.price}
    rival, limits = best_plan(rest), []
    if rival is not None and by_money(instance):
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
