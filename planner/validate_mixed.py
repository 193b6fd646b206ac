"""Checks a returned plan on two pools from scratch, as `validate` does one on a single pool.

It reads the plan's parts as a launcher would: GPUs, replicas and pipeline ranks of each pool. Prices come
from `costmodel.mixed_estimate`, days and dollars from `validate_mixed_run`.
"""

from __future__ import annotations

from itertools import permutations

from costmodel.mixed import Mixed, Part
from costmodel.mixed_estimate import MixedEstimate, estimate_mixed
from costmodel.units import DAY, GIB
from planner.narrowing import set_name
from planner.pool import Pool
from planner.problem import Problem
from planner.solution import Decisions, Plan, PoolPart
from planner.validate import (
    described_run,
    exceeded,
    keeps_to,
    misreported,
    run_figures,
    shape_claims,
    stage_lists,
    untrue,
)
from planner.validate_launch import launch_faults
from planner.validate_mixed_run import Pools, Share, lasts_on_both, shares_of
from planner.validate_run import Lasting, site_of_pool, trainable
from planner.validate_switches import spoken


def mixed_violations(problem: Problem, plan: Plan) -> list[str]:
    """What is wrong with a mixed plan, a sentence each; empty if it holds."""
    d = plan.decisions
    if problem.mixing is None or d.mixed not in problem.mixing.forms:
        return [f"the problem asks for no plan with {d.mixed} on two pools"]
    if len(d.parts) != 2:
        return [f"a mixed plan has two parts, and this one {len(d.parts)}"]
    pairs = pairs_of(problem, d)
    if not pairs:
        return [f"{' and '.join(part.gpu for part in d.parts)} are no two of the pools"]
    return min((_wrong(problem, pair, plan) for pair in pairs), key=len)


def pairs_of(problem: Problem, d: Decisions) -> list[Pools]:
    """Pools that the parts may be of: several where pools offer the same GPU at different prices."""
    wanted = [part.gpu for part in d.parts]
    return [
        (first, second)
        for first, second in permutations(problem.hardware, 2)
        if [first.accelerator.name, second.accelerator.name] == wanted
    ]


def _wrong(problem: Problem, pools: Pools, plan: Plan) -> list[str]:
    wrong = mixed_layout_faults(problem, pools, plan.decisions) + _narrowing(problem, plan.decisions)
    wrong += launch_faults(problem, plan.decisions)
    if wrong:
        return wrong
    predicted = predicted_mixed(problem, pools, plan.decisions)
    shares = shares_of(problem, pools, plan.decisions)
    lasting = lasts_on_both(problem, shares, plan.decisions, predicted.step_time)
    wrong = _figures(plan, predicted, lasting) + _limits(problem, pools, shares, predicted, lasting)
    return wrong + _requirements(problem, pools, plan.decisions, predicted, lasting)


def mixed_layout_faults(problem: Problem, pools: Pools, d: Decisions) -> list[str]:
    """Products, divisibility and layers, of the whole and of each part."""
    holds = _whole(problem, d) | (_stages(d) if d.mixed == "stages" else _replicas(problem, d))
    for place, (pool, part) in enumerate(zip(pools, d.parts, strict=True)):
        claims = _part(problem, pool, part, d)
        holds |= {f"part {place + 1}: {claim}": so for claim, so in claims.items()}
    holds["stages recompute the same number of layers"] = problem.search.by_stage or _recomputes_alike(d)
    return untrue(holds | shape_claims(problem, d))


def _recomputes_alike(d: Decisions) -> bool:
    """Whether every virtual stage recomputes as many layers, or all that it has."""
    held = [n for stage in d.stages for n in stage.chunks or (stage.layers,)]
    again = [n for stage in d.stages for n in stage.recomputed_chunks or (stage.recomputed_layers,)]
    return again == [min(max(again), layers) for layers in held]


