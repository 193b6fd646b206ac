"""From the search's plans to the figures that people and programs read."""

from __future__ import annotations

from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from costmodel.architecture import Architecture
from costmodel.estimate import Estimate as Prediction
from costmodel.estimate import estimate
from costmodel.memory.breakdown import PeakMemory
from costmodel.pipeline import stage_split
from costmodel.rates import stage_rates
from costmodel.run import Run
from costmodel.stage import StageRates, stage_memory, stage_time
from costmodel.step import assumed_rates
from costmodel.units import DAY, GIB, TB
from planner import __version__, solution
from planner.chance import margin_of
from planner.economics import Economy, run_dollars, run_seconds
from planner.instance import Instance
from planner.narrowing import ZERO_SCOPES
from planner.outlook import Outlook
from planner.requirements import QUANTITIES
from planner.search.rows import Plan
from planner.site import Site
from planner.space.recompute import HIDDEN, modules_of
from planner.space.runs import run_of_rows
from planner.stages.problem import StagePlan
from planner.sureness import band_of_plan, memory_risk, probabilities
from planner.switches import overlaps_of

Array = NDArray[Any]
ROUNDING = 1e-12
"""Seconds of a step that are none."""
Used = dict[str, tuple[float | None, float, str]]
"""By the name of a limit: the limit, if there is one, what a plan uses of it, and the unit of both."""


def run_of_plan(instance: Instance, plan: Plan) -> Run:
    """The cost model's noun for one plan."""
    return run_of_rows(instance, plan.of("pool"), plan.of("variant"), plan.row).take(0)


def predicted(instance: Instance, plan: Plan) -> Prediction:
    """The cost model's estimate of a plan, with its parts."""
    return estimate(
        run_of_plan(instance, plan),
        plan.stages.layers,
        plan.stages.recomputed,
        assume_mfu=instance.assume_mfu,
        nominal_parameters=instance.nominal_parameters,
    )


def rates_of_plan(instance: Instance, plan: Plan) -> StageRates:
    """Stage rates of one plan."""
    run = run_of_plan(instance, plan)
    rates = stage_rates(run)
    if instance.assume_mfu is None:
        return rates
    return assumed_rates(rates, run, instance.assume_mfu, instance.nominal_parameters)


def days_and_dollars(instance: Instance, plan: Plan) -> tuple[float, float]:
    """Days and dollars of the whole run."""
    seconds = run_seconds(instance, plan.row, np.array([plan.step]))
    return float(seconds[0]) / DAY, float(run_dollars(instance, plan.row, seconds)[0])


def surely(instance: Instance, plan: Plan) -> tuple[float, float]:
    """Days and dollars that deadline and budget have to allow for: as predicted, or at the confidence."""
    economy = Economy.of(instance, plan.row, surely=False)
    seconds = economy.seconds(np.array([plan.step])) * margin_of(instance, plan.row, plan.step)
    return float(seconds[0]) / DAY, float(economy.total("cost", seconds)[0])


def reported(instance: Instance, plan: Plan, reasons: tuple[solution.Reason, ...] = ()) -> solution.Plan:
    """A plan as the solution file has it."""
    of = predicted(instance, plan)
    days, cost = days_and_dollars(instance, plan)
    band, risk = band_of_plan(instance, plan), memory_risk(instance, plan, of)
    ahead, decided = Outlook.of(instance, plan), decisions(instance, plan)
    figures = solution.Estimate(
        step_time_s=of.step_time,
        days=days,
        dollars=cost,
        mfu=of.mfu,
        hfu=of.hfu,
        tokens_per_s_per_gpu=of.tokens_per_second_per_gpu,
        memory_gib=memory_parts(of.memory),
        evidence=None if band is None else band.evidence,
        probability=probabilities(instance, plan),
        out_of_memory=solution.MemoryRisk(
            risk=risk.grade,
            probability=risk.probability,
            balanced=risk.balanced,
            headroom=risk.headroom,
        ),
        breakdown_s={name: seconds for name, seconds in of.breakdown.items() if seconds > ROUNDING},
        **ahead.figures(band),
    )
    return solution.Plan(
        decisions=decided,
        estimate=figures,
        slack=slack(instance, ahead, figures) | spare(instance, decided, figures),
        reasons=reasons,
    )


def memory_parts(of: PeakMemory) -> solution.MemoryParts:
    """GiB of the fullest rank by category."""
    names = solution.MemoryParts.model_fields
    return solution.MemoryParts(**{name: float(getattr(of, name)) / GIB for name in names})


def decisions(instance: Instance, plan: Plan) -> solution.Decisions:
    """Every decision, with the stages rank by rank."""
    row = plan.row
    value: dict[str, Any] = {
        name: int(getattr(row, name)[0]) for name in ("tp", "cp", "pp", "vpp", "dp", "ep", "etp", "zero")
    }
    pool, modules = instance.pools[int(row.pool[0])], modules_of(instance.framework, int(row.variant[0]))
    m, micro_batch, gpus = int(row.m_high[0]), int(row.micro_batch[0]), int(row.num_gpus[0])
    return solution.Decisions(
        gpu=pool.gpu.name,
        num_gpus=gpus,
        nodes=gpus // pool.fabric.gpus_per_node,
        micro_batch=micro_batch,
        num_microbatches=m,
        global_batch=m * micro_batch * value["dp"],
        recompute="selective" if modules else "full" if any(plan.stages.recomputed) else "none",
        recompute_modules=tuple(sorted(modules)),
        ep_overlap=int(row.family[0]) >= HIDDEN,
        precision=pool.precision,
        zero_scope=ZERO_SCOPES[int(row.zero_scope[0])],
        sequence_parallel=value["tp"] > 1 and instance.stack.tensor_parallel.sequence_parallel,
        stages=stages(instance, plan),
        **overlaps_of(instance.architecture, instance.stack, instance.framework, value),
        **value,
    )


