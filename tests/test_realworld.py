"""Losses, storage, prices and energy in the search: optima equal brute force, figures equal arithmetic by hand."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from itertools import product
from math import exp, expm1, inf
from random import Random
from typing import Any

import numpy as np
import pytest
import yaml
from lasting import Lasting, lasting, spares
from oracle import Answer, Oracle, quantile, with_limits, within
from random_problems import problem, with_memory, with_room
from typer.testing import CliRunner

from planner.cli.app import app
from planner.economics import Economy
from planner.errors import InvalidInput
from planner.export import Job, export, job_of
from planner.instance import Instance, Pool
from planner.listing import best_records
from planner.phased import gap_of
from planner.power import Power
from planner.pricing import Pricing
from planner.problem import Problem, load_problem, parse_problem
from planner.reliability import Reliability
from planner.resolve import instance_of
from planner.running import Running
from planner.search import Effort, Plan, Table, best, goal_of
from planner.search.opening import open_pipelines
from planner.site import site_of
from planner.solution import Estimate, Solution
from planner.solve import solve
from planner.space.recompute import recompute_families
from planner.stages.memory import BYTES
from planner.storage import Storage
from planner.together import Together, place_of
from planner.validate import violations
from planner.validate_phases import wrong_together

SAME = 1e-6
DAY = 86400.0

# ---------------------------------------------------------------------------------------------------
# Random problems on random sites, against brute force


def reliability(random: Random) -> Reliability:
    """Sites where short runs on few GPUs already lose much."""
    own = random.random() < 0.4
    return Reliability.model_validate(
        {
            "preset": random.choice(("default", "optimistic", "bring_up")),
            "failures": f"{random.choice((60, 300, 3000))} h",
            "planned": "2000 h",
            "relaunch": random.choice(("0 s", "30 s", "5 min")),
            "checkpoint": {
                "mode": random.choice(("sync", "async")),
                "written_by": random.choice(("all", "replica", "one")),
                "weights_read_by_all": random.random() < 0.3,
            }
            | ({"interval": "7 min"} if random.random() < 0.2 else {}),
        }
        | ({"spares": random.choice(("auto", 1)), "repair": "20 h"} if own else {})
        | ({"evaluation": {"every": 10, "takes": "4 s"}} if random.random() < 0.3 else {})
    )


def storage(random: Random) -> Storage:
    """Fast or slow, mostly with all the room in the world."""
    return Storage.model_validate(
        random.choice(
            (
                {},
                {"tier": "good", "keep": {"every": "1 h", "recent": 2}},
                {"write": "100 MB/s", "read": "300 MB/s", "node_write": "60 MB/s"},
            )
        )
    )


def pricing(random: Random) -> Pricing | None:
    return random.choice(
        (
            None,
            Pricing.model_validate({"kind": "spot", "price": "0.9 USD/gpu-hour", "lost_a_month": "60%"}),
            Pricing.model_validate({"kind": "reserved", "window": "3 h"}),
        )
    )


def surrounded(random: Random, instance: Instance) -> Instance:
    """The instance with a site around each pool, its nodes as the pool has them."""
    pools = []
    for pool in instance.pools:
        gpu = pool.gpu.model_copy(update={"gpus_per_node": pool.fabric.gpus_per_node})
        site = site_of(
            instance.architecture,
            gpu,
            reliability=reliability(random),
            storage=storage(random),
            pricing=pricing(random),
            power=Power(),
            price=pool.price,
            committed=pool.committed,
        )
        there = pool.max_nodes + site.spare_nodes(pool.max_nodes) + random.choice((0, 1))
        most = site.training_nodes(there)
        tariff = site.tariff
        pools.append(
            Pool(
                gpu,
                pool.fabric,
                min(pool.min_nodes, most),
                most,
                tariff.price,
                tariff.committed_days * DAY,
                site,
                there,
                pool.precision,
                pool.entry,
            )
        )
    return replace(instance, pools=tuple(pools))


def small(random: Random) -> Oracle:
    while True:
        oracle = Oracle.of(surrounded(random, problem(random)), 500, 30_000)
        if oracle is not None and oracle.layouts:
            return oracle


def with_other_limits(random: Random, oracle: Oracle) -> Instance:
    """Energy, carbon or a store that is too small for long runs, beside the usual limits."""
    instance = with_limits(random, oracle)
    answers = within(instance, oracle.answers(instance))
    kind = random.choice(("energy", "carbon", "objective", "room", "none"))
    if not answers or kind == "none":
        return instance
    if kind == "energy":
        limit = quantile(random, sorted(of.kwh for of in answers))
        return replace(instance, limits=replace(instance.limits, energy=limit))
    if kind == "carbon":
        limit = quantile(random, sorted(of.tonnes for of in answers))
        return replace(instance, limits=replace(instance.limits, carbon=limit))
    if kind == "objective":
        goal = random.choice(("energy", "carbon"))
        return replace(instance, objective=((goal, 1.0),), lexicographic=True)
    runs = [lasting(instance, of.layout, of.step) for of in answers]
    room = quantile(random, sorted(run.kept for run in runs))
    pools = tuple(replace(pool, site=pool.site and pool.site.with_room(room)) for pool in instance.pools)
    return replace(instance, pools=pools)


def value(instance: Instance, seconds: float, dollars: float, kwh: float, tonnes: float) -> float:
    """The objective's first term, or the weighted sum in dollars."""
    terms = {"time": seconds, "cost": dollars, "energy": kwh, "carbon": tonnes}
    if instance.lexicographic:
        return terms[instance.objective[0][0]]
    terms["time"] = seconds / DAY
    return sum(terms[name] * weight for name, weight in instance.objective)