def _whole(problem: Problem, d: Decisions) -> dict[str, bool]:
    batch = problem.training.global_batch
    sequences = d.micro_batch * sum(of.num_microbatches * of.dp for of in _lines(d))
    return {
        "GPUs of the parts are those of the plan": d.num_gpus == sum(part.num_gpus for part in d.parts),
        "nodes of the parts are those of the plan": d.nodes == sum(part.nodes for part in d.parts),
        f"a batch of {d.global_batch} is that of the parts": d.global_batch == sequences,
        f"a batch of {d.global_batch} is allowed": batch.min <= d.global_batch <= batch.max,
        "the plan's micro-batches are those of the first part": d.num_microbatches
        == d.parts[0].num_microbatches,
        "the plan is named after both GPUs": d.gpu == " + ".join(part.gpu for part in d.parts),
        f"ZeRO {d.zero} is 0 or 1": d.zero in (0, 1),
        "ZeRO 1 has ranks to shard over": d.zero == 0 or d.dp * d.cp > 1,
    }


def _lines(d: Decisions) -> tuple[PoolPart, ...]:
    """The parts whose replicas have micro-batches of their own."""
    return d.parts[:1] if d.mixed == "stages" else d.parts


def _stages(d: Decisions) -> dict[str, bool]:
    """One pipeline over both pools."""
    first, second = d.parts
    return {
        "the first part holds the first ranks and the second one the others": first.first_rank == 0
        and first.last_rank + 1 == second.first_rank
        and second.last_rank == d.pp - 1
        and second.first_rank <= second.last_rank,
        "both parts are of the same replicas": first.dp == second.dp == d.dp,
        "pipelines over two pools are not interleaved": d.vpp == 1,
        "both parts have the same micro-batches": first.num_microbatches == second.num_microbatches,
    }


def _replicas(problem: Problem, d: Decisions) -> dict[str, bool]:
    """Whole pipelines on each pool."""
    return {
        "each part holds every rank": all((of.first_rank, of.last_rank) == (0, d.pp - 1) for of in d.parts),
        f"{d.dp} replicas are those of the parts": d.dp == sum(part.dp for part in d.parts),
        "interleaving has micro-batches in multiples of pp": d.vpp == 1
        or all(part.num_microbatches % d.pp == 0 for part in d.parts),
        "Megatron has one number of micro-batches": problem.search.framework != "megatron"
        or d.parts[0].num_microbatches == d.parts[1].num_microbatches,
    }


def _part(problem: Problem, pool: Pool, part: PoolPart, d: Decisions) -> dict[str, bool]:
    """What one pool's GPUs do, against the pool."""
    node, of, ranks = pool.fabric.gpus_per_node, part.gpu, part.last_rank - part.first_rank + 1
    least = min(pool.min_nodes, trainable(site_of_pool(problem, pool), pool.max_nodes))
    return {
        f"{part.num_gpus} {of} are tp*cp*dp*ranks": part.num_gpus == d.tp * d.cp * part.dp * ranks,
        f"{part.num_gpus} {of} fill {part.nodes} nodes of {node}": part.num_gpus == part.nodes * node,
        f"{part.nodes} nodes of {of} are within the pool": least <= part.nodes <= pool.max_nodes,
        f"tp {d.tp} stays within an NVLink domain of {of}": pool.fabric.domain % d.tp == 0,
        f"ep*etp divides tp*cp*dp on {of}": (d.tp * d.cp * part.dp) % (d.ep * d.etp) == 0,
        f"{of} has {d.precision}": d.precision in pool.accelerator.peak_flops,
    }


def _narrowing(problem: Problem, d: Decisions) -> list[str]:
    return [
        f"{name} {spoken(value)} is not among {', '.join(map(spoken, values))}"
        for name, values in problem.search.allowed.items()
        for value in _values(d, name)
        if value not in values
    ]


def _values(d: Decisions, name: str) -> list[int | str]:
    """A decision, or both where each part has its own."""
    if name in ("gpu", "num_microbatches"):
        return [getattr(part, name) for part in d.parts]
    if name == "recompute_modules":
        return [set_name(d.modules) or "none"]
    return [getattr(d, name)]


def mixed_of_decisions(problem: Problem, pools: Pools, d: Decisions) -> Mixed:
    """The cost model's noun for a mixed plan's decisions."""
    assert problem.mixing is not None
    first, second = (
        Part(
            described_run(
                problem,
                pool,
                d.model_copy(update={"dp": part.dp, "num_microbatches": part.num_microbatches}),
            ),
            range(part.first_rank, part.last_rank + 1),
        )
        for pool, part in zip(pools, d.parts, strict=True)
    )
    return Mixed((first, second), problem.mixing.network)