def stages(instance: Instance, plan: Plan) -> tuple[solution.Stage, ...]:
    """What each pipeline rank holds and needs."""
    pp, vpp = int(plan.row.pp[0]), int(plan.row.vpp[0])
    m, of = int(plan.row.m_high[0]), plan.stages
    split = stage_split(instance.architecture, pp, vpp, m, of.layers, of.recomputed)
    rates = rates_of_plan(instance, plan)
    memory, time = stage_memory(rates, split), stage_time(rates, split)
    return rank_stages(instance.architecture, pp, vpp, of, memory, time)


def rank_stages(
    architecture: Architecture, pp: int, vpp: int, of: StagePlan, memory: Array, time: Array
) -> tuple[solution.Stage, ...]:
    """An assignment rank by rank, with bytes and seconds a micro-batch of each rank."""
    kinds, layers, again = architecture.kinds, of.layers, of.recomputed
    held = stage_split(architecture, pp, vpp, 1, layers).layers
    return tuple(
        solution.Stage(
            layers=sum(layers[rank::pp]),
            recomputed_layers=sum(again[rank::pp]),
            kinds={kind: int(n) for kind, n in zip(kinds, held[rank], strict=True)} if len(kinds) > 1 else {},
            chunks=layers[rank::pp] if vpp > 1 else (),
            recomputed_chunks=again[rank::pp] if vpp > 1 else (),
            memory_gib=float(memory[rank]) / GIB,
            micro_batch_time_s=float(time[rank]),
        )
        for rank in range(pp)
    )


def slack(instance: Instance, ahead: Outlook, figures: solution.Estimate) -> dict[str, solution.Slack]:
    """How far the plan stays from each limit."""
    limits, pool = instance.limits, ahead.pool
    nodes = ahead.num_gpus // pool.fabric.gpus_per_node
    room = min(pool.memory_limit(limits.memory_headroom), limits.most_memory or np.inf) / GIB
    of_pool: Used = {
        "memory": (room, figures.memory_gib.total, "GiB"),
        "nodes": (float(pool.nodes or pool.max_nodes), float(nodes + ahead.spare_nodes), "nodes"),
    }
    return slack_of_run(instance, pool.site, nodes, figures, of_pool)


def slack_of_run(
    instance: Instance, site: Site | None, nodes: int, figures: solution.Estimate, of_pools: Used
) -> dict[str, solution.Slack]:
    """How far a run on so many nodes stays from each limit; of what is pool by pool, from `of_pools`."""
    limits = instance.limits
    used: Used = {
        "deadline": (limits.deadline and limits.deadline / DAY, figures.days, "days"),
        "budget": (limits.budget, figures.dollars, "USD"),
        **of_pools,
    }
    if figures.energy is not None:
        used["energy"] = (limits.energy and limits.energy / 1e3, figures.energy.mwh, "MWh")
        used["carbon"] = (limits.carbon, figures.energy.tonnes_co2, "t CO2")
    if figures.storage is not None and site is not None:
        room = float(np.asarray(site.storage.resolved(nodes).capacity)) / TB
        used["storage"] = (room if np.isfinite(room) else None, figures.storage.total_tb, "TB")
    return {
        name: solution.Slack(limit=limit, used=value, left=limit - value, unit=unit)
        for name, (limit, value, unit) in used.items()
        if limit is not None
    }


def spare(
    instance: Instance, decided: solution.Decisions, figures: solution.Estimate
) -> dict[str, solution.Slack]:
    """How far the plan stays from each requirement that is a number from above, from below, or exact."""
    found = {}
    for of in (*instance.narrowing.required, *instance.limits.steps):
        if of.operator not in ("in", "!=") and not isinstance(of.value, str):
            used, limit = (
                float(getattr(figures if of.decision is None else decided, of.decision or of.name)),
                of.value,
            )
            left = used - limit if of.operator in (">=", ">") else limit - used
            unit = "" if of.decision is not None else QUANTITIES[of.name].unit
            found[of.text] = solution.Slack(limit=limit, used=used, left=left, unit=unit)
    return found


@cache
def catalogue_hash() -> str:
    """A hash of every fact and profile that predictions rest on."""
    import costmodel
    import hardware

    digest = sha256()
    for package in (hardware, costmodel):
        for path in sorted(Path(package.__path__[0]).rglob("*.yaml")):
            digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]


def provenance(problem_hash: str, files: dict[str, str] | None = None) -> solution.Provenance:
    """What an answer depends on: version, problem, files it names, facts, libraries."""
    import ortools  # its package alone; CP-SAT is loaded where it is used

    return solution.Provenance(
        planner=__version__,
        problem_hash=problem_hash,
        catalogue=catalogue_hash(),
        files=files or {},
        versions={"ortools": ortools.__version__, "numpy": np.__version__},
    )
