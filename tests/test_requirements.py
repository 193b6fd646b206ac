"""Limits of the user's own on decisions and predictions."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from lasting import lasting
from oracle import Answer, Oracle, small_problem, with_limits, within
from random_problems import leading, overlapping, problem, with_memory
from searched import SAME, num_modes, seconds_and_dollars, usual_families, value
from small_job import job
from test_oracle import disagreements, room_rounded
from test_realworld import surrounded

from costmodel.flops import model_flops_per_token
from planner.answer import reported
from planner.errors import InvalidInput, Refused
from planner.instance import Instance, Narrowing
from planner.required import without_requirements
from planner.requirements import PATTERN, Requirement, requirement
from planner.resolve import instance_of
from planner.search import Effort, Table, best, goal_of
from planner.search.front import frontier, undominated
from planner.search.ledger import Ledger
from planner.search.reuse import Evaluation
from planner.solution import Plan
from planner.solve import solve
from planner.validate import violations
from planner.variants import best_plan

GIB = 2**30
STEPS = ("step_time_s", "mfu", "tokens_per_s_per_gpu")
NUMBERS = ("gpus", "nodes", "tp", "cp", "pp", "vpp", "dp", "ep", "etp", "micro_batch", "num_microbatches",
           "global_batch", "zero")  # fmt: skip


def figures(instance: Instance, of: Answer) -> dict[str, Any]:
    """Every decision and prediction of a brute-force answer, by the words of requirements."""
    layout, pool = of.layout, instance.pools[of.layout.pool]
    tokens = layout.batch * instance.seq_len / of.step / layout.num_gpus
    flops = float(model_flops_per_token(instance.architecture, instance.seq_len))
    own = ("tp", "cp", "pp", "vpp", "dp", "ep", "etp", "micro_batch", "num_microbatches", "zero")
    return {name: getattr(layout, name) for name in own} | {
        "gpus": layout.num_gpus,
        "nodes": layout.num_gpus // pool.fabric.gpus_per_node,
        "global_batch": layout.batch,
        "gpu": pool.gpu.name,
        "recompute_modules": "+".join(sorted(layout.modules)) or "none",
        "step_time_s": of.step,
        "tokens_per_s_per_gpu": tokens,
        "mfu": tokens * flops / pool.gpu.peak_flops["bf16"],
        "memory_gib": of.memory / GIB,
        "goodput": lasting(instance, layout, of.step).goodput,
    }


def holds(of: Requirement, value: Any) -> bool:
    """Written once more: what a comparison means."""
    first = of.values[0]
    return {
        "<=": lambda: value <= first, "<": lambda: value < first, ">=": lambda: value >= first,
        ">": lambda: value > first, "==": lambda: value == first, "!=": lambda: value != first,
        "in": lambda: value in of.values,
    }[of.operator]()  # fmt: skip


def kept(instance: Instance, answers: list[Answer], required: list[Requirement]) -> list[Answer]:
    found = []
    for answer in answers:
        of = figures(instance, answer)
        if all(holds(each, of[each.name]) for each in required):
            found.append(answer)
    return found


def random_requirement(random: Random, instance: Instance, answers: list[Answer]) -> Requirement:
    """One that some answers meet and others may not."""
    of, other = (figures(instance, random.choice(answers)) for _ in range(2))
    if random.random() < 0.6:
        name = random.choice(STEPS) if random.random() < 0.8 else "memory_gib"
        sign, near = ("<=", 1.00037) if name in ("step_time_s", "memory_gib") else (">=", 0.99963)
        return Requirement(name, sign, (of[name] * near,))
    if random.random() < 0.1:
        return Requirement("gpu", random.choice(("==", "!=")), (of["gpu"],))
    name = random.choice(NUMBERS)
    sign = random.choice(("<=", ">=", "==", "!=", "<", ">", "in"))
    return Requirement(name, sign, (of[name], other[name]) if sign == "in" else (of[name],))


def requiring(instance: Instance, required: list[Requirement]) -> Instance:
    """As `planner.resolve` puts them into an instance."""
    decided = tuple(of for of in required if of.decision is not None)
    memory = min((of.values[0] * GIB for of in required if of.name == "memory_gib"), default=None)
    steps = tuple(of for of in required if of.name in (*STEPS, "goodput"))
    return replace(
        instance,
        narrowing=Narrowing(instance.narrowing.allowed, decided),
        limits=replace(instance.limits, steps=steps, most_memory=memory),
    )


def in_memory(instance: Instance) -> Instance:
    """GPUs with no more memory than may be used, for brute force."""
    most, share = instance.limits.most_memory, 1 - instance.limits.memory_headroom
    if most is None:
        return instance
    pools = tuple(
        replace(pool, gpu=with_memory(pool.gpu, min(pool.gpu.memory.driver, most / share)))
        for pool in instance.pools
    )
    return replace(instance, pools=pools)


def drawn(
    seed: int, most: int, make: Callable[[Random], Instance]
) -> tuple[Oracle, Instance, list[Requirement]]:
    """A random problem with one to three requirements, and memory, days and dollars that bind."""
    random = Random(seed)
    oracle = small_problem(random, most, make)
    instance = with_limits(random, oracle)
    answers = oracle.answers(instance) or oracle.answers(oracle.instance)
    each = {any_batch: short_step, failing: little_lost}.get(make, random_requirement)
    required = [each(random, instance, answers) for _ in range(random.choice((1, 1, 2, 3)))]
    return oracle, requiring(instance, required), required


def compare(seed: int, most: int = 700, make: Callable[[Random], Instance] = problem) -> list[str]:
    oracle, instance, required = drawn(seed, most, make)
    table = Table.of(instance, goal_of(instance), usual_families(instance))
    plan = best(table)
    roomy = in_memory(instance)
    answers, safe = (
        within(instance, kept(instance, oracle.answers(of), required)) for of in (roomy, room_rounded(roomy))
    )
    wrong = disagreements(instance, answers, safe, plan)
    ledger = Ledger.of(table, usual_families(instance))
    wrong += miscounted(oracle, instance, required, ledger)
    wrong += [f"{ledger.feasible} not ruled out"] if plan is None and ledger.feasible else []
    asked = ", ".join(of.text for of in required)
    return [f"seed {seed}, {asked}: {line}" for line in wrong]


def miscounted(oracle: Oracle, instance: Instance, required: list[Requirement], ledger: Ledger) -> list[str]:
    """Counts that brute force says are wrong: of what requirements on decisions leave, and of what others exclude."""
    decided = [of for of in required if of.decision is not None]
    unlimited = {of.layout: of for of in oracle.answers(oracle.instance)}
    left = [at for at in oracle.needed if at in unlimited and kept(instance, [unlimited[at]], decided)]
    counted = (*ledger.rejected.values(), ledger.screened, ledger.bounded, ledger.solved)
    wrong = (
        [] if ledger.valid == sum(num_modes(instance, of) for of in left) == sum(counted) else [f"{ledger}"]
    )
    fitting = {of.layout: of for of in oracle.answers(in_memory(instance))}
    for of in required:
        broken = [at for at in left if at not in fitting or not kept(instance, [fitting[at]], [of])]
        if ledger.rejected.get(of.text, 0) > sum(num_modes(instance, at) for at in broken):
            wrong.append(f"{ledger.rejected[of.text]} rejected by {of.text}, {len(broken)} break it")
    there = {of.layout for of in oracle.answers(instance)}
    short = sum(num_modes(instance, at) for at in left if at not in there)
    if ledger.rejected.get("memory", 0) > short:
        wrong.append(
            f"{ledger.rejected['memory']} rejected by the GPUs' own memory, {short} have no room in it"
        )
    return wrong if min(counted) >= 0 else [*wrong, f"negative: {ledger}"]


def any_batch(random: Random) -> Instance:
    """Problems in which the number of micro-batches is free."""
    instance = problem(random)
    allowed = {name: of for name, of in instance.narrowing.allowed.items() if name != "num_microbatches"}
    return replace(instance, min_batch=1, max_batch=16, narrowing=Narrowing(allowed))


def short_step(random: Random, instance: Instance, answers: list[Answer]) -> Requirement:
    """A step that some plan takes, or a little less than that."""
    of = figures(instance, random.choice(answers))
    near = random.choice((1.00037, 0.9999, 0.999, 0.99))
    return Requirement("step_time_s", "<=", (of["step_time_s"] * near,))


def failing(random: Random) -> Instance:
    """Problems whose runs stop and save: on sites that differ from pool to pool."""
    return surrounded(random, problem(random))


def little_lost(random: Random, instance: Instance, answers: list[Answer]) -> Requirement:
    """A goodput that some plan has, or a little more than that; now and then another requirement."""
    if random.random() < 0.3:
        return random_requirement(random, instance, answers)
    of = figures(instance, random.choice(answers))
    return Requirement("goodput", ">=", (of["goodput"] * random.choice((0.99999, 1.00001)),))


@pytest.mark.parametrize("make", [problem, leading, failing])
@pytest.mark.parametrize("block", range(2))
def test_the_optimum_within_requirements_is_that_of_brute_force(
    block: int, make: Callable[[Random], Instance]
) -> None:
    wrong = [line for seed in range(block * 12, block * 12 + 12) for line in compare(seed, 500, make)]
    assert not wrong, "\n".join(wrong)


# Where only rows with fewer micro-batches keep to a step, and only after their stages are solved exactly.
SPLIT_LATE = (60177, 60186, 60254)


def test_fewer_microbatches_are_tried_until_the_step_is_short_enough() -> None:
    wrong = [line for seed in (*range(70_000, 70_010), *SPLIT_LATE) for line in compare(seed, 500, any_batch)]
    assert not wrong, "\n".join(wrong)


def modules_required(seed: int) -> list[str]:
    """What a search within a requirement on recomputed modules has wrong."""
    random = Random(seed)
    oracle = small_problem(random, 500, overlapping)
    instance = with_limits(random, oracle)
    named = sorted({"+".join(sorted(of.modules)) or "none" for of in oracle.layouts})
    sign = random.choice(("==", "!=", "in"))
    values = tuple(random.sample(named, min(len(named), 2 if sign == "in" else 1)))
    required = [Requirement("recompute_modules", sign, values)]
    instance = requiring(instance, required)
    plan = best(Table.of(instance, goal_of(instance), usual_families(instance)))
    roomy = in_memory(instance)
    answers, safe = (
        within(instance, kept(instance, oracle.answers(of), required)) for of in (roomy, room_rounded(roomy))
    )
    wrong = disagreements(instance, answers, safe, plan)
    return [f"seed {seed}, {required[0].text}: {line}" for line in wrong]


def test_the_optimum_with_required_modules_is_that_of_brute_force() -> None:
    wrong = [line for seed in range(40_000, 40_024) for line in modules_required(seed)]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("make", [problem, any_batch, failing])
def test_what_ifs_that_share_an_evaluation_keep_to_requirements(make: Callable[[Random], Instance]) -> None:
    for seed in range(90_000, 90_006):
        _, instance, _ = drawn(seed, 400, make)
        families = usual_families(instance)
        shared = Evaluation.of(instance, families)
        for what_if in (
            instance,
            replace(instance, tokens=2 * instance.tokens),
            without_requirements(instance, ()),
        ):
            plan, _ = shared.answer(what_if, Effort())
            alone = best(Table.of(what_if, goal_of(what_if), families))
            assert (plan is None) == (alone is None)
            if plan is not None and alone is not None:
                assert value(what_if, plan) == pytest.approx(value(what_if, alone), rel=SAME)


@pytest.mark.parametrize("make", [problem, any_batch, failing])
def test_the_frontier_within_requirements_is_that_of_brute_force(make: Callable[[Random], Instance]) -> None:
    for seed in range(95_000, 95_008):
        oracle, instance, required = drawn(seed, 400, make)
        answers = within(instance, kept(instance, oracle.answers(in_memory(instance)), required))
        points = undominated([(of.seconds, of.dollars) for of in answers])
        plans, _ = frontier(instance)
        found = [seconds_and_dollars(instance, plan) for plan in plans]
        # What rounding of bytes leaves out, and equal points, aside: none is better, and the ends are there.
        for mine in found:
            assert not any(a < mine[0] * (1 - SAME) and b < mine[1] * (1 - SAME) for a, b in points)
        assert bool(found) == bool(points)
        if found:
            assert found[0][0] == pytest.approx(points[0][0], rel=SAME)
            assert found[-1][1] == pytest.approx(points[-1][1], rel=SAME)
            assert len(found) == pytest.approx(len(points), abs=1)


@pytest.mark.slow
@pytest.mark.parametrize("make", [problem, leading, any_batch, failing])
@pytest.mark.parametrize("block", range(6))
def test_the_optimum_within_requirements_is_that_of_brute_force_on_many_more(
    block: int, make: Callable[[Random], Instance]
) -> None:
    seeds = range(30_000 + block * 20, 30_000 + block * 20 + 20)
    wrong = [line for seed in seeds for line in compare(seed, 1500, make)]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("gpus <= 512", "gpus <= 512"),
        ("num_gpus<512", "gpus < 512"),
        ("pp in [4, 8, 4]", "pp in [4, 8]"),
        ("pp in 4, 8", "pp in [4, 8]"),
        ("mfu >= 35%", "mfu >= 0.35"),
        ("memory_gib <= 70 GiB", "memory_gib <= 70"),
        ("days <= 8 weeks", "days <= 56"),
        ("dollars <= $1.5M", "dollars <= 1500000"),
        ("step_time_s < 1 min", "step_time_s < 60"),
        ("goodput >= 99.5%", "goodput >= 0.995"),
        ("hfu >= 55%", "hfu >= 0.55"),
        ("energy <= 2.5 GWh", "energy <= 2500"),
        ("mwh <= 900", "energy <= 900"),
        ("carbon <= 300 tCO2", "carbon <= 300"),
        ("headroom >= 10%", "memory_headroom >= 0.1"),
        ("recompute != full", "recompute != full"),
        ("gpu in [H800, H20]", "gpu in [H800, H20]"),
        ("zero >= 0", "zero >= 0"),
        ("recompute_modules == moe_act + layernorm", "recompute_modules == layernorm+moe_act"),
        ("recompute_modules in [mlp, none]", "recompute_modules in [mlp, none]"),
    ],
)
def test_requirements_are_read_and_written_back(text: str, written: str) -> None:
    of = requirement(text)
    assert of.text == written
    assert requirement(of.text) == of
    assert re.search(PATTERN, text)
    assert re.search(PATTERN, written)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("tpp == 8", "did you mean 'tp'?"),
        ("tp = 8", "write == for equality"),
        ("tp is 8", "accepted: <= >= == != < > in"),
        ("tp == eight", "tp compared with a whole number"),
        ("tp == 0", "1 or more"),
        ("tp", "nothing compares"),
        ("tp ==", "without a value"),
        ("pp in []", "nothing in the list"),
        ("step_time_s <= 10 parsecs", "step_time_s <= seconds, such as 10 or 10 s"),
        ("mfu >= 40", "did you mean 40%?"),
        ("mfu >= 0", "a number above 0"),
        ("mfu <= 0.5", "mfu is limited from below only"),
        ("days >= 3", "days is limited from above only"),
        ("goodput <= 0.9", "goodput is limited from below only"),
        ("memory_headroom <= 0.1", "memory_headroom is limited from below only"),
        ("energy >= 1 MWh", "energy is limited from above only"),
        ("carbon <= 3 hours", "tonnes of CO2, such as 300"),
        ("step_time_s == 3", "step_time_s <= ..."),
        ("hfu <= 0.5", "hfu is limited from below only"),
        ("gpu >= H800", "has no order"),
        ("recompute == selectiv", "did you mean 'selective'?"),
        ("zero <= 4", "a ZeRO stage"),
        ("recompute_modules == layernrm", "did you mean 'layernorm'?"),
        ("recompute_modules >= mlp", "has no order"),
        ("import os", "is no decision or prediction"),
        (8, "found 8"),
    ],
)
def test_what_is_no_requirement_is_refused_with_what_is_accepted(text: Any, said: str) -> None:
    with pytest.raises(Refused, match=re.escape(said)):
        requirement(text)


def test_a_refusal_names_the_requirement_in_the_file() -> None:
    with pytest.raises(InvalidInput, match=r"limits\.require\.1: found 'tp = 8'"):
        job(("limits.require", ["gpus <= 64", "tp = 8"]))
    with pytest.raises(
        InvalidInput, match=r"limits\.require\.0: .*no pool has H8000(.|\n)*did you mean 'H800'"
    ):
        job(("limits.require", ["gpu == H8000"]))
    with pytest.raises(InvalidInput, match="leaves no pool"):
        job(("limits.require", ["gpu == H800", "gpu == H20"]))


def test_a_problem_with_requirements_survives_being_written() -> None:
    of = job(("limits.require", ["gpus <= 64", "memory_gib <= 70 GB", "mfu >= 33.3%"]))
    again = job(("limits.require", of.as_written()["limits"]["require"]))
    assert again.problem_hash == of.problem_hash != job().problem_hash


def planned(*required: str) -> tuple[Instance, Plan | None]:
    """The best plan of the small job within some requirements, as a solution has it."""
    instance = instance_of(job(("limits.require", list(required))))
    plan = best_plan(instance)
    return instance, None if plan is None else reported(instance, plan)


@pytest.mark.parametrize(
    ("name", "sign", "share"),
    [
        ("tp", "!=", 1.0), ("gpus", ">", 1.0), ("nodes", ">", 1.0), ("gpu", "!=", 1.0), ("recompute", "!=", 1.0),
        ("zero", "!=", 1.0), ("vpp", "<", 1.0), ("global_batch", "<", 1.0), ("num_microbatches", ">", 1.0),
        ("micro_batch", "!=", 1.0), ("memory_gib", "<=", 0.9), ("step_time_s", "<=", 0.8), ("mfu", ">=", 1.005),
        ("tokens_per_s_per_gpu", ">=", 1.005), ("days", "<=", 0.7), ("dollars", "<=", 0.99), ("goodput", ">=", 1.0001), ("hfu", ">=", 1.01),
    ],
)  # fmt: skip
def test_a_requirement_that_the_best_plan_breaks_changes_it(name: str, sign: str, share: float) -> None:
    """The plan without it breaks it, as the validator says; the plan with it keeps to it and is not cheaper."""
    _, free = planned()
    assert free is not None
    figure = free.decisions.model_dump() | free.estimate.model_dump() | {"gpus": free.decisions.num_gpus}
    value = figure[name]["total"] if name == "memory_gib" else figure[name]
    text = f"{name} {sign} {value if share == 1 else share * value}"
    text += " USD" if name == "dollars" else ""
    of = job(("limits.require", [text]))
    (wrong,) = violations(of, free)[-1:]
    assert name in wrong or name in ("days", "dollars")
    _, plan = planned(text)
    if name == "dollars":
        assert plan is None
    elif plan is not None:
        assert violations(of, plan) == []
        assert plan.estimate.dollars >= free.estimate.dollars * (1 - 1e-9)
    else:
        assert name in ("mfu", "hfu", "tokens_per_s_per_gpu", "goodput")


def test_required_modules_are_what_the_plan_recomputes() -> None:
    """Whatever it frees, and none where that is required."""
    of = job(("limits.require", ["recompute_modules == layernorm"]))
    plan = solve(of).plans[0]
    assert plan.decisions.recompute_modules == ("layernorm",)
    assert plan.decisions.recompute == "selective"
    wrong = violations(job(("limits.require", ["recompute_modules != layernorm"])), plan)
    assert wrong == ["recompute_modules != layernorm: recompute_modules is layernorm"]
    _, bare = planned("recompute_modules == none")
    assert bare is not None
    assert bare.decisions.recompute != "selective"


@pytest.mark.parametrize(
    ("required", "limit"),
    [
        (["energy <= 300 MWh"], ("limits.energy", "300 MWh")),
        (["carbon <= 200", "carbon <= 90 t"], ("limits.carbon", "90 t")),
        (["memory_headroom >= 0.2"], ("limits.memory_headroom", 0.2)),
        (["memory_headroom >= 0.02"], ("limits.memory_headroom", 0.05)),
        (["days <= 20", "dollars <= 300k USD"], ("limits", {"deadline": "20 days", "budget": "300k USD"})),
    ],
)
def test_requirements_on_what_has_a_limit_of_its_own_are_that_limit(
    required: list[str], limit: tuple[str, Any]
) -> None:
    """Beside the one there is, of which the tighter one holds; and the validator holds plans to them."""
    ours, theirs = instance_of(job(("limits.require", required))), instance_of(job(limit))
    assert ours == theirs
    of = solve(job(limit))
    assert of.plans
    assert violations(job(("limits.require", required)), of.plans[0]) == []


def test_slack_shows_each_requirement() -> None:
    _, plan = planned("gpus <= 88", "mfu >= 40%", "memory_gib <= 60", "days <= 28", "tp in [1, 2]")
    assert plan is not None
    slack = plan.slack
    assert slack["gpus <= 88"].left == 88 - plan.decisions.num_gpus
    assert slack["mfu >= 0.4"].left == pytest.approx(plan.estimate.mfu - 0.4)
    assert slack["memory"].limit == 60
    assert slack["deadline"].limit == pytest.approx(28)


def test_the_proof_counts_what_a_requirement_excludes() -> None:
    of = solve(job(("limits.require", ["step_time_s <= 6", "mfu >= 0.45"])))
    assert of.status == "optimal"
    rejected = of.proof.rejected
    assert rejected["mfu >= 0.45"] > 0
    assert rejected["step_time_s <= 6"] > 0
    assert sum(rejected.values()) == of.proof.valid - of.proof.feasible


def test_what_conflicts_is_named_with_what_would_do() -> None:
    of = solve(job(("limits.require", ["gpus <= 40", "tp == 2", "gpu == H800"])))
    assert of.conflict is not None
    assert {"deadline", "gpus <= 40"} <= set(of.conflict.limits)
    assert "tp == 2" not in of.conflict.limits
    moves = {move.limit: move for move in of.conflict.relaxations}
    changed = str(moves["gpus <= 40"].to)
    assert re.fullmatch(r"gpus <= \d+", changed)
    others = ["tp == 2", "gpu == H800"]
    assert planned(changed, *others)[1] is not None
    fewer = int(changed.split()[-1]) - 1
    assert planned(f"gpus <= {fewer}", *others)[1] is None


def test_a_prediction_out_of_reach_is_moved_to_what_can_be_reached() -> None:
    of = solve(job(("limits.require", ["mfu >= 0.9"])))
    assert of.conflict is not None
    assert of.conflict.limits == ("mfu >= 0.9",)
    (move,) = [move for move in of.conflict.relaxations if move.limit == "mfu >= 0.9"]
    share = float(str(move.to).removeprefix("mfu >= "))
    assert planned(str(move.to))[1] is not None
    assert planned(f"mfu >= {share * 1.02}")[1] is None


def test_a_decision_that_no_layout_has_is_the_conflict() -> None:
    of = solve(job(("limits.require", ["tp == 4", "pp == 41"])))
    assert of.conflict is not None
    assert of.conflict.limits == ("pp == 41",)
    assert "without pp == 41 a plan is possible" in of.conflict.relaxations[-1].text


@pytest.mark.parametrize(
    ("text", "narrowed"),
    [
        ("tp != 2", (1, 4)),
        ("zero < 1", (0,)),
        ("recompute in [none, full]", ("none", "full")),
        ("pp <= 2", (1, 2)),
    ],
)
def test_a_required_decision_is_the_same_as_a_narrowed_one(text: str, narrowed: tuple[Any, ...]) -> None:
    _, required = planned(text)
    instance = instance_of(job((f"search.{text.split()[0]}", list(narrowed))))
    plan = best_plan(instance)
    assert plan is not None
    assert required is not None
    assert reported(instance, plan).decisions == required.decisions


def test_requirements_hold_in_each_phase_of_a_run() -> None:
    phases = [{"name": "first", "tokens": "900B"}, {"name": "last", "tokens": "100B", "seq_len": 8192}]
    of = solve(job(("limits.require", ["mfu >= 0.4", "tp == 2", "gpus <= 88"]), ("phases", phases)))
    assert of.run is not None
    for phase in of.run.phases:
        assert phase.plan.decisions.tp == 2
        assert phase.plan.decisions.num_gpus <= 88
        assert phase.plan.estimate.mfu >= 0.4


def test_a_required_goodput_holds_in_each_phase_and_so_in_the_whole_run() -> None:
    phases = [{"name": "first", "tokens": "900B"}, {"name": "last", "tokens": "100B", "seq_len": 8192}]
    of = job(("phases", phases), ("objective", "time"))
    free = solve(of).run
    assert free is not None
    least = min(phase.plan.estimate.goodput or 0.0 for phase in free.phases) + 1e-5
    run = solve(
        job(("phases", phases), ("objective", "time"), ("limits.require", [f"goodput >= {least}"]))
    ).run
    assert run is not None
    assert run.goodput >= least > free.goodput
    assert all((phase.plan.estimate.goodput or 0.0) >= least for phase in run.phases)
    assert run.num_gpus < free.num_gpus


def test_a_required_hfu_holds_in_each_phase() -> None:
    phases = [{"name": "first", "tokens": "900B"}, {"name": "last", "tokens": "100B", "seq_len": 8192}]
    of = solve(job(("phases", phases), ("limits.require", ["hfu >= 0.55"]), ("limits.budget", "500k USD")))
    assert of.run is not None
    assert all(phase.plan.estimate.hfu >= 0.55 for phase in of.run.phases)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "unit"), [("energy", "MWh"), ("carbon", "t")])
def test_what_is_required_of_a_run_in_phases_is_of_all_of_it(name: str, unit: str) -> None:
    phases = ("phases", [{"name": "first", "tokens": "700B"}, {"name": "last", "tokens": "300B"}])
    answers = [solve(job(phases, limit)) for limit in (
        (f"limits.{name}", f"20 {unit}"), ("limits.require", [f"{name} <= 20 {unit}"])
    )]  # fmt: skip
    limited, required = (of.conflict for of in answers)
    assert limited is not None
    assert required is not None
    assert (required.limits, required.relaxations) == (limited.limits, limited.relaxations)
