"""Checks a returned plan from scratch. Shares nothing with the solver: no columns, no bounds, no CP-SAT.

It reads the plan as a launcher would, prices it with `costmodel.estimate`, and says what does not hold.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import isclose

from costmodel.calibration.apply import calibrated_stack
from costmodel.estimate import Estimate, estimate
from costmodel.mixed_estimate import MixedEstimate
from costmodel.overlap import with_expert_overlap
from costmodel.run import Run
from costmodel.units import DAY, GIB
from planner.chance import length_quantile, length_spread
from planner.confidence import band_of
from planner.narrowing import set_name
from planner.pool import Pool
from planner.problem import Problem
from planner.solution import Decisions, Plan
from planner.validate_launch import launch_faults
from planner.validate_run import Lasting, lasts, site_of_pool, trainable
from planner.validate_switches import spoken, switch_claims

TOLERANCE = 1e-6


def violations(problem: Problem, plan: Plan) -> list[str]:
    """What is wrong with a plan, a sentence each; empty if it holds."""
    if plan.decisions.mixed is not None:
        from planner.validate_mixed import mixed_violations

        return mixed_violations(problem, plan)
    pools = [pool for pool in problem.hardware if pool.accelerator.name == plan.decisions.gpu]
    if not pools:
        return [f"{plan.decisions.gpu} is not among the pools"]
    found = [_wrong(problem, pool, plan) for pool in pools]
    # Two pools may offer the same GPU at different prices: the plan holds if it holds on one.
    return min(found, key=len)


def _wrong(problem: Problem, pool: Pool, plan: Plan) -> list[str]:
    wrong = layout_faults(problem, pool, plan.decisions) + _narrowing(problem, plan.decisions)
    wrong += launch_faults(problem, plan.decisions)
    if wrong:
        return wrong
    predicted = predicted_of(problem, pool, plan.decisions)
    lasting = lasts(problem, site_of_pool(problem, pool), plan, predicted)
    wrong = _figures(plan, predicted, lasting) + _limits(problem, pool, plan, predicted, lasting)
    return wrong + _requirements(problem, pool, plan, predicted, lasting)


def layout_faults(problem: Problem, pool: Pool, d: Decisions) -> list[str]:
    """Products, divisibility, and layers."""
    batch, node = problem.training.global_batch, pool.fabric.gpus_per_node
    holds = {
        f"{d.gpu} has {d.precision}": d.precision in pool.accelerator.peak_flops,
        f"{d.num_gpus} GPUs are tp*cp*pp*dp": d.num_gpus == d.tp * d.cp * d.pp * d.dp,
        f"{d.num_gpus} GPUs fill {d.nodes} nodes of {node}": d.num_gpus == d.nodes * node,
        f"{d.nodes} nodes are within the pool": d.nodes <= pool.max_nodes
        and d.nodes >= min(pool.min_nodes, trainable(site_of_pool(problem, pool), pool.max_nodes)),
        f"a batch of {d.global_batch} is micro_batch*num_microbatches*dp": d.global_batch
        == d.micro_batch * d.num_microbatches * d.dp,
        f"a batch of {d.global_batch} is allowed": batch.min <= d.global_batch <= batch.max,
        f"tp {d.tp} stays within an NVLink domain": pool.fabric.domain % d.tp == 0,
        "ep*etp divides tp*cp*dp": (d.tp * d.cp * d.dp) % (d.ep * d.etp) == 0,
        "interleaving has micro-batches in multiples of pp": d.vpp == 1 or d.num_microbatches % d.pp == 0,
        "ZeRO 2 and 3 are without a pipeline, or ZeRO 2 by rounds of virtual stages": d.zero < 2
        or d.pp == 1
        or _in_rounds(problem, d),
        "states shared within a node are of ZeRO, and replicas fill nodes": d.zero_scope == "full"
        or (d.zero > 0 and _shares_by_node(pool.fabric.domain, d)),
    }
    return untrue(holds | shape_claims(problem, d))


def _in_rounds(problem: Problem, d: Decisions) -> bool:
    """Whether gradients are sharded beside a pipeline, a chunk's whenever the pipeline leaves it."""
    return d.zero == 2 and d.vpp > 1 and problem.search.software.data_parallel.reduces_by_round


def _shares_by_node(domain: int, d: Decisions) -> bool:
    """Whether a stage's ranks are several whole domains, in which several hold the same weights."""
    stage = d.tp * d.cp * d.dp
    alike, each = divmod(domain, d.tp)
    return (
        each == 0
        and alike > 1
        and alike % d.cp == 0
        and domain % (d.ep * d.etp) == 0
        and stage % domain == 0
        and stage > domain
    )


