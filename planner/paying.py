"""What each way to pay would cost for a plan, where they cross, and what a point of MFU is worth."""

from __future__ import annotations

from costmodel.money import Ownership, owned_price, worth_of_mfu
from costmodel.units import DAY
from planner.answer import predicted
from planner.cheaper import cheaper_ways
from planner.english import counted
from planner.fine_tune import FineTune
from planner.fine_tuning import fine_tuning
from planner.instance import Instance, Limits
from planner.outlook import Outlook
from planner.paid import Paid, percent, ways_to_pay, words
from planner.payment import Paying, Way
from planner.search import Plan
from planner.sureness import band_of_plan


def paying_of(instance: Instance, plan: Plan, fine_tune: FineTune | None = None) -> Paying | None:
    """Ways to pay for a plan; None where the instance does not say what surrounds its GPUs."""
    ahead = Outlook.of(instance, plan)
    if ahead.pool.site is None:
        return None
    found, unpriced = ways_to_pay(ahead, ahead.pool.site, band_of_plan(instance, plan))
    ways = [way_of(paid, instance.limits) for paid in found]
    cost = next(way.dollars for way in ways if way.chosen)
    mfu = float(predicted(instance, plan).mfu)
    point = cost * float(worth_of_mfu(mfu))
    return Paying(
        ways=tuple(sorted(ways, key=lambda way: way.dollars)),
        unpriced=tuple(unpriced),
        cheaper=tuple(cheaper_ways(found, instance.limits.deadline)),
        mfu_point_dollars=point,
        fine_tune=fine_tuning(fine_tune, ahead, mfu, cost) if fine_tune else None,
        text=(f"One point of MFU more or less is worth ${point:,.0f}.",),
    )


def way_of(paid: Paid, limits: Limits) -> Way:
    """One way to pay as an explanation has it."""
    run, parts = paid.run(), owned_price(paid.ownership) if paid.ownership else None
    way = Way(
        kind=paid.kind,
        chosen=paid.chosen,
        assumed=paid.assumed,
        price=paid.tariff.price,
        price_parts={}
        if parts is None
        else {"capital": parts.capital, "power": parts.power, "upkeep": parts.upkeep, "staff": parts.staff},
        committed_days=paid.tariff.committed_days,
        lost_a_month=paid.tariff.lost_a_month,
        days=run.seconds / DAY,
        dollars=paid.dollars(run),
        breaks=broken(paid, run, limits),
        text="",
    )
    return way.model_copy(update={"text": way_words(way, paid.ownership)})


def broken(paid: Paid, run: Outlook, limits: Limits) -> tuple[str, ...]:
    """Limits that the run breaks if it is paid for so; deadline and budget at their confidence."""
    pool, margin, meter = run.pool, paid.margin(run), run.energy(paid.site)
    beyond = {
        "deadline": limits.deadline is not None and run.seconds * margin > limits.deadline,
        "budget": limits.budget is not None and paid.dollars(run, margin) > limits.budget,
        "energy": limits.energy is not None and float(meter.kwh) > limits.energy,
        "carbon": limits.carbon is not None and float(meter.tonnes) > limits.carbon,
        "nodes": paid.gpus(run) > (pool.nodes or pool.max_nodes) * pool.fabric.gpus_per_node,
    }
    return tuple(name for name, is_so in beyond.items() if is_so)


def way_words(way: Way, ownership: Ownership | None) -> str:
    """Reserved: $1,421,019; 2.00 USD/gpu-hour, 56.9 days."""
    said = [f"{way.price:,.2f} USD/gpu-hour{' (usual)' if way.assumed else ''}, {way.days:.1f} days"]
    if way.committed_days:
        said.append(f"paid for {counted(way.committed_days, 'day', 'g')} in any case")
    if way.lost_a_month:
        said.append(f"{percent(way.lost_a_month)} of nodes taken back a month")
    if ownership is not None:
        parts = ", ".join(f"{name} {value:.2f}" for name, value in way.price_parts.items())
        said.append(f"busy {percent(ownership.busy)} of {ownership.years:g} years: {parts}")
    if way.breaks:
        said.append(f"beyond the {' and the '.join(way.breaks)}")
    head = words(way.kind).capitalize() + (", as planned" if way.chosen else "")
    return f"{head}: ${way.dollars:,.0f}; {'; '.join(said)}."