def least(instance: Instance, answers: list[Answer]) -> float:
    return min((value(instance, of.seconds, of.dollars, of.kwh, of.tonnes) for of in answers), default=inf)


def planned(instance: Instance) -> Plan | None:
    return best(Table.of(instance, goal_of(instance), recompute_families(instance)))


def run_of(instance: Instance, plan: Plan) -> Lasting:
    class Layout:
        pool, dp, num_gpus = plan.of("pool"), plan.of("dp"), int(plan.row.num_gpus[0])
        batch = plan.of("micro_batch") * plan.of("m_high") * plan.of("dp")

    return lasting(instance, Layout, plan.step)


def tighter(instance: Instance) -> Instance:
    """GPUs with less memory by what a stage assignment may round up."""
    less = 4 * BYTES * instance.architecture.layers / (1 - instance.limits.memory_headroom)
    pools = (replace(p, gpu=with_memory(p.gpu, p.gpu.memory.driver - less)) for p in instance.pools)
    return replace(instance, pools=tuple(pools))


MANY = [pytest.param(seed, marks=pytest.mark.slow) for seed in range(1000, 1060)]


@pytest.mark.parametrize("seed", [*range(25), *MANY])
def test_with_losses_and_limits_of_sites_the_optimum_is_that_of_brute_force(seed: int) -> None:
    random = Random(seed)
    oracle = small(random)
    instance = with_other_limits(random, oracle)
    theirs = least(instance, within(instance, oracle.answers(instance)))
    surely = least(instance, within(instance, oracle.answers(tighter(instance))))
    plan = planned(instance)
    if plan is None:
        assert surely == inf
        return
    run = run_of(instance, plan)
    mine = value(instance, run.seconds, run.dollars, run.kwh, run.tonnes)
    assert theirs * (1 - SAME) <= mine <= surely * (1 + SAME)
    limits = instance.limits
    for used, most in (
        (run.seconds, limits.deadline), (run.dollars, limits.budget), (run.kwh, limits.energy),
        (run.tonnes, limits.carbon), (run.kept, run.room),
    ):  # fmt: skip
        assert most is None or used <= most * (1 + SAME)


@pytest.mark.parametrize("seed", [*range(10), *MANY[:50]])
def test_columns_of_an_economy_are_the_arithmetic_of_one_run(seed: int) -> None:
    """And what Economy says of the longest step is where seconds, dollars and energy meet their limits."""
    random = Random(seed)
    instance = surrounded(random, problem(random))
    instance = replace(instance, objective=(("energy", 1.0),), lexicographic=True)
    table = Table.of(instance, goal_of(instance), recompute_families(instance))
    table.list_pipelines(np.arange(len(table.book.keys))[:40])
    open_pipelines(table, np.arange(len(table.pipelines))[:60], inf)
    rows, step = table.groups.rows, 0.37
    economy = Economy.of(instance, rows)
    for index in random.sample(range(len(rows)), min(len(rows), 12)):
        one = economy.take(np.array([index]))

        class Layout:
            pool, dp, num_gpus = int(rows.pool[index]), int(rows.dp[index]), int(rows.num_gpus[index])
            batch = int(rows.micro_batch[index] * rows.m_high[index] * rows.dp[index])

        run = lasting(instance, Layout, step)
        seconds = one.seconds(np.array([step]))
        found = (seconds, *(one.total(name, seconds) for name in ("cost", "energy", "carbon")))
        assert np.concatenate(found).tolist() == pytest.approx(
            [run.seconds, run.dollars, run.kwh, run.tonnes], rel=1e-7
        )
        pool = instance.pools[Layout.pool]
        nodes = Layout.num_gpus / pool.fabric.gpus_per_node
        assert spares(pool, nodes, Layout.num_gpus) == run.spares
        rent = run.dollars / max(run.seconds, pool.committed) * run.seconds
        for limit in ((run.seconds, inf), (inf, rent), (inf, inf, run.kwh), (inf, inf, inf, run.tonnes)):
            assert float(one.longest(*limit)[0]) == pytest.approx(step, rel=1e-6)
        assert float(one.seconds(one.later(np.array([step]), 0.01))[0]) == pytest.approx(
            float(seconds[0]) * 1.01
        )


def test_bounds_of_keys_and_pipelines_count_what_every_plan_loses() -> None:
    """No row has less time, money or energy than the bound of the key it belongs to."""
    random = Random(3)
    for _ in range(8):
        instance = replace(
            surrounded(random, problem(random)), objective=(("energy", 1.0),), lexicographic=True
        )
        table = Table.of(instance, goal_of(instance), recompute_families(instance))
        table.list_pipelines(np.arange(len(table.book.keys)))
        open_pipelines(table, np.arange(len(table.pipelines)), inf)
        rows, economy = table.groups.rows, table.groups.economy
        step = table.book.gpu_seconds[rows.key] * (
            rows.micro_batch * rows.m_high * rows.dp * instance.seq_len
        )
        seconds = economy.seconds(step / rows.num_gpus)
        keys = table.least_of_keys()
        assert (seconds >= keys.seconds[rows.key] * (1 - 1e-9)).all()
        assert (economy.total("cost", seconds) >= keys.dollars[rows.key] * (1 - 1e-9)).all()
        assert (economy.total("energy", seconds) >= keys.value[rows.key] * (1 - 1e-9)).all()