def shape_claims(problem: Problem, d: Decisions) -> dict[str, bool]:
    """What has to be so of one replica of the model, whatever GPUs it runs on."""
    a, seq_len = problem.model.architecture, problem.training.seq_len
    experts, layers = a.moe.experts if a.moe else 1, sum(stage.layers for stage in d.stages)
    chunks = [stage.chunks for stage in d.stages]
    return {
        f"{d.precision} is a precision of the problem": d.precision in problem.training.precision,
        f"tp {d.tp} splits {a.heads} heads": a.heads % d.tp == 0,
        f"tp {d.tp} splits {a.kv_heads} key-value heads": a.mla is not None or a.kv_heads % d.tp == 0,
        f"cp {d.cp} splits {seq_len} tokens in two parts a rank": d.cp == 1 or seq_len % (2 * d.cp) == 0,
        f"ep {d.ep} splits {experts} experts": experts % d.ep == 0,
        f"{layers} layers on the stages are the model's {a.layers}": layers == a.layers,
        f"{len(d.stages)} stages are pp": len(d.stages) == d.pp,
        "chunks add up to the layers of their stage": d.vpp == 1
        or all(len(c) == d.vpp and sum(c) == s.layers for c, s in zip(chunks, d.stages, strict=True)),
        "chunks take all ranks equally long: as many layers each, but fewer at the ends": d.vpp == 1
        or keeps_step(chunks),
        "no stage is empty or recomputes more than it has": all(
            0 <= stage.recomputed_layers <= stage.layers and stage.layers > 0 for stage in d.stages
        ),
        f"recompute {d.recompute} is what the stages do": d.recompute == "selective"
        or (d.recompute == "full") == any(stage.recomputed_layers for stage in d.stages),
        "selective recompute names modules and recomputes no whole layer": (d.recompute == "selective")
        == bool(d.recompute_modules)
        and not (d.recompute == "selective" and any(stage.recomputed_layers for stage in d.stages)),
        "sequence parallelism goes with tp > 1 as the profile has it": d.sequence_parallel
        == (d.tp > 1 and problem.search.software.tensor_parallel.sequence_parallel),
    } | switch_claims(problem, d)


def untrue(holds: dict[str, bool]) -> list[str]:
    """Claims that do not hold, a sentence each."""
    return [f"not so: {claim}" for claim, so in holds.items() if not so]


def _narrowing(problem: Problem, d: Decisions) -> list[str]:
    allowed = problem.search.allowed
    found = {name: getattr(d, name) for name in allowed} | {"recompute_modules": set_name(d.modules)}
    return [
        f"{name} {spoken(found[name])} is not among {', '.join(map(spoken, values))}"
        for name, values in allowed.items()
        if found[name] not in values and (name != "recompute_modules" or d.recompute == "selective")
    ]


def keeps_step(chunks: list[tuple[int, ...]]) -> bool:
    """Whether no rank waits for a chunk that is longer on another; the pipeline's ends may be shorter."""
    first, last = (0, 0), (len(chunks) - 1, len(chunks[0]) - 1)
    for chunk, sizes in enumerate(zip(*chunks, strict=True)):
        full = max(sizes)
        if any(n < full and (rank, chunk) not in (first, last) for rank, n in enumerate(sizes)):
            return False
    return True


def stage_lists(d: Decisions) -> tuple[list[int], list[int]]:
    """Layers and recomputed layers of each virtual stage: chunk c of rank s is stage c*pp + s."""
    layers, recomputed = [], []
    for chunk in range(d.vpp):
        for stage in d.stages:
            layers.append(stage.chunks[chunk] if d.vpp > 1 else stage.layers)
            recomputed.append(stage.recomputed_chunks[chunk] if d.vpp > 1 else stage.recomputed_layers)
    return layers, recomputed


def described_run(problem: Problem, pool: Pool, d: Decisions) -> Run:
    """The cost model's noun for a plan's decisions."""
    stack = with_expert_overlap(problem.search.software, d.ep_overlap)
    return Run(
        architecture=problem.model.architecture,
        gpu=pool.accelerator,
        fabric=pool.fabric,
        stack=calibrated_stack(stack, pool.accelerator),
        seq_len=problem.training.seq_len,
        precision=d.precision,
        recompute_modules=d.modules,
        **{name: getattr(d, name) for name in ("tp", "cp", "pp", "vpp", "dp", "ep", "etp", "zero")},
        micro_batch=d.micro_batch,
        num_microbatches=d.num_microbatches,
        shard_ranks=pool.fabric.domain // d.tp if d.zero_scope == "node" else float("inf"),
    )


def predicted_of(problem: Problem, pool: Pool, d: Decisions) -> Estimate:
    """The cost model's estimate of a plan, from its decisions alone."""
    layers, recomputed = stage_lists(d)
    return estimate(
        described_run(problem, pool, d),
        layers,
        recomputed,
        assume_mfu=problem.assume_mfu,
        nominal_parameters=problem.model.nominal_parameters,
    )


def _figures(plan: Plan, predicted: Estimate, lasting: Lasting) -> list[str]:
    """Reported figures against those of the cost model."""
    memory = {"memory": (plan.estimate.memory_gib.total, float(predicted.memory.total) / GIB)}
    return misreported(run_figures(plan, predicted, lasting) | memory)


