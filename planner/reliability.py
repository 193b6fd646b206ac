"""The section `reliability:`: how often the site fails, how it recovers, how the run saves."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, WithJsonSchema, model_validator

from costmodel.goodput import goodput
from costmodel.goodput.failures import Failures, failures_of, with_spot
from costmodel.units import HOUR
from hardware.site import Preset, site_reliability
from planner import units
from planner.errors import Refused, nearest, shown
from planner.narrowing import one_of
from planner.quantities import Bandwidth, Count, Duration, Fraction, Number, Strict
from planner.site_units import Hours, Pause

PRESETS = ("default", "optimistic", "pessimistic", "bring_up")
RENTED = "provider"


def _spares(value: Any) -> Any:
    accepted = "provider (whoever rents nodes out replaces them), auto, or a number of nodes"
    if value in (RENTED, "auto"):
        return value
    if isinstance(value, str) and not value.strip().isdigit():
        raise Refused(f"found {shown(value)}", accepted, nearest(value, (RENTED, "auto")))
    return units.count(value, accepted, least=0)


SPARES = {"anyOf": [{"enum": [RENTED, "auto"]}, {"type": "integer", "minimum": 0}], "examples": ["auto", 2]}
Spares = Annotated[int | str, BeforeValidator(_spares), WithJsonSchema(SPARES)]


class Parts(Strict):
    """Time between failures of one part of each kind; a kind that is left out does not fail."""

    gpu: Hours | None = None
    """Of one GPU, its memory included."""
    node: Hours | None = None
    """Of one node without its GPUs."""
    switch: Hours | None = None
    """Of one switch."""
    software: Hours | None = None
    """Of the software, for each GPU that runs it."""
    gpus_per_switch: Count | None = None
    """GPUs for each switch of the network, all tiers counted."""

    @model_validator(mode="after")
    def _something_fails(self) -> Parts:
        if all(getattr(self, name) is None for name in ("gpu", "node", "switch", "software")):
            raise Refused("no part fails", "a time between failures of gpu, node, switch or software")
        return self


class Checkpoints(Strict):
    """How the run saves."""

    mode: Annotated[Literal["sync", "async"], BeforeValidator(one_of(("sync", "async")))] = "async"
    """`async` copies to host memory and writes beside training, `sync` waits for the write."""
    written_by: Annotated[
        Literal["all", "replica", "one"], BeforeValidator(one_of(("all", "replica", "one")))
    ] = "all"
    """Ranks that write: all in equal parts, those of one data-parallel replica, or one."""
    interval: Duration | None = None
    """Training between checkpoints; the best unless given."""
    bytes_per_parameter: Number | None = None
    """14 unless given: BF16 weights, FP32 master weights and two moments."""
    overhead: Pause | None = None
    """Time a checkpoint costs before bytes move: plan, metadata, barriers."""
    copy_rate: Bandwidth | None = None
    """From each GPU to its host."""
    weights_read_by_all: bool = False
    """After a restart each replica reads the weights from storage itself."""


class Evaluation(Strict):
    """Evaluations that interrupt training."""

    every: Count
    """Steps between them."""
    takes: Duration
    """How long one takes."""


class Reliability(Strict):
    """What stops a run, and what that costs. All keys have defaults from published runs."""

    preset: Annotated[Preset, BeforeValidator(one_of(PRESETS))] = "default"
    """Where defaults come from: `default` is Llama 3 (50,000 GPU-hours between stops)."""
    failures: Hours | None = None
    """GPU-hours between unexpected stops, of any cause: 50000 h. Split by cause as in the preset."""
    parts: Parts | None = None
    """The same by kind of part, where that is known. Either this or `failures`."""
    planned: Hours | None = None
    """GPU-hours between planned stops."""
    detection: Pause | None = None
    """Until a stop is noticed."""
    relaunch: Pause | None = None
    """Until the job has started again, without loading."""
    warm_up: Pause | None = None
    """What the first steps after a start lose."""
    repair: Duration | None = None
    """Until a failed node is back, where spares are one's own."""
    spares: Spares = RENTED
    """`provider`: failed nodes are replaced within the relaunch. `auto`: as many of one's own as
    `swap_probability` asks for; or a number of nodes. They are paid like the others."""
    swap_probability: Fraction | None = None
    """With `auto`: a failed node finds a spare with this probability."""
    checkpoint: Checkpoints = Checkpoints()
    """How the run saves."""
    evaluation: Evaluation | None = None
    """Evaluations that interrupt training."""

    @model_validator(mode="after")
    def _agrees(self) -> Reliability:
        if self.failures is not None and self.parts is not None:
            raise Refused("both failures and parts are given", "one of them", "", ("parts",))
        if self.spares == RENTED and (self.repair is not None or self.swap_probability is not None):
            given = "repair" if self.repair is not None else "swap_probability"
            found = f"{given} is given, but spares is provider"
            raise Refused(found, "spares: auto, or a number of nodes, beside it", "", (given,))
        if self.swap_probability == 1:
            raise Refused("found 1", "a probability below 1", "", ("swap_probability",))
        return self

    def checkpoint_bytes_per_parameter(self) -> float:
        """Bytes of a checkpoint for each parameter."""
        usual = site_reliability().checkpoint
        given = self.checkpoint.bytes_per_parameter
        return usual.weight_bytes + usual.optimizer_bytes if given is None else given

    def resolved(self, gpus_per_node: int, lost_a_month: float = 0.0) -> goodput.Reliability:
        """In SI for pools of such nodes; on spot a share of the nodes is taken back within a month."""
        failures = self._failures(gpus_per_node)
        failures = with_spot(failures, lost_a_month) if lost_a_month else failures
        given = {
            "detection": self.detection,
            "relaunch": self.relaunch,
            "warm_up": self.warm_up,
            "swap_probability": self.swap_probability,
            "interval": self.checkpoint.interval,
            "checkpoint_overhead": self.checkpoint.overhead,
            "copy_rate": self.checkpoint.copy_rate,
        }
        changes: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
        changes |= {"mode": self.checkpoint.mode, "writers": self.checkpoint.written_by}
        if self.checkpoint.weights_read_by_all:
            weights = site_reliability().checkpoint.weight_bytes
            changes["weights_share"] = weights / self.checkpoint_bytes_per_parameter()
        if self.evaluation is not None:
            changes |= {"evaluation": self.evaluation.takes, "evaluation_steps": self.evaluation.every}
        if self.spares != RENTED:
            kind = site_reliability().presets[self.preset]
            changes["repair"] = kind.repair_hours * HOUR if self.repair is None else self.repair
            changes["spares"] = None if self.spares == "auto" else self.spares
        return goodput.usual_reliability(self.preset, gpus_per_node, **changes | {"failures": failures})

    def _failures(self, gpus_per_node: int) -> Failures:
        hours = None if self.failures is None else self.failures / HOUR
        usual = failures_of(self.preset, hours, gpus_per_node)
        planned = usual.planned if self.planned is None else 1 / self.planned
        if self.parts is None:
            return Failures(
                usual.gpu, usual.software, usual.node, usual.switch, 0.0, planned, usual.gpus_per_switch
            )
        names = ("gpu", "software", "node", "switch")
        rate = {name: 1 / mtbf for name in names if (mtbf := getattr(self.parts, name)) is not None}
        switches = self.parts.gpus_per_switch or usual.gpus_per_switch
        return Failures(**rate, planned=planned, gpus_per_switch=switches)