# ---------------------------------------------------------------------------------------------------
# A job solved through its file

SMALL: dict[str, Any] = {
    "name": "small",
    "model": {
        "name": "small", "layers": 9, "hidden": 2048, "ffn": 8192, "heads": 16, "kv_heads": 8,
        "head_dim": 128, "vocab": 32000,
    },
    "training": {"tokens": "400B", "seq_len": 4096, "global_batch": {"min": "16 sequences", "max": "32 sequences"}},
    "hardware": [
        {"gpu": "H800", "nodes": {"max": 4}, "price": "2.00 USD/gpu-hour"},
        {"gpu": "H20", "nodes": {"max": 4}, "price": "0.80 USD/gpu-hour"},
    ],
    "objective": "cost",
    "search": {"tp": [1, 2], "cp": [1], "pp": [1, 2], "vpp": 1, "micro_batch": [2]},
}  # fmt: skip


def job(*settings: tuple[str, Any]) -> Problem:
    return parse_problem(SMALL, settings)


@cache
def solved(*settings: tuple[str, str]) -> Solution:
    return solve(job(*((key, yaml.safe_load(text)) for key, text in settings)))


def first(*settings: tuple[str, str]) -> tuple[Estimate, Any]:
    plan = solved(*settings).plans[0]
    return plan.estimate, plan.decisions


RATES = (
    (
        "reliability",
        "{failures: 5000 h, planned: 100000 h, detection: 3 min, relaunch: 5 min, warm_up: 1 min}",
    ),
)


def test_days_and_dollars_are_those_of_a_sheet_of_paper() -> None:
    """Rates of a reliability section, storage of 10 GB/s, and Daly's formula with a write behind it."""
    estimate, d = first(*RATES, ("storage", "{write: 10 GB/s, read: 20 GB/s}"))
    parameters = 9 * (2048 * (16 + 2 * 8 + 16) * 128 + 3 * 2048 * 8192 + 2 * 2048) + 2 * 32000 * 2048 + 2048
    size = 14 * parameters
    mtbf, n = 5000 * 3600 / d.num_gpus, d.num_gpus
    write, restart = size / 10e9, 180 + 300 + size / 20e9 + 60
    lost = estimate.losses
    assert lost is not None
    assert lost.mtbf_hours * 3600 == pytest.approx(mtbf)
    assert lost.checkpoint_gb == pytest.approx(size / 1e9)
    assert lost.restart_minutes * 60 == pytest.approx(restart)
    assert lost.write_s == pytest.approx(write)
    tau, stall = lost.checkpoint_minutes * 60, lost.stall_s
    slow = mtbf * exp((restart + write) / mtbf) * expm1((tau + stall) / mtbf) / tau
    slow *= 1 + n / (100000 * 3600) * (stall + write + restart - 180)
    steps = 400e9 / (d.global_batch * 4096)
    seconds = steps * estimate.step_time_s * slow + restart - 180
    assert estimate.days * DAY == pytest.approx(seconds, rel=1e-9)
    assert estimate.dollars == pytest.approx(n * seconds / 3600 * 2.00, rel=1e-9)
    assert estimate.ideal_days == pytest.approx(steps * estimate.step_time_s / DAY)
    assert estimate.ideal_dollars == pytest.approx(n * 24 * estimate.ideal_days * 2.00)
    assert estimate.goodput == pytest.approx(1 / slow)
    assert 1 - sum(lost.shares.values()) == pytest.approx(estimate.goodput, rel=1e-9)
    assert lost.checkpoint_steps == pytest.approx(tau / estimate.step_time_s, abs=1)


def test_a_run_ends_earlier_or_later_by_its_band_and_its_failures() -> None:
    estimate, _ = first(*RATES)
    assert estimate.interval_80_days is not None
    low, high = estimate.interval_80_days
    ends = [estimate.finish_days[share] for share in ("50%", "80%", "95%")]
    assert low < ends[0] <= estimate.days < ends[1] < high < ends[2]
    # Without failures only the band of the step time is left.
    calm, _ = first(("reliability", "{preset: optimistic, failures: 800000 h}"))
    assert calm.interval_80_days is not None
    assert high / low > calm.interval_80_days[1] / calm.interval_80_days[0]


def test_an_agreed_mfu_loses_nothing_unless_a_section_asks_for_it() -> None:
    here = ("hardware", "{gpu: H800, nodes: 2, price: 2.00 USD/gpu-hour}")
    agreed, _ = first(("assume_mfu", "0.4"), here)
    assert (agreed.goodput, agreed.losses, agreed.finish_days) == (1.0, None, {})
    assert agreed.days == agreed.ideal_days
    asked, _ = first(("assume_mfu", "0.4"), here, *RATES)
    assert asked.losses is not None
    assert asked.days > asked.ideal_days == pytest.approx(agreed.ideal_days or 0.0)
    assert list(asked.finish_days) == ["50%", "80%", "95%"]


@pytest.mark.parametrize(
    ("name", "days", "dollars"), [("handbook_ten_step", 57.5, 1_843_200.0), ("handbook_six_step", 57.7, 1_935_360.0)]
)  # fmt: skip
def test_planning_on_paper_is_as_before(name: str, days: float, dollars: float) -> None:
    problem = load_problem(f"problems/{name}.yaml")
    (plan,) = solve(problem).plans
    assert round(plan.estimate.days, 1) in (days, round(days + 0.1, 1))
    assert plan.estimate.dollars == pytest.approx(dollars)
    assert plan.estimate.losses is None


