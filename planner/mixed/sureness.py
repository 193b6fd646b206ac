"""How sure it is that a plan on two pools meets deadline and budget, and that it fits."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from costmodel.memory.overhead import usable_bytes
from costmodel.mixed import Mixed, Part
from costmodel.mixed_estimate import MixedEstimate, estimate_mixed
from planner.confidence import Band, band_of
from planner.instance import Instance
from planner.memory_risk import MemoryRisk, share_above, uneven_run
from planner.mixed.economy import economy_of
from planner.mixed.outlook import PairOutlook
from planner.mixed.plan import MixedPlan, mixed_of
from planner.sureness import holding


def band_of_pair(instance: Instance, plan: MixedPlan) -> Band:
    """The wider band of the two parts' runs; no mixed run was measured, so the evidence is weak."""
    bands = [band_of(part.run) for part in mixed_of(instance, plan).parts]
    return Band(min(band.low for band in bands), max(band.high for band in bands), "weak")


def probabilities(instance: Instance, plan: MixedPlan, ahead: PairOutlook, band: Band) -> dict[str, float]:
    """That deadline and budget hold, with the failures of both pools."""
    pools = instance.pools[plan.pools[0]], instance.pools[plan.pools[1]]
    gpus, batch = np.array(plan.num_gpus)[:, None], np.array([plan.global_batch * instance.seq_len])
    economy = economy_of(instance, pools, gpus, batch, plan.replicas)
    return holding(instance.limits, economy, plan.step, band, ahead.spread())


def memory_risk(instance: Instance, plan: MixedPlan, of: MixedEstimate) -> MemoryRisk:
    """That the plan runs out of memory: the risk of the pool that is likelier to.

    Not of both added up: what makes predictions of peaks wrong makes both wrong alike.
    """
    mixed, layers = mixed_of(instance, plan), plan.stages.layers
    rooms = [usable_bytes(part.run.gpu) for part in mixed.parts]
    balanced = [float(memory.total) for memory in of.memory]
    uneven = uneven_mixed(mixed, layers)
    peaks = balanced
    if uneven is not None:
        other = estimate_mixed(uneven, layers, plan.stages.recomputed)
        peaks = [max(float(m.total), least) for m, least in zip(other.memory, balanced, strict=True)]
    risk, usual = (
        max(share_above(room / peak) for room, peak in zip(rooms, each, strict=True))
        for each in (peaks, balanced)
    )
    return MemoryRisk.of(risk, usual, max(peak / even for peak, even in zip(peaks, balanced, strict=True)))


def uneven_mixed(of: Mixed, layers: tuple[int, ...]) -> Mixed | None:
    """The plan with experts as uneven as natural routing leaves them; None where nothing is uneven."""
    runs = [uneven_run(part.run, [layers[rank] for rank in part.ranks]) for part in of.parts]
    if runs == [None, None]:
        return None
    parts = [Part(run or part.run, part.ranks) for run, part in zip(runs, of.parts, strict=True)]
    return replace(of, parts=(parts[0], parts[1]))
