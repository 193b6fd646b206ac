"""Ways to pay for a plan: each figure held against arithmetic on a sheet of paper, or a problem solved again."""

from __future__ import annotations

import json
from functools import cache
from math import exp, expm1, inf, log
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from planner.cli.app import app
from planner.errors import InvalidInput
from planner.explained import explained
from planner.explanation import Explanation
from planner.payment import Cheaper, Paying, Way
from planner.problem import load_problem, parse_problem
from planner.solution import Plan
from planner.solve import solve

DAY, HOUR = 86400.0, 3600.0
SMALL: dict[str, Any] = {
    "name": "small",
    "model": {
        "name": "small", "layers": 9, "hidden": 2048, "ffn": 8192, "heads": 16, "kv_heads": 8,
        "head_dim": 128, "vocab": 32000,
    },
    "training": {"tokens": "400B", "seq_len": 4096, "global_batch": "64 sequences"},
    "hardware": {"gpu": "H800", "nodes": {"max": 4}, "price": "2.00 USD/gpu-hour"},
    "limits": {"deadline": "40 days", "budget": "30k USD"},
    "search": {"tp": [1, 2], "cp": [1], "pp": [1, 2], "vpp": 1, "micro_batch": [2]},
    "reliability": {
        "failures": "5000 h", "planned": "100000 h", "detection": "3 min", "relaunch": "5 min", "warm_up": "1 min",
    },
    "storage": {"write": "10 GB/s", "read": "20 GB/s"},
}  # fmt: skip
PARAMETERS = 9 * (2048 * (16 + 2 * 8 + 16) * 128 + 3 * 2048 * 8192 + 2 * 2048) + 2 * 32000 * 2048 + 2048
OWNED = "{kind: owned, node: 200k USD, network: 40k USD, years: 5 years, busy: 50%, staff: 100 USD/year}"
OFFERS = f"{{kind: reserved, window: 30 days, instead: [{OWNED}, {{kind: spot, price: 1.10 USD/gpu-hour}}]}}"


@cache
def explanation(*settings: tuple[str, str]) -> Explanation:
    problem = parse_problem(SMALL, [(key, yaml.safe_load(text)) for key, text in settings])
    return explained(problem, parts=["paying"])


def paying(*settings: tuple[str, str]) -> Paying:
    found = explanation(*settings).paying
    assert found is not None
    return found


def way(kind: str, *settings: tuple[str, str]) -> Way:
    return next(each for each in paying(*settings).ways if each.kind == kind)


def cheaper(kind: str, than: str, *settings: tuple[str, str]) -> Cheaper:
    return next(each for each in paying(*settings).cheaper if (each.way, each.than) == (kind, than))


def seconds(plan: Plan, stops_a_month: float = 0.0) -> float:
    """The run by hand: Daly's time with a write beside training, at its best interval, and planned stops."""
    n, size = plan.decisions.num_gpus, 14 * PARAMETERS
    mtbf = 1 / (n / (5000 * HOUR) + n / 8 * stops_a_month / (720 * HOUR))
    stall, write = 3 + size / (n * 20e9), size / 10e9
    again = 300 + size / 20e9 + 60
    restart = 180 + again
    low, high = 0.0, 1 - 1e-12
    for _ in range(200):  # -ln(1 - x) - x = s/M
        x = (low + high) / 2
        low, high = (x, high) if -log(1 - x) - x < stall / mtbf else (low, x)
    tau = max(x * mtbf, write - stall)
    slow = mtbf * exp((restart + write) / mtbf) * expm1(max(tau + stall, write) / mtbf) / tau
    slow *= 1 + n / (100000 * HOUR) * (stall + write + again)
    steps = 400e9 / (plan.decisions.global_batch * 4096)
    return steps * plan.estimate.step_time_s * slow + again