OWN = (("reliability.spares", "auto"), ("reliability.failures", "2000 h"), ("reliability.repair", "2 days"))


def test_spares_of_ones_own_are_paid_and_stand_within_the_pool() -> None:
    estimate, d = first(*OWN, ("objective", "time"))
    plan = solved(*OWN, ("objective", "time")).plans[0]
    assert estimate.losses is not None
    ready = estimate.losses.spare_nodes
    assert ready >= 1
    assert d.nodes + ready <= 4
    assert plan.slack["nodes"].used == d.nodes + ready
    hours, price = estimate.days * 24, {"H800": 2.0, "H20": 0.8}[d.gpu]
    assert estimate.dollars == pytest.approx((d.num_gpus + 8 * ready) * hours * price)


def test_spares_that_leave_no_node_to_train_on_are_refused() -> None:
    with pytest.raises(InvalidInput, match=r"reliability\.spares.*6 nodes, and there are 4"):
        job(("reliability.spares", 5))


def test_spot_pays_less_and_is_taken_back_more_often() -> None:
    reserved, _ = first()
    spot, d = first(("pricing", "{kind: spot, price: 0.70 USD/gpu-hour, lost_a_month: 30%}"))
    assert spot.losses is not None
    assert reserved.losses is not None
    assert spot.losses.stops > 2 * reserved.losses.stops
    assert spot.dollars == pytest.approx(d.num_gpus * 24 * spot.days * 0.70)
    notes = solved(("pricing", "{kind: spot, price: 0.70 USD/gpu-hour, lost_a_month: 30%}")).notes
    assert any("0.70 USD/gpu-hour, spot; 30% of its nodes" in note for note in notes)


def test_a_reserved_window_is_paid_though_the_run_ends_sooner() -> None:
    estimate, d = first(("pricing", "{kind: reserved, window: 60 days}"))
    price = {"H800": 2.0, "H20": 0.8}[d.gpu]
    assert estimate.days < 60
    assert estimate.dollars == pytest.approx(d.num_gpus * 24 * 60 * price)


def test_owned_gpus_cost_what_a_purchase_does_over_its_life() -> None:
    owned = (
        ("pricing", "{H800: {kind: owned, node: 200k USD, network: 40k USD, years: 4 years, busy: 50%, residual: 0, "
         "upkeep: 5%, staff: 0 USD/year}}"),
        ("power", "{pue: 1.25, electricity: 0.10 USD/kWh, node: 8 kW}"),
        ("hardware.1.nodes.max", "1"),
    )  # fmt: skip
    solution = solved(*owned)
    plan = next(
        p
        for p in [*solution.plans, *(r.plan for r in solution.runner_ups)]
        if p and p.decisions.gpu == "H800"
    )
    hours = 365 * 24 * 0.5
    price = 240e3 / 8 / hours * (1 / 4 + 0.05) + 8 / 8 * 1.25 * 0.10
    estimate, d = plan.estimate, plan.decisions
    assert estimate.dollars == pytest.approx(d.num_gpus * estimate.days * 24 * price)
    assert estimate.energy is not None
    drawn = d.nodes * 8 * estimate.days * 24 * 1.25 / 1e3
    assert estimate.energy.mwh == pytest.approx(drawn, rel=0.02)
    assert estimate.energy.mwh < drawn


def test_a_store_that_is_too_small_makes_a_job_infeasible_with_the_number_that_would_do() -> None:
    small = ("storage", "{capacity: 1 TB, write: 10 GB/s, read: 10 GB/s}")
    solution = solved(small)
    assert solution.status == "infeasible"
    assert solution.conflict is not None
    assert solution.conflict.limits == ("storage",)
    (move,) = [each for each in solution.conflict.relaxations if each.limit == "storage"]
    assert move.from_ == "1 TB"
    enough = solved(("storage", f"{{capacity: {move.to}, write: 10 GB/s, read: 10 GB/s}}".replace(",0", "0")))
    assert enough.status == "optimal"
    plan = enough.plans[0]
    assert plan.estimate.storage is not None
    assert plan.slack["storage"].left >= 0
    assert plan.estimate.storage.total_tb > 0.99 * float(str(move.to).split()[0])


def test_a_store_that_is_too_slow_is_advice_with_numbers() -> None:
    solution = solved(*RATES, ("storage", "{write: 2 MB/s, read: 1 GB/s, load_within: 5 s}"))
    (write,) = [
        note for note in solution.notes if note.startswith("Checkpoints at their best interval write")
    ]
    assert "the storage writes 0.002 GB/s" in write
    assert "min apart instead of" in write
    assert any(note.startswith("Loading data, or restarting") for note in solution.notes)


LIMITS = {"energy": ("kWh", "mwh", 1e3), "carbon": ("t", "tonnes_co2", 1.0)}


