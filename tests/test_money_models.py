"""Ways to pay, where they cross, and the sections `pricing:`, `reliability:` and `phases:`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field, ValidationError

from costmodel.cards import load_card
from costmodel.goodput.failures import stop_rate
from costmodel.money import (
    Ownership,
    Tariff,
    bill,
    busy_share_to_own,
    days_to_own,
    days_until_reserved_pays,
    dollars,
    owned_price,
    power_dollars,
    runs_for_the_same_money,
    saving,
    spot_slowdown_break_even,
)
from costmodel.storage.demand import outrun
from hardware.catalogue import accelerator_names, load_accelerator
from hardware.site import site_reliability
from planner.complaints import invalid_input
from planner.errors import InvalidInput, Refused
from planner.phases import Phases, resolved_phases
from planner.power import Power
from planner.pricing import Prices, Pricing, pricing_of, unknown_pools
from planner.quantities import Strict
from planner.reliability import Reliability
from planner.site import site_of
from planner.site_units import carbon, electricity, lifetime, watts, yearly
from planner.storage import Storage
from planner.yaml_file import parse

HOUR, DAY = 3600.0, 86400.0
H100 = Ownership(
    node=310e3,
    network=74e3,
    gpus_per_node=8,
    years=4,
    upkeep=0.03,
    staff=200,
    watts=7560,
    pue=1.2,
    price_per_kwh=0.1,
)


class Sections(Strict):
    """Fields as a problem would have them."""

    reliability: Reliability = Reliability()
    pricing: Prices = Field(default_factory=dict)
    phases: Phases = ()


def read(text: str) -> Sections:
    try:
        return Sections.model_validate(parse(text, "problem"))
    except ValidationError as error:
        raise invalid_input(error, "problem") from None


# --- rent


def test_a_window_is_paid_in_full_though_the_run_ends_in_57_6_days() -> None:
    paid = bill(Tariff("reserved", 2.0, committed_days=60), 640, 57.6)
    assert paid.total == 640 * 60 * 24 * 2
    assert paid.used == pytest.approx(640 * 57.6 * 24 * 2)
    assert paid.idle == pytest.approx(640 * 2.4 * 24 * 2)


@given(
    days=st.floats(0.1, 200),
    window=st.floats(0, 100),
    gpus=st.integers(8, 20000),
    spares=st.integers(0, 64),
)
def test_a_bill_is_the_rent_of_all_gpus(days: float, window: float, gpus: int, spares: int) -> None:
    paid = bill(Tariff("reserved", 2.0, committed_days=window), gpus, days, spares)
    assert paid.total == pytest.approx(dollars(gpus + spares, days, 2.0, window))
    assert min(paid.used, paid.idle, paid.spares) >= 0


def test_bills_are_columns_too() -> None:
    paid = bill(Tariff("reserved", 2.0, committed_days=60), np.array([8, 16]), np.array([70.0, 30.0]), 8)
    assert paid.total.tolist() == pytest.approx([16 * 70 * 48, 24 * 60 * 48])  # type: ignore[union-attr]


def test_reserving_pays_from_the_share_of_the_window_that_prices_say() -> None:
    days = days_until_reserved_pays(60, 2.0, 3.0)
    assert days == 40
    assert dollars(640, days, 3.0) == pytest.approx(dollars(640, days, 2.0, 60))


def test_spot_may_take_as_much_longer_as_it_is_cheaper() -> None:
    assert spot_slowdown_break_even(1.0, 2.5) == 2.5


# --- own


def test_an_owned_h100_hour_is_purchase_power_upkeep_and_staff() -> None:
    price = owned_price(H100)
    assert price.capital == pytest.approx((310e3 + 74e3) / 8 / (4 * 8760))
    assert price.power == pytest.approx(7.56 / 8 * 1.2 * 0.1)
    assert price.upkeep == pytest.approx(price.capital * 4 * 0.03)
    assert price.staff == pytest.approx(200 / 8760)
    assert price.total == pytest.approx(price.capital + price.power + price.upkeep + price.staff)


def test_idle_hours_are_paid_by_the_busy_ones_but_draw_no_power() -> None:
    all_, half = owned_price(H100), owned_price(replace(H100, busy=0.5))
    assert half.total - half.power == pytest.approx(2 * (all_.total - all_.power))
    assert half.power == all_.power


def test_cooling_is_part_of_a_pue_or_counted_apart() -> None:
    assert power_dollars(8, 700, 10, 0.1, cooling=0.4) == pytest.approx(
        power_dollars(8, 700, 10, 0.1, pue=1.4)
    )


@given(busy=st.floats(0.05, 1.0))
def test_owning_breaks_even_where_it_says(busy: float) -> None:
    rent = owned_price(replace(H100, busy=busy)).total
    assert busy_share_to_own(H100, rent) == pytest.approx(busy)


def test_a_purchase_is_paid_back_in_the_days_it_says() -> None:
    days, price = days_to_own(H100, 2.5), owned_price(H100)
    running = price.total - price.capital
    assert (310e3 + 74e3) / 8 + running * 24 * days == pytest.approx(2.5 * 24 * days)
    assert 600 < days < 1100


def test_256_fine_tunes_cost_one_pre_training() -> None:
    assert runs_for_the_same_money(dollars(256, 10, 2.0), dollars(4, 2, 2.5)) == 256
    assert saving(75, 100) == 0.25


# --- pricing


def tariff(text: str, gpu: str = "H800", price: float | None = None, power: Power | None = None) -> Tariff:
    accelerator = load_accelerator(gpu)
    pricing = pricing_of(read(f"pricing: {text}").pricing, accelerator)
    assert pricing is not None
    return pricing.tariff(accelerator, power or Power(), price)


def test_a_word_is_a_kind_at_its_usual_price() -> None:
    prices = load_accelerator("H800").prices
    assert tariff("on_demand") == Tariff("on_demand", prices.on_demand.typical)
    assert tariff("reserved") == Tariff("reserved", prices.reserved.typical)
    assert tariff("spot") == Tariff("spot", 1.0, lost_a_month=site_reliability().spot.lost_a_month)


def test_the_sections_price_counts_before_the_pools_and_that_before_the_catalogues() -> None:
    assert tariff("{kind: reserved, window: 60 days}", price=1.8) == Tariff("reserved", 1.8, 60.0)
    assert tariff("{kind: reserved, price: 1.6 USD/gpu-hour}", price=1.8).price == 1.6


def test_each_pool_may_be_paid_for_differently() -> None:
    section = read("pricing: {h800: {kind: owned}, H20: spot}").pricing
    kinds = {name: pricing_of(section, load_accelerator(name)) for name in ("H800", "H20", "H100")}
    assert kinds["H800"] is not None
    assert kinds["H20"] is not None
    assert (kinds["H800"].kind, kinds["H20"].kind, kinds["H100"]) == ("owned", "spot", None)
    assert unknown_pools(section, [load_accelerator("H800")]) == ["H20"]


def test_owned_gpus_take_the_sections_figures_and_the_catalogues_for_the_rest() -> None:
    own = "{kind: owned, node: 200k USD, years: 5 years, busy: 80%, staff: 100 USD/year}"
    section = read(f"pricing: {own}").pricing["all"]
    ownership = section.ownership(load_accelerator("H800"), Power())
    assert (ownership.node, ownership.years, ownership.busy, ownership.staff) == (200e3, 5, 0.8, 100)
    assert ownership.network == 74e3
    cheap = tariff(own, power=Power.model_validate({"electricity": "0.05 USD/kWh"}))
    assert cheap.price < tariff(own).price == pytest.approx(owned_price(ownership).total)


def test_every_gpu_with_a_known_purchase_price_is_in_the_catalogue() -> None:
    from hardware.site import site_purchase

    assert set(site_purchase().nodes) <= set(accelerator_names())


@pytest.mark.parametrize(
    ("text", "path", "said"),
    [
        ("pricing: spott", "pricing.all.kind", "'spot'"),
        ("pricing: {kind: spot, window: 60 days}", "pricing.all.window", "only with reserved"),
        (
            "pricing: {kind: owned, price: 2 USD/gpu-hour}",
            "pricing.all.price",
            "on_demand or reserved or spot",
        ),
        ("pricing: {H800: {kind: owned, nodes: 3}}", "pricing.H800.nodes", "'node'"),
        ("pricing: {kind: owned, busy: 0}", "pricing.all.busy", "above 0"),
        ("pricing: {kind: owned, years: 4}", "pricing.all.years", "4 years"),
        ("pricing: {kind: owned, staff: 200k USD}", "pricing.all.staff", "per year"),
        ("reliability: {failures: 50000}", "reliability.failures", "without a unit"),
        ("reliability: {failures: 50000 h, parts: {gpu: 9 h}}", "reliability.parts", "one of them"),
        ("reliability: {parts: {}}", "reliability.parts", "no part fails"),
        ("reliability: {preset: defalt}", "reliability.preset", "'default'"),
        ("reliability: {spares: lots}", "reliability.spares", "auto"),
        ("reliability: {repair: 3 days}", "reliability.repair", "spares: auto"),
        ("reliability: {spares: auto, swap_probability: 1}", "reliability.swap_probability", "below 1"),
        ("reliability: {checkpoint: {mode: asink}}", "reliability.checkpoint.mode", "'async'"),
        ("reliability: {checkpoint: {interval: 30}}", "reliability.checkpoint.interval", "without a unit"),
        ("reliability: {evaluation: {every: 1000}}", "reliability.evaluation.takes", "required"),
        ("phases: {name: a}", "phases", "a list of phases"),
        ("phases: [{name: a, tokens: 1T, share: 5%}]", "phases.0.share", "one of them"),
    ],
)
def test_mistakes_are_named(text: str, path: str, said: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        read(text)
    assert caught.value.path == path
    assert said in str(caught.value)


def test_a_gpu_without_a_known_purchase_price_needs_one() -> None:
    with pytest.raises(Refused, match="L40S costs is not known"):
        Pricing(kind="owned").tariff(load_accelerator("L40S"), Power())


# --- reliability


def test_without_keys_it_is_llama_3s_rate_and_nobody_waits_for_repairs() -> None:
    resolved = read("{}").reliability.resolved(8)
    assert 1 / stop_rate(resolved.failures, 16384, 8) == pytest.approx(50_000 / 16384 * HOUR)
    assert (resolved.repair, resolved.mode, resolved.writers, resolved.interval) == (
        0.0,
        "async",
        "all",
        None,
    )
    assert read("{}").reliability.checkpoint_bytes_per_parameter() == 14


def test_it_is_read_with_its_units() -> None:
    section = read(
        """
        reliability:
          failures: 20,000 h
          detection: 1 min
          warm_up: 0 s
          spares: auto
          swap_probability: 95%
          repair: 2 days
          checkpoint: {mode: sync, written_by: replica, interval: 30 min, bytes_per_parameter: 10, copy_rate: 25 GB/s}
          evaluation: {every: 1000, takes: 5 min}
        """
    ).reliability
    resolved = section.resolved(8)
    assert 1 / stop_rate(resolved.failures, 1, 8) == pytest.approx(20_000 * HOUR)
    assert (resolved.detection, resolved.warm_up, resolved.repair) == (60.0, 0.0, 2 * DAY)
    assert (resolved.spares, resolved.swap_probability) == (None, 0.95)
    assert (resolved.mode, resolved.writers, resolved.interval) == ("sync", "replica", 1800.0)
    assert (resolved.evaluation, resolved.evaluation_steps, resolved.copy_rate) == (300.0, 1000, 25e9)
    assert section.checkpoint_bytes_per_parameter() == 10
    assert Reliability.model_validate(section.model_dump(mode="json", exclude_unset=True)) == section


def test_spares_of_ones_own_are_repaired_in_the_usual_time() -> None:
    resolved = read("reliability: {spares: 4}").reliability.resolved(8)
    assert (resolved.spares, resolved.repair) == (4, 72 * HOUR)


def test_parts_that_are_not_named_do_not_fail() -> None:
    parts = read("reliability: {parts: {gpu: 80000 h, switch: 40000 h, gpus_per_switch: 32}}").reliability
    rate = stop_rate(parts.resolved(8).failures, 64, 8)
    assert rate == pytest.approx((64 / 80_000 + 2 / 40_000) / HOUR)


def test_on_spot_more_nodes_are_lost() -> None:
    section = read("{}").reliability
    assert stop_rate(section.resolved(8, 0.2).failures, 64, 8) > stop_rate(
        section.resolved(8).failures, 64, 8
    )


def test_weights_that_every_replica_reads_are_their_share_of_the_checkpoint() -> None:
    section = read("reliability: {checkpoint: {weights_read_by_all: true}}").reliability
    assert section.resolved(8).weights_share == pytest.approx(2 / 14)


# --- phases

RUN: dict[str, Any] = {"tokens": 10**12, "seq_len": 4096, "min_batch": 512, "max_batch": 1024}


def phases(text: str) -> Any:
    return resolved_phases(read(f"phases: {text}").phases, **RUN)


def test_a_run_without_phases_is_one() -> None:
    (only,) = resolved_phases((), **RUN)
    assert (only.tokens, only.seq_len, only.min_batch, only.max_batch) == (10**12, 4096, 512, 1024)


def test_one_phase_takes_the_rest() -> None:
    ramp, main, long = phases(
        "[{name: ramp, share: 5%, global_batch: 128 sequences}, {name: main},"
        " {name: long, tokens: 50B, seq_len: 32Ki}]"
    )
    assert (ramp.tokens, ramp.min_batch, ramp.max_batch) == (5e10, 128, 128)
    assert (main.tokens, main.min_batch) == (9e11, 512)
    assert (long.seq_len, long.min_batch, long.max_batch) == (32768, 64, 128)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[{name: a, tokens: 600B}, {name: b, tokens: 300B}]", "9e\\+11 tokens, the run 1e\\+12"),
        ("[{name: a}, {name: b}]", "a second phase"),
        ("[{name: a, tokens: 2T}, {name: b}]", "leaves none"),
        ("[{name: a, global_batch: 3 bananas}]", "4Mi tokens"),
    ],
)
def test_phases_that_do_not_make_the_run_are_refused(text: str, said: str) -> None:
    with pytest.raises(Refused, match=said):
        phases(text)


# --- all of it for one pool


def test_an_agreed_mfu_is_that_of_the_whole_run() -> None:
    """640 H800 for 57.6 days, and the 60 that are paid for, as on paper."""
    site = site_of(
        load_card("llama-2-70b"), load_accelerator("H800"), price=2.0, committed=60 * DAY, agreed_time=True
    )
    losses = site.losses(640)
    seconds = losses.wall_seconds(1_144_409, 57.6 * DAY / 1_144_409)
    assert seconds / DAY == pytest.approx(57.6)
    assert site.bill(640, seconds, losses).total == 640 * 60 * 24 * 2


def test_other_runs_lose_what_llama_3s_rate_takes() -> None:
    site = site_of(load_card("llama-2-70b"), load_accelerator("H800"), price=2.0)
    losses = site.losses(np.array([640, 1024]), np.array([40, 64]))
    assert (1 / losses.slowdown).tolist() == pytest.approx([0.993, 0.991], abs=1e-3)
    assert losses.spare_nodes.tolist() == [0, 0]


def test_asked_for_they_are_lost_beside_an_agreed_mfu_too() -> None:
    asked = Reliability(preset="pessimistic")
    args: dict[str, Any] = {"architecture": load_card("llama-2-70b"), "gpu": load_accelerator("H800")}
    assert site_of(**args, reliability=asked, agreed_time=True).losses(640).slowdown > 1.02
    assert site_of(**args, agreed_time=True).losses(640).slowdown == 1


def test_spares_of_ones_own_are_paid_and_draw_power() -> None:
    asked = Reliability.model_validate({"spares": 4})
    args: dict[str, Any] = {"architecture": load_card("llama-2-70b"), "gpu": load_accelerator("H800")}
    rented, own = site_of(**args), site_of(**args, reliability=asked)
    without, with_spares = rented.losses(640), own.losses(640)
    assert own.bill(640, 60 * DAY, with_spares).spares == 32 * 60 * 24 * 2.0
    assert rented.bill(640, 60 * DAY, without).spares == 0
    assert own.energy(640, 60 * DAY, with_spares).kwh > rented.energy(640, 60 * DAY, without).kwh


def test_a_plan_that_outruns_its_storage_says_so() -> None:
    small = Storage.model_validate({"write": "10 GB/s", "read": "10 GB/s", "capacity": "20 TB"})
    site = site_of(load_card("llama-2-70b"), load_accelerator("H800"), storage=small)
    needs = site.demand(
        site.losses(640),
        tokens=3e12,
        vocab=32000,
        num_gpus=640,
        wall_seconds=60 * DAY,
        batch_tokens=640 * 4096,
        step_time=5.0,
    )
    (found,) = outrun(needs, small.resolved(80))
    assert found.limit == "capacity"
    assert found.needed > 24e12 > found.described == 20e12


def test_spot_is_cheaper_by_the_hour_and_stops_more_often() -> None:
    args: dict[str, Any] = {"architecture": load_card("llama-2-70b"), "gpu": load_accelerator("H800")}
    spot = site_of(**args, pricing=Pricing.model_validate("spot"))
    usual = site_of(**args)
    assert spot.tariff.price < usual.tariff.price
    assert spot.losses(640).slowdown > usual.losses(640).slowdown


# --- units


@pytest.mark.parametrize(
    ("parser", "text", "value"),
    [
        (watts, "8.4 kW", 8400.0),
        (watts, "700 W", 700.0),
        (watts, "1.2 MW", 1.2e6),
        (electricity, "0.10 USD/kWh", 0.10),
        (electricity, "$60/MWh", 0.06),
        (carbon, "400 gCO2/kWh", 400.0),
        (carbon, "0.4 kgCO2e / kWh", 400.0),
        (carbon, "0.4 t/MWh", 400.0),
        (yearly, "200k USD/year", 200e3),
        (lifetime, "4 years", 4.0),
    ],
)
def test_units_of_sites(parser: Any, text: str, value: float) -> None:
    assert parser(text) == pytest.approx(value)


@pytest.mark.parametrize(
    ("parser", "text", "said"),
    [
        (watts, "8.4 KW", "'kW'"),
        (watts, "8.4", "8.4 kW"),
        (watts, "-1 W", "not positive"),
        (electricity, "0.10 USD", "USD/kWh"),
        (electricity, "0.10 EUR/kWh", "other currencies"),
        (carbon, "400", "gCO2/kWh"),
        (carbon, "400 g", "gCO2/kWh"),
        (yearly, "200k USD", "per year"),
        (lifetime, "48 months", "4 years"),
    ],
)
def test_other_units_are_refused(parser: Any, text: str, said: str) -> None:
    with pytest.raises(Refused) as caught:
        parser(text)
    assert said in str(caught.value)