def test_each_way_costs_what_a_sheet_of_paper_says() -> None:
    plan, n = explanation().plan, explanation().plan.decisions.num_gpus
    hours = seconds(plan) / HOUR
    own = (280e3 + 74e3) / 8 / 8760
    # 85 % of eight H800 at 700 W and what a measured HGX node draws beside its GPUs, at the usual PUE and price.
    power = (8 * 0.85 * 700 + 8400 - 8 * 700) / 8 / 1000 * 1.2 * 0.10
    prices = {"on_demand": 3.0, "reserved": 2.0, "owned": own / 4 + power + own * 0.03 + 200 / 8760}
    for kind, price in prices.items():
        assert way(kind).price == pytest.approx(price, rel=2e-2 if kind == "owned" else 1e-12)
        assert way(kind).days == pytest.approx(hours / 24, rel=1e-9)
        assert way(kind).dollars == pytest.approx(n * hours * way(kind).price, rel=1e-9)
    assert sum(way("owned").price_parts.values()) == pytest.approx(way("owned").price)
    on_spot = seconds(plan, -log(1 - 0.2)) / HOUR
    assert on_spot > hours
    assert way("spot").days == pytest.approx(on_spot / 24, rel=1e-9)
    assert way("spot").dollars == pytest.approx(n * on_spot * 1.0, rel=1e-9)


def test_ways_are_listed_cheapest_first_and_say_what_is_planned_and_broken() -> None:
    ways = paying(("limits.budget", "3k USD")).ways
    assert [each.dollars for each in ways] == sorted(each.dollars for each in ways)
    assert [each.kind for each in ways if each.chosen] == ["reserved"]
    on_demand = next(each for each in ways if each.kind == "on_demand")
    assert on_demand.dollars > 3e3
    assert on_demand.breaks == ("budget",)
    assert "beyond the budget" in on_demand.text


@pytest.mark.parametrize("kind", ["on_demand", "spot", "owned", "{kind: reserved, window: 30 days}"])
def test_a_way_costs_what_the_same_plan_does_in_a_problem_that_is_paid_so(kind: str) -> None:
    plan = explanation().plan
    data = SMALL | {"pricing": yaml.safe_load(kind), "limits": {}}
    pinned = {name: [getattr(plan.decisions, name)] for name in ("tp", "pp", "dp", "zero", "recompute")}
    data |= {"search": SMALL["search"] | pinned}
    data |= {"hardware": {"gpu": "H800", "nodes": plan.decisions.nodes}}
    again = solve(parse_problem(data)).plans[0]
    assert again.decisions == plan.decisions
    told = way("reserved", ("pricing", kind)) if "30" in kind else way(kind)
    assert told.days == pytest.approx(again.estimate.days, rel=1e-9)
    assert told.dollars == pytest.approx(again.estimate.dollars, rel=1e-9)


def test_a_reservation_pays_from_the_share_of_its_window_that_prices_say() -> None:
    found = cheaper("reserved", "on_demand")
    assert found.today
    assert found.figures["window_share"] == pytest.approx(2 / 3)
    longest = found.figures["longest_window_days"]
    n, days = explanation().plan.decisions.num_gpus, explanation().plan.estimate.days
    assert n * 24 * longest * 2.0 == pytest.approx(n * 24 * days * 3.0)
    assert f"windows up to {longest:.1f} days" in found.text


@pytest.mark.parametrize(("window", "pays"), [(1.49, True), (1.51, False)])
def test_of_a_longer_window_it_does_not(window: float, pays: bool) -> None:
    days = explanation().plan.estimate.days
    found = cheaper(
        "reserved", "on_demand", ("pricing", f"{{kind: reserved, window: {days * window!r} days}}")
    )
    assert found.today is pays
    assert found.figures["price"] == pytest.approx(3.0 / window)


@pytest.mark.parametrize(("than", "price"), [("on_demand", 3.0), ("reserved", 2.0)])
def test_spot_stops_paying_where_its_longer_run_costs_as_much(than: str, price: float) -> None:
    plan, found = explanation().plan, cheaper("spot", than)
    hours = seconds(plan) / HOUR
    until = found.figures["stops_a_month"]
    assert seconds(plan, until) / HOUR * 1.0 == pytest.approx(hours * price, rel=1e-6)
    assert found.figures["hours_between"] == pytest.approx(720 / until)
    assert found.figures["lost_a_month"] == pytest.approx(1 - exp(-until))
    assert found.figures["price"] == pytest.approx(price * seconds(plan) / seconds(plan, -log(0.8)))
    assert found.today