@pytest.mark.parametrize("name", LIMITS)
def test_energy_and_carbon_bind_and_say_what_would_do(name: str) -> None:
    unit, field, scale = LIMITS[name]
    thrifty, _ = first(("objective", name))
    assert thrifty.energy is not None
    lowest = getattr(thrifty.energy, field) * scale
    within_it = solved((f"limits.{name}", f"{lowest * 1.0001!r} {unit}"))
    assert within_it.status == "optimal"
    assert 0 <= within_it.plans[0].slack[name].left <= lowest * 1.1e-4
    below = solved((f"limits.{name}", f"{lowest * 0.999!r} {unit}"))
    assert below.conflict is not None
    assert below.conflict.limits == (name,)
    (move,) = [each for each in below.conflict.relaxations if each.limit == name]
    again = solved((f"limits.{name}", str(move.to).replace(",", "")))
    assert again.status == "optimal"


def test_energy_and_budget_in_conflict_are_named_together() -> None:
    price = ("hardware.1.price", "0.30 USD/gpu-hour")
    cheap, _ = first(price, ("limits.energy", "100 GWh"))
    thrifty, _ = first(price, ("objective", "energy"))
    assert cheap.energy is not None
    assert thrifty.energy is not None
    assert cheap.dollars < 0.9 * thrifty.dollars
    both = solved(
        price,
        ("limits.energy", f"{thrifty.energy.mwh * 1.001!r} MWh"),
        ("limits.budget", f"{cheap.dollars * 1.001!r} USD"),
    )
    assert both.conflict is not None
    assert both.conflict.limits == ("budget", "energy")


def test_the_validator_computes_losses_bill_and_energy_for_itself() -> None:
    settings = (*OWN, ("power.pue", "1.2"), ("storage.tier", "good"))
    plan = solved(*settings).plans[0]
    asked = job(*((key, yaml.safe_load(text)) for key, text in settings))
    assert violations(asked, plan) == []

    def with_figure(**changes: Any) -> list[str]:
        return violations(
            asked, plan.model_copy(update={"estimate": plan.estimate.model_copy(update=changes)})
        )

    e = plan.estimate
    assert e.energy is not None
    assert e.ideal_days is not None
    assert with_figure(days=e.ideal_days) != []
    assert with_figure(dollars=e.dollars * 1.001) != []
    assert with_figure(goodput=1.0) != []
    assert with_figure(energy=e.energy.model_copy(update={"mwh": e.energy.mwh * 1.01})) != []
    # Without spares the pool would hold one node more.
    bare = job(("reliability.failures", "2000 h"))
    assert violations(bare, plan) != []


def test_candidates_are_listed_with_the_economy_of_the_solution() -> None:
    solution = solved(*RATES)
    record = best_records(instance_of(job(("reliability", _yaml(RATES[0][1])))), 1)[0]
    estimate = solution.plans[0].estimate
    assert record["dollars"] >= estimate.dollars * (1 - 1e-9)
    assert record["dollars"] == pytest.approx(estimate.dollars, rel=0.02)


def _yaml(text: str) -> Any:
    return yaml.safe_load(text)