def predicted_mixed(problem: Problem, pools: Pools, d: Decisions) -> MixedEstimate:
    """The cost model's estimate of a mixed plan, from its decisions alone."""
    return estimate_mixed(mixed_of_decisions(problem, pools, d), *stage_lists(d))


def _figures(plan: Plan, predicted: MixedEstimate, lasting: Lasting) -> list[str]:
    """Reported figures against those of the cost model."""
    e, peaks = plan.estimate, [float(memory.total) / GIB for memory in predicted.memory]
    figures = run_figures(plan, predicted, lasting) | {
        "memory": (e.memory_gib.total, max(peaks)),
        "hfu": (e.hfu, predicted.hfu),
        "tokens/s a GPU": (e.tokens_per_s_per_gpu, predicted.tokens_per_second_per_gpu),
    }
    for place, (part, peak) in enumerate(zip(plan.decisions.parts, peaks, strict=True)):
        figures[f"memory of part {place + 1}, {part.gpu}"] = (part.memory_gib, peak)
    return misreported(figures) + misreported(_rank_figures(plan.decisions, predicted))


def _rank_figures(d: Decisions, predicted: MixedEstimate) -> dict[str, tuple[float | None, float]]:
    """Memory and time of each pipeline rank: of the GPUs that hold it, the fuller and the slower."""
    memory, seconds = [0.0] * d.pp, [0.0] * d.pp
    for part, full, busy in zip(d.parts, predicted.rank_memory, predicted.rank_seconds, strict=True):
        for place, rank in enumerate(range(part.first_rank, part.last_rank + 1)):
            memory[rank] = max(memory[rank], float(full[place]) / GIB)
            seconds[rank] = max(seconds[rank], float(busy[place]))
    found: dict[str, tuple[float | None, float]] = {}
    for rank, stage in enumerate(d.stages):
        found[f"memory of rank {rank}"] = (stage.memory_gib, memory[rank])
        found[f"micro-batch of rank {rank}"] = (stage.micro_batch_time_s, seconds[rank])
    return found


def _limits(
    problem: Problem, pools: Pools, shares: tuple[Share, Share], predicted: MixedEstimate, lasting: Lasting
) -> list[str]:
    limits = problem.limits
    over: dict[str, tuple[float, float | None]] = {
        "deadline": (lasting.seconds, limits.deadline),
        "budget": (lasting.dollars, limits.budget),
        "energy": (lasting.kwh, limits.energy),
        "carbon": (lasting.tonnes, limits.carbon),
        "storage": (lasting.kept, lasting.room),
    }
    for part, (pool, share) in enumerate(zip(pools, shares, strict=True)):
        name, room = pool.accelerator.name, pool.accelerator.memory.driver * (1 - limits.memory_headroom)
        over[f"memory of part {part + 1}, {name}"] = (float(predicted.memory[part].total), room)
        nodes = share.nodes + share.spares
        over[f"nodes of part {part + 1}, {name}, with their spares"] = (nodes, pool.max_nodes)
    return exceeded(over)


def _requirements(
    problem: Problem, pools: Pools, d: Decisions, predicted: MixedEstimate, lasting: Lasting
) -> list[str]:
    """Requirements of the user's own: on both pools together, on each where each has its own."""
    rooms = (pool.accelerator.memory.driver for pool in pools)
    used = (float(memory.total) / room for memory, room in zip(predicted.memory, rooms, strict=True))
    found: dict[str, float] = {
        "days": lasting.seconds / DAY,
        "dollars": lasting.dollars,
        "step_time_s": predicted.step_time,
        "memory_gib": max(float(memory.total) for memory in predicted.memory) / GIB,
        "memory_headroom": 1 - max(used),
        "mfu": predicted.mfu,
        "hfu": predicted.hfu,
        "goodput": lasting.goodput,
        "energy": lasting.kwh / 1e3,
        "carbon": lasting.tonnes,
        "tokens_per_s_per_gpu": predicted.tokens_per_second_per_gpu,
    }
    return [
        f"{of.text}: {of.name} is {value}"
        for of in problem.limits.require
        for value in ([found[of.name]] if of.decision is None else _values(d, of.decision))
        if not keeps_to(of.operator, value, of.values, of.decision is None)
    ]