def test_the_deadline_may_stop_spot_before_its_price_does() -> None:
    plan = explanation().plan
    deadline = 1.05 * plan.estimate.days
    found = cheaper("spot", "on_demand", ("limits.deadline", f"{deadline!r} days"))
    hours = found.figures["hours_between_in_time"]
    assert seconds(plan, 720 / hours) == pytest.approx(deadline * DAY, rel=1e-6)
    assert "The deadline holds until" in found.text


def test_spot_at_the_price_of_a_reservation_never_pays() -> None:
    found = cheaper(
        "spot", "reserved", ("pricing", OFFERS.replace("1.10", "2.00").replace("30 days", "1 days"))
    )
    assert not found.today
    assert "stops_a_month" not in found.figures
    assert "only below" in found.text


def test_owning_pays_from_the_hours_a_year_that_a_ledger_says() -> None:
    """Over its life a node costs what is bought, upkeep and staff, and power while it trains; rent while it trains."""
    own, than = way("owned", ("pricing", OFFERS)), cheaper("owned", "on_demand", ("pricing", OFFERS))
    years, bought, kept_up = 5, 200e3 + 40e3, 0.03
    share = than.figures["busy_share"]
    trains = share * 8760 * years
    paid = bought * (1 + kept_up * years) + 8 * 100 * years + 8 * own.price_parts["power"] * trains
    assert paid == pytest.approx(8 * 3.0 * trains)
    assert than.figures["hours_a_year"] == pytest.approx(share * 8760)
    back = than.figures["paid_back_days"]
    a_day = 8 * 24 * own.price_parts["power"] + (bought * kept_up + 8 * 100) / 365
    assert bought + a_day * back == pytest.approx(8 * 24 * 3.0 * back)
    # At half of its life, and as much for a node as is said, an hour costs as much as on demand.
    node = than.figures["node_price"]
    dear = OFFERS.replace("200k USD", f"{node!r} USD")
    assert way("owned", ("pricing", dear)).dollars == pytest.approx(way("on_demand").dollars)
    assert way("owned", ("pricing", dear)).price == pytest.approx(3.0)


def test_rent_below_what_an_own_hour_costs_is_said() -> None:
    found = cheaper("owned", "spot", ("pricing", OFFERS))
    own, spot = way("owned", ("pricing", OFFERS)), way("spot", ("pricing", OFFERS))
    assert found.today is (own.dollars < spot.dollars) is False
    assert found.figures["than_price"] == pytest.approx(1.10 * own.dollars / spot.dollars)
    assert found.figures["price"] == pytest.approx(own.price * spot.dollars / own.dollars)


def test_offers_of_ones_own_are_compared_and_the_rest_is_the_catalogues() -> None:
    ways = {each.kind: each for each in paying(("pricing", OFFERS)).ways}
    assert {kind: each.assumed for kind, each in ways.items()} == {
        "reserved": False, "owned": False, "spot": False, "on_demand": True,
    }  # fmt: skip
    assert ways["spot"].price == 1.10
    assert ways["reserved"].committed_days == 30
    assert "busy 50% of 5 years" in ways["owned"].text


def test_what_a_node_costs_has_to_be_said_where_it_is_not_known() -> None:
    found = paying(("hardware.gpu", "L40S"), ("limits", "{}"), ("hardware.nodes", "{max: 8}"))
    assert [each.kind for each in found.unpriced] == ["owned"]
    assert "pricing.instead" in found.unpriced[0].text
    assert "owned" not in {each.kind for each in found.ways}