@pytest.mark.parametrize(
    ("key", "text", "message"),
    [
        ("pricing.H900", "spot", "pricing.H900: no pool has this GPU"),
        ("pricing.H20", "{kind: owned, window: 60 days}", "pricing.H20.window"),
        ("limits.energy", "5 kW", "limits.energy: found '5 kW'"),
        ("limits.carbon", "5 kWh", "limits.carbon: found '5 kWh'"),
        ("reliability.preset", "hopeful", "reliability.preset"),
        ("storage.capacity", "12", "storage.capacity"),
        ("power.pue", "0.9", "power.pue"),
    ],
)
def test_what_cannot_be_read_is_named_with_its_place(key: str, text: str, message: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        job((key, _yaml(text)))
    assert message in str(caught.value)


def test_a_problem_with_all_sections_reads_what_it_writes() -> None:
    sections = (
        ("reliability", {"preset": "optimistic", "spares": "auto", "repair": "1 day"}),
        ("storage", {"servers": {"kind": "nvme-10", "count": 20}, "keep": {"every": "2 days"}}),
        ("pricing", {"H800": "spot", "H20": {"kind": "reserved", "window": "10 days"}}),
        ("power", {"carbon": "FRA", "electricity": "0.08 USD/kWh"}),
        ("limits", {"energy": "900 MWh", "carbon": "300 tCO2"}),
    )
    problem = job(*sections)
    again = parse_problem(problem.as_written())
    assert again == problem
    assert again.problem_hash == problem.problem_hash
    assert job(*sections[1:]).problem_hash != problem.problem_hash


def test_losses_of_many_rows_are_looked_up_not_computed() -> None:
    instance = instance_of(job())
    running = Running.of(instance)
    assert len(running.slowdown) == sum(pool.max_nodes for pool in instance.pools)
    assert Running.of(instance) is running
    assert Running.of(replace(instance)) is not running


@pytest.mark.parametrize("columns", ["80", "120"])
def test_the_table_says_what_is_lost_within_the_width(columns: str, tmp_path: Any) -> None:
    path = tmp_path / "small.yaml"
    path.write_text(yaml.safe_dump(SMALL), encoding="utf-8")
    arguments = ["solve", str(path), "-q", "-s", "power.pue=1.2", "-s", "storage.tier=good"]
    result = CliRunner().invoke(app, arguments, env={"COLUMNS": columns})
    assert result.exit_code == 0, result.output
    assert max(map(len, result.output.splitlines())) <= int(columns)
    for word in ("goodput", "checkpoints", "finish", "energy", "storage"):
        assert f"  {word} " in result.output


# ---------------------------------------------------------------------------------------------------
# Phases


def in_phases(random: Random, instance: Instance) -> tuple[Instance, list[Instance]]:
    """A run and its two or three phases: less of a batch at first, another sequence length at the end."""
    tokens = instance.tokens
    free = tuple(replace(pool, committed=0.0) for pool in instance.pools)
    first = replace(
        instance, tokens=0.1 * tokens, max_batch=max(instance.min_batch, instance.max_batch // 2), pools=free
    )
    last = replace(
        instance,
        tokens=0.2 * tokens,
        seq_len=instance.seq_len // 2 if instance.seq_len > 1024 else 2048,
        pools=free,
    )
    main = replace(instance, tokens=0.7 * tokens, pools=free)
    if random.random() < 0.5:
        return instance, [first, main, last]
    return instance, [main, replace(last, tokens=0.3 * tokens)]


def of_all_phases(
    run: Instance, phases: list[Instance], tight: bool
) -> dict[tuple[int, int], tuple[float, float]] | None:
    """Seconds and dollars by pool and GPUs of the quickest run there, by brute force.

    Each phase with its quickest plan, or the first two (as long in their sequences) in one job.
    """
    seconds: dict[tuple[int, int], list[float]] = {}
    oracles = [Oracle.of(phase, 400, 30_000) for phase in phases]
    if any(oracle is None for oracle in oracles):
        return None
    for index, (phase, oracle) in enumerate(zip(phases, oracles, strict=True)):
        assert oracle is not None
        quickest: dict[tuple[int, int], float] = {}
        for of in oracle.answers(tighter(phase) if tight else phase):
            place = (of.layout.pool, of.layout.num_gpus)
            save = lasting(phase, of.layout, of.step).save if index < len(phases) - 1 else 0.0
            quickest[place] = min(quickest.get(place, inf), of.seconds + save)
        for place, value in quickest.items():
            seconds.setdefault(place, []).append(value)
    totals = {}
    for place, parts in seconds.items():
        if len(parts) == len(phases):
            pool = run.pools[place[0]]
            nodes = place[1] / pool.fabric.gpus_per_node
            paid = (nodes + spares(pool, nodes, place[1])) * pool.fabric.gpus_per_node * pool.price / 3600
            took = sum(parts)
            if phases[0].seq_len == phases[1].seq_len:
                both = in_one_job(phases, oracles, place, tight)
                took = min(took, both + sum(parts[2:]))
            totals[place] = (took, paid * max(took, pool.committed))
    return totals


def in_one_job(
    phases: list[Instance], oracles: list[Oracle | None], place: tuple[int, int], tight: bool
) -> float:
    """Seconds of the quickest two phases with one layout and one stage assignment, the batch growing."""
    best, rows = inf, []
    for phase, oracle in zip(phases[:2], oracles[:2], strict=True):
        assert oracle is not None
        limit = tighter(phase) if tight else phase
        room = limit.pools[place[0]].gpu.memory.driver * (1 - limit.limits.memory_headroom)
        rows.append(
            [
                (layout, np.where(of.memory <= room, of.step, inf))
                for layout, of in zip(oracle.layouts, oracle.priced, strict=True)
                if (layout.pool, layout.num_gpus) == place
            ]
        )
    for (one, early), (other, late) in product(*rows):
        if one.num_microbatches > other.num_microbatches:
            continue
        if replace(one, num_microbatches=0) != replace(other, num_microbatches=0):
            continue
        took = 0.0
        for phase, layout, steps in ((phases[0], one, early), (phases[1], other, late)):
            free = lasting(phase, layout, 0.0)
            slope = lasting(phase, layout, 1.0).seconds - free.seconds
            took = took + free.seconds + slope * steps
        of = lasting(phases[1], other, 0.0)
        best = min(best, float(np.min(took)) - of.start + (of.save if len(phases) > 2 else 0.0))
    return best


@pytest.mark.parametrize("seed", [*range(5), *MANY[:50]])
def test_phases_chosen_together_are_the_best_of_all_places(seed: int) -> None:
    random = Random(seed)
    while True:
        run, phases = in_phases(random, surrounded(random, problem(random)))
        # Memory that binds.
        probe = Oracle.of(phases[0], 400, 30_000)
        if probe is None or not probe.layouts:
            continue
        low, high = probe.memory_range()
        room = (low + random.choice((0.1, 0.5, 1.5)) * (high - low)) / (1 - run.limits.memory_headroom)
        run, *phases = (with_room(each, room * 1.000123) for each in (run, *phases))
        totals = of_all_phases(run, phases, tight=False)
        if totals:
            break
    limits = run.limits
    if random.random() < 0.5:
        limits = replace(limits, deadline=quantile(random, sorted(t for t, _ in totals.values())))
    if random.random() < 0.5:
        limits = replace(limits, budget=quantile(random, sorted(c for _, c in totals.values())))
    run, *phases = (replace(each, limits=limits) for each in (run, *phases))

    def best_of(of: dict[tuple[int, int], tuple[float, float]] | None) -> float:
        inside = [
            value(run, t, c, 0.0, 0.0)
            for t, c in (of or {}).values()
            if t <= (limits.deadline or inf) and c <= (limits.budget or inf)
        ]
        return min(inside, default=inf)

    search = Together.of(run, phases, Effort())
    found, others = search.best()
    surely = best_of(of_all_phases(run, phases, tight=True))
    if found is None:
        assert surely == inf
        return
    mine = value(run, found.totals["time"], found.totals["cost"], 0.0, 0.0)
    gap = gap_of(search, found, others)
    assert best_of(totals) * (1 - SAME) <= mine <= surely * (1 + SAME) / (1 - gap)
    assert {place_of(plan) for plan in found.plans} == {found.place}


PHASES = (
    "[{name: ramp, share: 5%, global_batch: 16 sequences}, {name: main}, "
    "{name: long, tokens: 20B, seq_len: 8192, global_batch: {min: 8 sequences, max: 16 sequences}}]"
)


def test_a_run_in_phases_is_one_run_on_the_same_nodes() -> None:
    whole = (("limits.deadline", "60 days"), ("limits.budget", "20k USD"))
    solution = solved(("phases", PHASES), *RATES, *whole)
    assert solution.status == "optimal"
    run = solution.run
    assert run is not None
    assert [phase.name for phase in run.phases] == ["ramp", "main", "long"]
    assert [phase.tokens for phase in run.phases] == [20e9, 360e9, 20e9]
    assert {phase.plan.decisions.num_gpus for phase in run.phases} == {run.num_gpus}
    assert run.phases[0].plan.decisions.global_batch == 16
    assert run.phases[2].plan.decisions.global_batch <= 16
    assert run.days == pytest.approx(sum(phase.days for phase in run.phases))
    assert run.dollars == pytest.approx(run.num_gpus * 24 * run.days * {"H800": 2.0, "H20": 0.8}[run.gpu])
    starts = 0.0
    for index, phase in enumerate(run.phases):
        lost = phase.plan.estimate.losses
        assert lost is not None
        saved = lost.stall_s + lost.write_s if index < 2 else 0.0
        starts += saved + (lost.restart_minutes * 60 - 180 if index else 0.0)
        assert phase.days == pytest.approx(phase.plan.estimate.days + saved / DAY)
    assert run.switching_hours == pytest.approx(starts / 3600)
    assert run.slack["deadline"].used == pytest.approx(run.days)
    assert Solution.from_text(solution.to_json()) == solution


PINNED = (
    "search",
    "{tp: [2], cp: [1], pp: [1], vpp: 1, micro_batch: [2], dp: [8], zero: 1, recompute: none}",
)


def test_a_run_cut_in_two_is_the_run() -> None:
    """Nothing is saved or started between phases that need no change of the job."""
    one = solved(*RATES).plans[0]
    cut = solved(("phases", "[{name: a, share: 30%}, {name: b}]"), *RATES)
    run = cut.run
    assert run is not None
    assert (cut.status, cut.proof.gap) == ("optimal", 0)
    assert [phase.goes_on for phase in run.phases] == [False, True]
    assert run.phases[0].plan.decisions == run.phases[1].plan.decisions == one.decisions
    assert run.days == pytest.approx(one.estimate.days, rel=1e-9)
    assert run.dollars == pytest.approx(one.estimate.dollars, rel=1e-9)
    assert run.switching_hours == 0
    assert "b goes on in the job of a" in run.texts[0]


def test_a_batch_that_grows_needs_no_restart_and_longer_sequences_do() -> None:
    phases = (
        "[{name: a, share: 10%, global_batch: 16 sequences}, {name: b}, {name: c, share: 5%, seq_len: 8192}]"
    )
    run = solved(("phases", phases), PINNED, *RATES).run
    assert run is not None
    assert [phase.goes_on for phase in run.phases] == [False, True, False]
    assert [phase.plan.decisions.num_microbatches for phase in run.phases[:2]] == [1, 2]
    one, two, three = (phase.plan.estimate for phase in run.phases)
    lost = three.losses
    assert lost is not None
    start, save = lost.restart_minutes / 60 - 3 / 60, (lost.stall_s + lost.write_s) / 3600
    assert run.switching_hours == pytest.approx(start + save)
    assert run.days == pytest.approx(one.days + two.days + three.days - (start - save) / 24)
    assert run.phases[1].days == pytest.approx(two.days - start / 24 + save / 24)
    assert "--rampup-batch-size" in run.texts[0]


def test_a_batch_that_shrinks_takes_a_restart() -> None:
    phases = "[{name: a, share: 10%, global_batch: 32 sequences}, {name: b, global_batch: 16 sequences}]"
    run = solved(("phases", phases), PINNED, *RATES).run
    assert run is not None
    assert not run.phases[1].goes_on
    assert run.switching_hours > 0


def test_the_validator_knows_which_phases_go_on() -> None:
    asked = job(("phases", _yaml("[{name: a, share: 30%}, {name: b}]")))
    run = solve(asked).run
    assert run is not None
    parts = [asked.of_phase(part) for part in asked.resolved_phases()]
    assert wrong_together(asked, parts, run) == []
    apart = (run.phases[0], run.phases[1].model_copy(update={"goes_on": False}))
    assert any(
        "go on" in text for text in wrong_together(asked, parts, run.model_copy(update={"phases": apart}))
    )


def text_of(each: Job) -> str:
    return " ".join(" ".join(export(each, "megatron").values()).split())


def test_each_phase_has_launch_files_of_its_own() -> None:
    solution = solved(("phases", PHASES))
    jobs = [job_of(solution, number) for number in (1, 2, 3)]
    assert [each.name for each in jobs] == ["small-ramp", "small-main", "small-long"]
    assert [each.tokens for each in jobs] == [20e9, 360e9, 20e9]
    assert [each.seq_len for each in jobs] == [4096, 4096, 8192]
    assert [f"--seq-length {each.seq_len}" in text_of(each) for each in jobs] == [True] * 3
    with pytest.raises(InvalidInput, match="1 to 3, a phase each"):
        job_of(solution, 4)


def test_what_phases_say_wrong_is_found() -> None:
    asked = job(("phases", _yaml(PHASES)))
    run = solve(asked).run
    assert run is not None
    parts = [asked.of_phase(part) for part in asked.resolved_phases()]
    assert wrong_together(asked, parts, run) == []
    assert wrong_together(asked, parts, run.model_copy(update={"dollars": run.dollars * 1.01})) != []
    assert wrong_together(asked, parts, run.model_copy(update={"num_gpus": run.num_gpus + 8})) != []
    tight = job(("phases", _yaml(PHASES)), ("limits.deadline", f"{run.days * 0.9!r} days"))
    assert any("exceeds" in text for text in wrong_together(tight, parts, run))


def test_phases_that_cannot_meet_their_deadline_say_what_would_do() -> None:
    solution = solved(("phases", PHASES), ("limits.deadline", "2 days"))
    assert solution.status == "infeasible"
    assert solution.conflict is not None
    assert solution.conflict.limits == ("deadline",)
    (move,) = [each for each in solution.conflict.relaxations if each.limit == "deadline"]
    assert solved(("phases", PHASES), ("limits.deadline", str(move.to))).status == "optimal"


@pytest.mark.parametrize(
    ("key", "text", "message"),
    [
        ("phases", "[{name: a, share: 50%}]", "phases.0.tokens: the phases have 2e+11 tokens"),
        ("phases", "[{name: a}, {name: b}]", "phases.1"),
        ("phases", "[{name: a, batch: 3}]", "phases.0.batch: unknown key"),
        ("phases.0", "{name: a}", "phases"),
    ],
)
def test_phases_that_do_not_add_up_are_refused(key: str, text: str, message: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        job((key, _yaml(text)))
    assert message in str(caught.value)


def test_what_plans_without_phases_refuses_them() -> None:
    with pytest.raises(InvalidInput, match="only `planner solve` plans them together"):
        instance_of(job(("phases", _yaml(PHASES))))


def test_the_table_of_a_run_in_phases_says_all_of_it(tmp_path: Any) -> None:
    path = tmp_path / "small.yaml"
    path.write_text(yaml.safe_dump(SMALL | {"phases": _yaml(PHASES)}), encoding="utf-8")
    for columns in ("80", "120"):
        result = CliRunner().invoke(app, ["solve", str(path), "-q"], env={"COLUMNS": columns})
        assert result.exit_code == 0, result.output
        assert max(map(len, result.output.splitlines())) <= int(columns)
        for word in ("Run", "Phases", "ramp", "main", "long", "Longest phase"):
            assert word in result.output


@pytest.mark.parametrize("name", LIMITS)
def test_phases_that_draw_too_much_say_what_would_do(name: str) -> None:
    unit, _, _ = LIMITS[name]
    below = solved(("phases", PHASES), (f"limits.{name}", f"0.001 {unit}"))
    assert below.conflict is not None
    assert below.conflict.limits == (name,)
    (move,) = below.conflict.relaxations
    again = solved(("phases", PHASES), (f"limits.{name}", str(move.to).replace(",", "")))
    assert again.status in ("optimal", "feasible")


def test_limits_of_phases_that_have_to_move_together_do() -> None:
    tight = (("phases", PHASES), ("limits", "{deadline: 1 h, budget: 10 USD}"))
    conflict = solved(*tight).conflict
    assert conflict is not None
    (move,) = conflict.relaxations
    assert move.limit == "deadline and budget"
    days, dollars = str(move.to).split(" and $")
    wide = f"{{deadline: {days}, budget: {dollars.replace(',', '')} USD}}"
    assert solved(("phases", PHASES), ("limits", wide)).run is not None


ODD = "[{name: odd, share: 50%, global_batch: 63 sequences}, {name: b}]"


@pytest.mark.parametrize("phases", ["[]", ODD])
def test_a_batch_that_no_layout_has_is_no_lack_of_memory(phases: str) -> None:
    found = solved(
        ("phases", phases), ("training.global_batch", "63 sequences"), ("search.micro_batch", "[2]")
    )
    assert found.conflict is not None
    assert found.conflict.limits == ("search.micro_batch",)


@pytest.mark.parametrize(
    ("phases", "said"),
    [
        ("[{name: a, share: 50%}, {name: a}]", r"phases\.1\.name: a second phase called a"),
        ("[{name: ' ', share: 50%}, {name: a}]", r"phases\.0\.name"),
    ],
)
def test_phases_have_names_that_tell_them_apart(phases: str, said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        job(("phases", yaml.safe_load(phases)))


def test_parts_of_a_step_are_none_or_positive() -> None:
    run = solved(("phases", PHASES), ("search.pp", "[1]")).run
    assert run is not None
    for phase in run.phases:
        assert min(phase.plan.estimate.breakdown_s.values()) > 1e-9


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("storage", "{write: 1 B/s, read: 1 B/s}"),
        ("reliability", "{failures: 1 s}"),
        ("reliability.checkpoint.bytes_per_parameter", "1e9"),
    ],
)
@pytest.mark.parametrize("phases", ["[]", PHASES])
def test_runs_that_never_end_are_said_to_be_stopped_too_often(key: str, text: str, phases: str) -> None:
    found = solved((key, text), ("phases", phases))
    assert found.conflict is not None
    assert found.conflict.limits == ("reliability",)
