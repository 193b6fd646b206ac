"""From a plan on two pools to the figures that people and programs read."""

from __future__ import annotations

from typing import Any

import numpy as np

from costmodel.mixed_estimate import MixedEstimate, estimate_mixed
from costmodel.units import DAY, GIB
from planner import solution
from planner.answer import Used, memory_parts, rank_stages, slack_of_run, spare
from planner.instance import Instance, Pool
from planner.mixed.losses import PairLosses
from planner.mixed.outlook import PairOutlook
from planner.mixed.plan import MixedPlan, mixed_of
from planner.mixed.sureness import band_of_pair, memory_risk, probabilities
from planner.search.rows import memory_limit
from planner.space.recompute import modules_of
from planner.switches import overlaps_of


def predicted(instance: Instance, plan: MixedPlan) -> MixedEstimate:
    """The cost model's estimate of a mixed plan."""
    return estimate_mixed(mixed_of(instance, plan), plan.stages.layers, plan.stages.recomputed)


def reported(instance: Instance, plan: MixedPlan, reasons: tuple[solution.Reason, ...] = ()) -> solution.Plan:
    """A mixed plan as the solution file has it."""
    of, ahead = predicted(instance, plan), PairOutlook.of_pair(instance, plan)
    band, risk = band_of_pair(instance, plan), memory_risk(instance, plan, of)
    fuller = int(np.argmax([float(memory.total) for memory in of.memory]))
    figures = solution.Estimate(
        step_time_s=of.step_time,
        days=plan.seconds / DAY,
        dollars=plan.dollars,
        mfu=of.mfu,
        hfu=of.hfu,
        tokens_per_s_per_gpu=of.tokens_per_second_per_gpu,
        memory_gib=memory_parts(of.memory[fuller]),
        evidence=band.evidence,
        probability=probabilities(instance, plan, ahead, band),
        out_of_memory=solution.MemoryRisk(
            risk=risk.grade,
            probability=risk.probability,
            balanced=risk.balanced,
            headroom=risk.headroom,
        ),
        breakdown_s={name: seconds for name, seconds in of.breakdown.items() if seconds},
        **ahead.figures(band),
    )
    decided = decisions(instance, plan, of)
    slack = _slack(instance, plan, figures, decided) | spare(instance, decided, figures)
    return solution.Plan(decisions=decided, estimate=figures, slack=slack, reasons=reasons)


def decisions(instance: Instance, plan: MixedPlan, of: MixedEstimate) -> solution.Decisions:
    """Every decision, with the parts of the pools and the stages rank by rank."""
    names = ("tp", "cp", "pp", "vpp", "ep", "etp", "micro_batch", "zero", "global_batch")
    shared: dict[str, Any] = {name: getattr(plan, name) for name in names}
    parts = tuple(_part(instance, plan, of, index) for index in (0, 1))
    modules = sorted(modules_of(instance.framework, plan.variant))
    sizes = shared | {"dp": plan.replicas}
    again = any(plan.stages.recomputed)
    return solution.Decisions(
        gpu=" + ".join(part.gpu for part in parts),
        num_gpus=sum(part.num_gpus for part in parts),
        nodes=sum(part.nodes for part in parts),
        dp=plan.replicas,
        num_microbatches=plan.num_microbatches[0],
        recompute="selective" if modules else "full" if again else "none",
        recompute_modules=tuple(modules),
        precision=instance.pools[plan.pools[0]].precision,
        sequence_parallel=plan.tp > 1 and instance.stack.tensor_parallel.sequence_parallel,
        stages=_stages(instance, plan, of),
        mixed=plan.form,
        parts=parts,
        **overlaps_of(instance.architecture, instance.stack, instance.framework, sizes),
        **shared,
    )


def _part(instance: Instance, plan: MixedPlan, of: MixedEstimate, index: int) -> solution.PoolPart:
    pool, ranks = instance.pools[plan.pools[index]], plan.ranks[index]
    return solution.PoolPart(
        gpu=pool.gpu.name,
        num_gpus=plan.num_gpus[index],
        nodes=plan.num_gpus[index] // pool.fabric.gpus_per_node,
        dp=plan.dp[index],
        num_microbatches=plan.num_microbatches[index],
        first_rank=ranks[0],
        last_rank=ranks[-1],
        memory_gib=float(of.memory[index].total) / GIB,
        memory_limit_gib=memory_limit(instance, plan.pools[index]) / GIB,
    )


def _stages(instance: Instance, plan: MixedPlan, of: MixedEstimate) -> tuple[solution.Stage, ...]:
    """What each pipeline rank holds; of replicas, memory of the fuller type and time of the slower one."""
    join = np.concatenate if plan.form == "stages" else np.maximum.reduce
    memory, time = join(of.rank_memory), join(of.rank_seconds)
    return rank_stages(instance.architecture, plan.pp, plan.vpp, plan.stages, memory, time)


def _slack(
    instance: Instance, plan: MixedPlan, figures: solution.Estimate, decided: solution.Decisions
) -> dict[str, solution.Slack]:
    """How far the plan stays from each limit; memory and nodes by GPU type."""
    pools = [instance.pools[index] for index in plan.pools]
    of_pools: Used = {}
    for part, pool, ready in zip(decided.parts, pools, _spares(pools, plan), strict=True):
        name, nodes = part.gpu, float(pool.nodes or pool.max_nodes)
        if f"nodes of {name}" in of_pools:
            name = f"the other {name}"
        of_pools[f"memory of {name}"] = (part.memory_limit_gib, part.memory_gib, "GiB")
        of_pools[f"nodes of {name}"] = (nodes, float(part.nodes + ready), "nodes")
    return slack_of_run(instance, pools[0].site, decided.nodes, figures, of_pools)


def _spares(pools: list[Pool], plan: MixedPlan) -> list[int]:
    lost = PairLosses.of((pools[0], pools[1]), np.array(plan.num_gpus)[:, None], plan.replicas)
    return [int(n) for n in lost.spare_nodes[:, 0]]