def test_a_plan_on_spot_is_compared_without_its_interruptions() -> None:
    """What is rented otherwise is not taken back, whatever the problem's own nodes are."""
    on_spot = ("pricing", "{kind: spot, price: 1.00 USD/gpu-hour}")
    for kind in ("on_demand", "spot"):
        assert way(kind, on_spot).days == pytest.approx(way(kind).days, rel=1e-9)
        assert way(kind, on_spot).dollars == pytest.approx(way(kind).dollars, rel=1e-9)


def test_under_an_agreed_mfu_spot_is_said_to_lose_nothing() -> None:
    problem = load_problem(Path("problems/handbook_ten_step.yaml"))
    found = explained(problem, parts=["paying"]).paying
    assert found is not None
    (reserved,) = [each for each in found.ways if each.chosen]
    assert (reserved.dollars, reserved.committed_days) == (1843200, 60)
    (said,) = [each for each in found.cheaper if (each.way, each.than) == ("spot", "reserved")]
    assert "nothing is lost under assume_mfu" in said.text


def test_a_point_of_mfu_is_worth_its_share_of_the_cost() -> None:
    plan = explanation().plan
    assert paying().mfu_point_dollars == pytest.approx(0.01 / plan.estimate.mfu * plan.estimate.dollars)


# --- fine-tunes


def test_as_many_fine_tunes_as_the_handbook_says() -> None:
    """256 H800 x 10 days at $2 against 4 GPUs x 48 h at $2.5: 256, scaled to the run that is planned."""
    found = paying(("fine_tune", "{gpus: 4, takes: 48 h, price: 2.5 USD/gpu-hour}")).fine_tune
    assert found is not None
    assert (found.days, found.dollars) == (2, 480)
    assert found.runs == pytest.approx(explanation().plan.estimate.dollars / 480)
    assert found.runs / explanation().plan.estimate.dollars * (256 * 10 * 24 * 2) == pytest.approx(256)
    assert f"{found.runs:,.0f} fine-tunes" in found.text


@pytest.mark.parametrize(("method", "flops"), [("full", 6), ("lora", 4)])
def test_a_fine_tune_by_its_tokens_takes_its_flops_at_the_plans_mfu(method: str, flops: int) -> None:
    found = paying(("fine_tune", f"{{gpus: 8, tokens: 1B, method: {method}}}")).fine_tune
    assert found is not None
    rate = 8 * 989e12 * explanation().plan.estimate.mfu
    assert found.days == pytest.approx(flops * PARAMETERS * 1e9 / rate / DAY)
    assert found.dollars == pytest.approx(8 * 24 * found.days * 2.0)


def test_a_fine_tune_that_does_not_fit_says_so() -> None:
    settings = ("fine_tune", "{gpus: 8, tokens: 1B}")
    problem = load_problem(Path("problems/70b_3T_60days.yaml"), [(settings[0], yaml.safe_load(settings[1]))])
    found = explained(problem, parts=["paying"]).paying
    assert found is not None
    assert found.fine_tune is not None
    assert "above the 684 GB there" in found.fine_tune.text


