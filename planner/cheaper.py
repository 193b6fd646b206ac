"""Where one way to pay for a plan becomes cheaper than another, one figure changed at a time."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf, isfinite

from costmodel.goodput.failures import DAYS_A_MONTH, lost_share, stops_a_month
from costmodel.money import (
    HOURS_PER_YEAR,
    busy_share_to_own,
    days_to_own,
    days_until_reserved_pays,
    longest_window_worth,
    node_price_to_own,
    stops_until,
)
from costmodel.units import DAY
from planner.paid import Paid, percent, words
from planner.payment import Cheaper

HOURS_A_MONTH = 24.0 * DAYS_A_MONTH


def cheaper_ways(found: list[Paid], deadline: float | None) -> Iterator[Cheaper]:
    """Reserved against on demand, spot against both, owned against all that is rented."""
    by = {paid.kind: paid for paid in found}
    rented = [by[kind] for kind in ("on_demand", "reserved", "spot") if kind in by]
    if "reserved" in by and "on_demand" in by:
        yield reserved(by["reserved"], by["on_demand"])
    if "spot" in by:
        yield from (spot(by["spot"], other, deadline) for other in rented if other.kind != "spot")
    if "owned" in by:
        yield from (owned(by["owned"], other) for other in rented)


def reserved(way: Paid, than: Paid) -> Cheaper:
    """A window costs its price for all of it, on demand as long as the run lasts."""
    figures = {"price": way.rent_like(than) * min(1.0, used_of(way))}
    low, high = way.tariff.price, than.tariff.price
    text = f"Reserved never costs less than on demand at {low:.2f} against {high:.2f} USD/gpu-hour."
    if low < high:
        days = way.run().seconds / DAY
        figures["window_share"] = float(days_until_reserved_pays(1.0, low, high))
        figures["longest_window_days"] = float(longest_window_worth(days, low, high))
        text = (
            f"Reserved costs less than on demand if {figures['window_share']:.0%} of its window is used or "
            f"more: for this run, windows up to {figures['longest_window_days']:.1f} days"
            f"{said_window(way)}; or below {figures['price']:.2f} USD/gpu-hour."
        )
    return told(way, than, figures, text)


def used_of(way: Paid) -> float:
    """Days of the run for each day of its window."""
    window = way.tariff.committed_days
    return way.run().seconds / DAY / window if window else 1.0


def said_window(way: Paid) -> str:
    """The window that there is."""
    window = way.tariff.committed_days
    return f" (it is {window:g})" if window else ""


def spot(way: Paid, than: Paid, deadline: float | None) -> Cheaper:
    """Nodes that are taken back make the run longer, until it costs as much."""
    other = than.dollars(than.run())
    figures = {"price": way.rent_like(than)}
    until = stops_until(lambda stops: way.dollars(way.run(stops)), other)
    price = f"{figures['price']:.2f} USD/gpu-hour"
    head = f"Spot costs less than {words(than.kind)}"
    if until is None:
        why = "nothing is lost under assume_mfu" if not way.ahead.stops else "its price makes up for it"
        return told(way, than, figures, f"{head} however often nodes are taken back, as {why}.")
    if until == 0:
        low, high = apart(figures["price"], way.tariff.price)
        text = f"{head} only below {low} USD/gpu-hour: it is {high}."
        return told(way, than, figures, text)
    often = {
        "stops_a_month": until,
        "lost_a_month": lost_share(until),
        "hours_between": HOURS_A_MONTH / until,
    }
    figures |= often
    today = HOURS_A_MONTH / stops if (stops := stops_a_month(way.tariff.lost_a_month)) else 0.0
    text = (
        f"{head} until each node is taken back every {figures['hours_between']:,.3g} h"
        f"{f' (today {today:,.4g} h)' if today else ''}, or its price reaches {price}."
    )
    return told(way, than, figures, text + in_time(way, deadline, figures))


def apart(low: float, high: float) -> tuple[str, str]:
    """Two prices with as many digits as tell them apart."""
    digits = next((d for d in range(2, 6) if f"{low:.{d}f}" != f"{high:.{d}f}"), 2)
    return f"{low:.{digits}f}", f"{high:.{digits}f}"


def in_time(way: Paid, deadline: float | None, figures: dict[str, float]) -> str:
    """The rate at which the deadline breaks, where it does before spot is dearer."""
    if deadline is None:
        return ""

    def surely(stops: float) -> float:
        run = way.run(stops)
        return run.seconds * way.margin(run) if isfinite(run.seconds) else inf

    until = stops_until(surely, deadline)
    if until is None or until >= figures["stops_a_month"]:
        return ""
    if until == 0:
        return " The deadline does not hold even if none is."
    figures["hours_between_in_time"] = HOURS_A_MONTH / until
    return f" The deadline holds until every {HOURS_A_MONTH / until:,.3g} h."


def owned(way: Paid, than: Paid) -> Cheaper:
    """A purchase is spread over the hours in which it trains."""
    of, rent = way.ownership, way.rent_like(than)
    assert of is not None, "what is owned has been bought"
    share, days, node = busy_share_to_own(of, rent), days_to_own(of, rent), node_price_to_own(of, rent)
    figures = {"price": rent} | ({"node_price": node} if node > 0 else {})
    other = f"a node costs less than ${node:,.0f} (taken: ${of.node:,.0f})" if node > 0 else ""
    above = f"{than.tariff.price * way.tariff.price / rent:,.2f} USD/gpu-hour are paid there"
    last = f"{other}, or more than {above}" if other else f"more than {above}"
    if not 0 < share <= 1:
        text = f"Owned does not cost less than {words(than.kind)}, however busy, unless {last}."
        return told(way, than, figures, text)
    figures |= {"busy_share": share, "hours_a_year": share * HOURS_PER_YEAR, "paid_back_days": days}
    text = (
        f"Owned costs less than {words(than.kind)} if the GPUs train {share:.0%} of their {of.years:g} years "
        f"or more ({share * HOURS_PER_YEAR:,.0f} h a year; taken: {percent(of.busy)}), {last}. What is "
        f"bought is paid back after {days:,.0f} days of training."
    )
    return told(way, than, figures, text)


def told(way: Paid, than: Paid, figures: dict[str, float], text: str) -> Cheaper:
    """As an explanation has it."""
    mine, theirs = way.dollars(way.run()), than.dollars(than.run())
    figures["than_price"] = than.tariff.price * mine / theirs
    return Cheaper(way=way.kind, than=than.kind, today=mine < theirs, figures=figures, text=text)