def run_figures(
    plan: Plan, predicted: Estimate | MixedEstimate, lasting: Lasting
) -> dict[str, tuple[float | None, float]]:
    """What is reported of a plan's run, memory apart, and what is computed."""
    e = plan.estimate
    return {
        "step time": (e.step_time_s, predicted.step_time),
        "days": (e.days, lasting.seconds / DAY),
        "ideal days": (e.ideal_days, lasting.ideal / DAY),
        "goodput": (e.goodput, lasting.goodput),
        "dollars": (e.dollars, lasting.dollars),
        "mfu": (e.mfu, predicted.mfu),
        "hfu": (e.hfu, predicted.hfu),
        "sum of the breakdown": (sum(e.breakdown_s.values()), e.step_time_s),
        "energy": (e.energy and e.energy.mwh, lasting.kwh / 1e3),
        "carbon": (e.energy and e.energy.tonnes_co2, lasting.tonnes),
        "storage": (e.storage and e.storage.total_tb, lasting.kept / 1e12),
    }


def misreported(figures: Mapping[str, tuple[float | None, float]]) -> list[str]:
    """Figures that are not what is computed."""
    return [
        f"{name}: reported {shown:.9g}, computed {value:.9g}"
        for name, (shown, value) in figures.items()
        if shown is not None and not isclose(shown, value, rel_tol=TOLERANCE)
    ]


def _surely(
    problem: Problem, pool: Pool, plan: Plan, predicted: Estimate, lasting: Lasting
) -> tuple[float, float]:
    """Seconds and dollars that deadline and budget have to allow for at the confidence that is asked for."""
    e, d, share = plan.estimate, plan.decisions, problem.limits.confidence
    if share is None:
        return e.days * DAY, e.dollars
    site = next(site for of, site in zip(problem.hardware, problem.sites, strict=True) if of is pool)
    losses = site.losses(d.num_gpus, d.dp)
    steps = problem.training.tokens / (d.global_batch * problem.training.seq_len)
    spread = length_spread(site, d.num_gpus, losses, steps * (predicted.step_time + float(losses.evaluation)))
    longer = length_quantile(share, band_of(described_run(problem, pool, d)), spread)
    seconds = lasting.seconds * longer
    return seconds, float(site.bill(d.num_gpus, seconds, losses).total)


def _limits(problem: Problem, pool: Pool, plan: Plan, predicted: Estimate, lasting: Lasting) -> list[str]:
    limits = problem.limits
    room = pool.accelerator.memory.driver * (1 - limits.memory_headroom)
    seconds, cost = _surely(problem, pool, plan, predicted, lasting)
    over = {
        "memory": (float(predicted.memory.total), room),
        "deadline": (seconds, limits.deadline),
        "budget": (cost, limits.budget),
        "energy": (lasting.kwh, limits.energy),
        "carbon": (lasting.tonnes, limits.carbon),
        "storage": (lasting.kept, lasting.room),
        "nodes with their spares": (lasting.nodes, pool.max_nodes),
    }
    return exceeded(over)


def exceeded(over: Mapping[str, tuple[float, float | None]]) -> list[str]:
    """Limits that are not kept to."""
    return [
        f"{name}: {used:.9g} exceeds {allowed:.9g}"
        for name, (used, allowed) in over.items()
        if allowed is not None and used > allowed * (1 + TOLERANCE)
    ]


def _requirements(
    problem: Problem, pool: Pool, plan: Plan, predicted: Estimate, lasting: Lasting
) -> list[str]:
    """Requirements of the user's own: decisions as they are, predictions as the cost model has them."""
    seconds, cost = _surely(problem, pool, plan, predicted, lasting)
    found = plan.decisions.model_dump() | {
        "gpus": plan.decisions.num_gpus,
        "recompute_modules": set_name(plan.decisions.modules) or "none",
        "days": seconds / DAY,
        "dollars": cost,
        "step_time_s": predicted.step_time,
        "memory_gib": float(predicted.memory.total) / GIB,
        "memory_headroom": 1 - float(predicted.memory.total) / pool.accelerator.memory.driver,
        "mfu": predicted.mfu,
        "hfu": predicted.hfu,
        "goodput": lasting.goodput,
        "energy": lasting.kwh / 1e3,
        "carbon": lasting.tonnes,
        "tokens_per_s_per_gpu": predicted.tokens_per_second_per_gpu,
    }
    return [
        f"{of.text}: {of.name} is {found[of.name]}"
        for of in problem.limits.require
        if not keeps_to(of.operator, found[of.name], of.values, of.decision is None)
    ]


def keeps_to(sign: str, value: object, wanted: tuple[int | float | str, ...], predicted: bool) -> bool:
    """Whether a value compares as it should; predictions to within a tolerance."""
    if sign in ("==", "in", "!="):
        return (value in wanted) == (sign != "!=")
    number, limit = float(str(value)), float(wanted[0])
    if predicted:
        return number <= limit * (1 + TOLERANCE) if sign[0] == "<" else number >= limit * (1 - TOLERANCE)
    order = (number > limit) - (number < limit)
    return order in {"<=": (-1, 0), "<": (-1,), ">=": (0, 1), ">": (1,)}[sign]