@pytest.mark.parametrize(
    ("key", "text", "path", "said"),
    [
        ("fine_tune", "{gpus: 4}", "fine_tune.takes", "one of them"),
        ("fine_tune", "{gpus: 4, takes: 48 h, tokens: 1B}", "fine_tune.takes", "one of them"),
        ("fine_tune", "{gpus: 4, takes: 48 h, method: lora}", "fine_tune.method", "tokens"),
        ("fine_tune", "{gpus: 4, tokens: 1B, method: qlora}", "fine_tune.method", "lora"),
        ("fine_tune", "{takes: 48 h}", "fine_tune.gpus", "required"),
        ("pricing", "{kind: spot, instead: [spot]}", "pricing.all.instead.0", "each kind once"),
        ("pricing", "{kind: spot, instead: [ownd]}", "pricing.all.instead.0.kind", "'owned'"),
        ("pricing", "{kind: spot, lost_a_month: 1}", "pricing.all.lost_a_month", "below 1"),
    ],
)
def test_mistakes_are_named(key: str, text: str, path: str, said: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_problem(SMALL, [(key, yaml.safe_load(text))])
    assert caught.value.path == path
    assert said in str(caught.value)


def test_what_is_compared_changes_neither_the_plan_nor_its_hash() -> None:
    one, other = (parse_problem(SMALL | more) for more in ({}, {"fine_tune": {"gpus": 4, "takes": "48 h"}}))
    assert one.problem_hash == other.problem_hash
    assert parse_problem(other.as_written()) == other
    offers = parse_problem(SMALL, [("pricing", yaml.safe_load(OFFERS))])
    assert parse_problem(offers.as_written()) == offers


# --- as people and programs read it


@pytest.mark.parametrize("columns", ["80", "120"])
def test_the_table_and_the_json_say_it(tmp_path: Path, columns: str) -> None:
    path = tmp_path / "small.yaml"
    path.write_text(yaml.safe_dump(SMALL | {"fine_tune": {"gpus": 4, "takes": "48 h"}}), encoding="utf-8")
    arguments = ["explain", str(path), "--part", "paying", "-q"]
    table = CliRunner().invoke(app, arguments, env={"COLUMNS": columns})
    assert table.exit_code == 0, table.output
    assert max(map(len, table.output.splitlines())) <= int(columns)
    for words in ("Ways to pay", "Reserved, as planned", "On demand:", "Spot:", "Owned:", "fine-tunes"):
        assert words in table.output
    printed = json.loads(CliRunner().invoke(app, [*arguments, "--format", "json"]).output)
    assert Explanation.model_validate(printed).paying is not None
    assert {each["kind"] for each in printed["paying"]["ways"]} == {"on_demand", "reserved", "spot", "owned"}
    assert all(
        -inf < value < inf for each in printed["paying"]["cheaper"] for value in each["figures"].values()
    )


def test_a_longer_run_on_spot_breaks_limits_on_energy_as_well() -> None:
    settings = (("pricing", "{kind: reserved, instead: [{kind: spot, lost_a_month: 99.99%}]}"),)
    used = explanation(*settings, ("limits.energy", "100 MWh")).plan.estimate.energy
    assert used is not None
    limit = ("limits.energy", f"{used.mwh * 1.001} MWh")
    assert way("reserved", *settings, limit).breaks == ()
    assert way("spot", *settings, limit).breaks == ("energy",)


def test_the_deadline_of_spot_holds_at_the_confidence_that_is_asked_for() -> None:
    deadline = (("limits.deadline", "7 days"),)
    sure = (*deadline, ("limits.confidence", "0.9"))
    plain, surely = (cheaper("spot", "reserved", *each).figures for each in (deadline, sure))
    assert surely["hours_between_in_time"] > 1.5 * plain["hours_between_in_time"]
    assert way("spot", *sure).breaks == ()


def test_prices_that_lie_close_are_told_apart() -> None:
    text = cheaper("spot", "reserved", ("pricing", "{kind: spot}")).text
    assert "only below 1.9996 USD/gpu-hour: it is 2.0000." in text


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("{gpus: 1, takes: 3 s}", "fine-tunes of 1 GPU for 0.00083 h at 2.00 USD/gpu-hour ($0.00 each)"),
        ("{gpus: 64, takes: 300 days}", "times as much as a fine-tune of 64 GPUs for 7,200.0 h"),
    ],
)
def test_very_small_and_very_large_fine_tunes_are_said_in_sane_figures(given: str, said: str) -> None:
    found = paying(("fine_tune", given)).fine_tune
    assert found is not None
    assert said in found.text
    assert " 0 fine-tunes" not in found.text


def test_a_small_busy_share_is_not_said_to_be_none() -> None:
    settings = (("pricing", "{kind: reserved, instead: [{kind: owned, node: 280k USD, busy: 0.4%}]}"),)
    assert "busy 0.4% of 4 years" in way("owned", *settings).text


def test_what_keeps_its_whole_price_is_refused() -> None:
    with pytest.raises(InvalidInput, match=r"pricing\.all\.residual: found 1"):
        parse_problem(SMALL, [("pricing", {"kind": "owned", "residual": 1, "upkeep": 0})])
