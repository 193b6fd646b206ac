"""How often a plan stops: rates of its GPUs, nodes, switches and software add up."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from costmodel.run import Column
from costmodel.units import HOUR
from hardware.site import Preset, site_reliability

DAYS_A_MONTH = 30


@dataclass(frozen=True, slots=True)
class Failures:
    """Stops a second of one part of each kind. Failures are independent and memoryless."""

    gpu: float = 0.0
    software: float = 0.0
    """Of the software, per GPU that runs it."""
    node: float = 0.0
    """A node without its GPUs."""
    switch: float = 0.0
    spot: float = 0.0
    """A node that is taken back by whoever rents it out."""
    planned: float = 0.0
    """Planned stops, per GPU: nothing is lost but the restart."""
    gpus_per_switch: int = 16


def failures_of(
    preset: Preset = "default", gpu_hours: float | None = None, gpus_per_node: int | None = None
) -> Failures:
    """Rates of a preset, split by cause as in Llama 3; `gpu_hours` replaces the preset's hours between stops.

    A part of cause c that serves g GPUs stops share_c * g / MTBF times a second, so that N GPUs stop
    every MTBF/N whatever the size of their nodes. Source: `hardware/data/site/reliability.yaml`.
    """
    site = site_reliability()
    kind = site.presets[preset]
    rate = 1 / ((gpu_hours or kind.gpu_hours) * HOUR)
    total = sum(cause.stops for cause in site.causes.values())
    serves = {name: cause.gpus for name, cause in site.causes.items()}
    serves["node"] = gpus_per_node or serves["node"]
    part = {name: rate * cause.stops / total * serves[name] for name, cause in site.causes.items()}
    planned = 1 / (kind.planned_gpu_hours * HOUR)
    return Failures(**part, planned=planned, gpus_per_switch=serves["switch"])


def stops_a_month(lost_a_month: float) -> float:
    """Times a month that a node is taken back, if a share of nodes is within one: -ln(1 - share)."""
    return float(-np.log1p(-lost_a_month))


def lost_share(stops_a_month: float) -> float:
    """Share of nodes taken back within a month, if each is so often: 1 - e^-rate."""
    return float(-np.expm1(-stops_a_month))


def taken_back(failures: Failures, stops_a_month: float) -> Failures:
    """The same on nodes that are each taken back so many times a month."""
    return replace(failures, spot=stops_a_month / (DAYS_A_MONTH * 24 * HOUR))


def with_spot(failures: Failures, lost_a_month: float) -> Failures:
    """The same on spot nodes, of which a share is taken back within a month."""
    return taken_back(failures, stops_a_month(lost_a_month))


def stop_rate(failures: Failures, num_gpus: Column, gpus_per_node: Column) -> Column:
    """Unplanned stops a second of the whole run: sum over its parts, as any one stops all."""
    nodes, switches = num_gpus / gpus_per_node, num_gpus / failures.gpus_per_switch
    return (
        num_gpus * (failures.gpu + failures.software)
        + nodes * (failures.node + failures.spot)
        + switches * failures.switch
    )


def swap_rate(failures: Failures, num_gpus: Column, gpus_per_node: Column) -> Column:
    """Of these, stops that take a node out until it is repaired, or another is rented."""
    nodes = num_gpus / gpus_per_node
    causes = site_reliability().causes
    lost = {name: cause.takes_node for name, cause in causes.items()}
    return (
        num_gpus * (failures.gpu * lost["gpu"] + failures.software * lost["software"])
        + nodes * (failures.node * lost["node"] + failures.spot)
        + num_gpus / failures.gpus_per_switch * failures.switch * lost["switch"]
    )


def cluster_mtbf(mtbf: Column, num_gpus: Column) -> Column:
    """Time between stops of N GPUs that each stop after M on average: M/N, in the unit of M."""
    return mtbf / num_gpus


def gpu_mtbf(num_gpus: Column, duration: Column, stops: Column) -> Column:
    """Time between stops of one GPU that a run showed: N*T/stops."""
    return num_gpus * duration / stops
