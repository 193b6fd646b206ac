"""Facts about sites rather than chips: how often runs stop, storage, power, what owning costs.

One YAML file each under `hardware/data/site/`, with sources. SI throughout; hours, years and USD where
a name says so.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Literal, TypeVar

from pydantic import NonNegativeFloat, PositiveFloat, PositiveInt

from hardware import yaml_text
from hardware.accelerator import Facts

_DATA = Path(__file__).parent / "data" / "site"

Preset = Literal["default", "optimistic", "pessimistic", "bring_up"]
Cause = Literal["gpu", "node", "switch", "software"]
Tier = Literal["good", "better", "best"]


class CauseFacts(Facts):
    """Stops of one cause in a published run."""

    stops: PositiveFloat
    gpus: PositiveInt
    """GPUs that one such part serves."""
    takes_node: bool
    """The node is out until it is repaired."""


class ReliabilityFacts(Facts):
    """How often runs of one kind of site stop, and for how long."""

    gpu_hours: PositiveFloat
    """GPU-hours between unexpected stops of any cause."""
    planned_gpu_hours: PositiveFloat
    """GPU-hours between planned stops."""
    detection: NonNegativeFloat
    """Seconds until a stop is noticed."""
    relaunch: NonNegativeFloat
    """Seconds to schedule and start the job again, without loading."""
    warm_up: NonNegativeFloat
    """Seconds that the first steps after a start lose."""
    repair_hours: PositiveFloat
    """Hours until a failed node is back."""
    source: str


class CheckpointFacts(Facts):
    """What is saved, and how it leaves the GPU."""

    weight_bytes: PositiveFloat
    optimizer_bytes: PositiveFloat
    overhead: NonNegativeFloat
    """Seconds a checkpoint costs before bytes move."""
    copy_rate: PositiveFloat
    """bytes/s from a GPU to its host."""
    source: str


class SpotFacts(Facts):
    """How often spot nodes are taken back."""

    lost_a_month: PositiveFloat
    source: str


class SiteReliability(Facts):
    """`reliability.yaml`."""

    causes: dict[Cause, CauseFacts]
    source: str
    presets: dict[Preset, ReliabilityFacts]
    checkpoint: CheckpointFacts
    spot: SpotFacts
    swap_probability: PositiveFloat


class StorageServer(Facts):
    """One storage server."""

    title: str
    write: PositiveFloat
    """bytes/s its drives write."""
    read: PositiveFloat
    network: PositiveFloat
    """bytes/s of its ports, one direction."""
    capacity: PositiveFloat
    """Bytes on its drives."""
    watts: PositiveFloat
    price: PositiveFloat
    source: str


class StorageSystem(Facts):
    """A whole storage system as its clients see it."""

    title: str
    write: PositiveFloat
    read: PositiveFloat
    capacity: PositiveFloat
    source: str


class StorageTier(Facts):
    """bytes/s for each training node of a cluster together, and of one node by itself."""

    write: PositiveFloat
    read: PositiveFloat
    node_write: PositiveFloat
    node_read: PositiveFloat


class DataFacts(Facts):
    """Text, token ids and their loaders."""

    text_bytes_per_token: PositiveFloat
    overhead: PositiveFloat
    small_vocab: PositiveInt
    shards_per_reader: PositiveInt
    reads_per_step: PositiveFloat
    tokenizer_core: PositiveFloat
    source: str


class LogFacts(Facts):
    """What a run writes beside checkpoints."""

    gpu_day: PositiveFloat
    verbose_gpu_day: PositiveFloat
    series_per_gpu: PositiveFloat
    series_interval: PositiveFloat
    sample_bytes: PositiveFloat
    metric_bytes: PositiveFloat
    source: str


class SiteStorage(Facts):
    """`storage.yaml`."""

    servers: dict[str, StorageServer]
    efficiency: PositiveFloat
    systems: dict[str, StorageSystem]
    tiers: dict[Tier, StorageTier]
    usual: Tier
    source: str
    data: DataFacts
    logs: LogFacts


class NodePower(Facts):
    """What one kind of node draws."""

    system: str
    gpus: PositiveInt
    gpu_names: tuple[str, ...]
    rated: PositiveFloat
    measured: PositiveFloat | None = None
    source: str


class GpuPower(Facts):
    """Shares of TDP."""

    idle: NonNegativeFloat
    training: PositiveFloat
    host: NonNegativeFloat
    source: str


class Pue(Facts):
    """Power of a data centre over that of its computers."""

    typical: PositiveFloat
    hyperscale: PositiveFloat
    older: PositiveFloat
    source: str


class SitePower(Facts):
    """`power.yaml`."""

    nodes: tuple[NodePower, ...]
    gpu: GpuPower
    pue: Pue
    electricity: PositiveFloat
    """USD/kWh."""
    grids: dict[str, PositiveFloat]
    """Grams of CO2-equivalent a kWh, by country."""
    grids_source: str

    def node_of(self, gpu: str) -> NodePower | None:
        """The node that GPUs of this name usually sit in."""
        return next((node for node in self.nodes if gpu in node.gpu_names), None)


class NodePrice(Facts):
    """USD a node, and USD of fabric a node."""

    node: PositiveFloat
    network: NonNegativeFloat


class SitePurchase(Facts):
    """`purchase.yaml`."""

    nodes: dict[str, NodePrice]
    source: str
    years: PositiveFloat
    cooling: NonNegativeFloat
    staff_a_year: NonNegativeFloat
    gpus_per_engineer: PositiveFloat
    residual: NonNegativeFloat
    upkeep: NonNegativeFloat
    sources: str


T = TypeVar("T", bound=Facts)


def _read(name: str, model: type[T]) -> T:
    text = (_DATA / f"{name}.yaml").read_text(encoding="utf-8")
    return model.model_validate(yaml_text.load(text))


@cache
def site_reliability() -> SiteReliability:
    """Stops, restarts, checkpoints."""
    return _read("reliability", SiteReliability)


@cache
def site_storage() -> SiteStorage:
    """Storage servers, systems and what data and logs need."""
    return _read("storage", SiteStorage)


@cache
def site_power() -> SitePower:
    """Nodes, data centres, grids."""
    return _read("power", SitePower)


@cache
def site_purchase() -> SitePurchase:
    """What owning costs."""
    return _read("purchase", SitePurchase)
