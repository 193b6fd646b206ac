"""The problem file: what is to be trained, on what, within which limits.

`load_problem` reads one from YAML; after that it is frozen, and every number is SI (seconds, bytes,
dollars; prices in USD per GPU-hour).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, PrivateAttr, ValidationError, model_validator

from planner import overrides as settings
from planner.assumptions import assumptions_of
from planner.complaints import invalid_input
from planner.errors import InvalidInput, Refused, shown
from planner.fine_tune import FineTune
from planner.mixing import Mixing, refuse_mixing, usable
from planner.model import Model
from planner.narrowing import Search
from planner.objective import Limits, Objective
from planner.phases import Phases, ResolvedPhase, resolved_phases
from planner.pool import Pool
from planner.power import Power
from planner.pricing import Prices
from planner.quantities import Duration, Range, Strict
from planner.reliability import Reliability
from planner.requirements import in_words
from planner.site import Site
from planner.storage import Storage
from planner.surroundings import sites_of
from planner.switch_rules import refuse_for_model
from planner.training import Training
from planner.units import fraction
from planner.yaml_file import read_mapping


def _name(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, (str, int, float)) or not str(value).strip():
        raise Refused(f"found {shown(value)}", "a name, as text")
    return str(value)


def _pools(value: Any) -> Any:
    """One pool may be written without the list."""
    pools = [value] if isinstance(value, dict) else value
    if not isinstance(pools, (list, tuple)) or not pools:
        raise Refused(
            f"found {shown(value)}" if value else "found no pool", "a list of pools: [{gpu, nodes, price}]"
        )
    return tuple(pools)


def _one_or_several(schema: dict[str, Any]) -> None:
    """In the schema too, one pool may stand without the list."""
    pool = schema.pop("items")
    schema.pop("type")
    schema["anyOf"] = [{"type": "array", "items": pool, "minItems": 1}, pool]


def _mfu(value: Any) -> Any:
    return None if value is None else fraction(value)


class Problem(Strict):
    """A training job to be planned."""

    name: Annotated[str, BeforeValidator(_name)] = "unnamed"
    """What reports and files are called by; the file's name unless given."""
    model: Model
    """A model card (`llama-2-70b`), a path to a Hugging Face config.json beside this file, `{base: one of
    them, ...changes}`, or an architecture written out."""
    training: Training
    """Tokens, sequence length, batch, precision."""
    hardware: Annotated[tuple[Pool, ...], BeforeValidator(_pools), Field(json_schema_extra=_one_or_several)]
    """Pools of GPUs; a plan uses one of them, or two where `mixing` lets it."""
    limits: Limits = Limits()
    """Deadline, budget, memory headroom."""
    objective: Objective = Objective.model_validate("cost")
    """cost, time, [cost, time], or {cost: 1, time: 20k USD/day}."""
    reliability: Reliability | None = None
    """How often runs stop, how they recover and save; preset `default` unless given (or `assume_mfu` is)."""
    storage: Storage | None = None
    """What the storage can do, and what is kept on it; unless given, what such clusters usually have."""
    pricing: Prices = Field(default_factory=dict)
    """How GPUs are paid for: on_demand, reserved, spot or owned, for all pools or by GPU."""
    power: Power | None = None
    """What nodes draw, the data centre's PUE, and the grid."""
    fine_tune: FineTune | None = None
    """A fine-tune of the model: `planner explain --part paying` says how many cost as much as the run."""
    phases: Phases = ()
    """Parts of the run, in order, each with its own batch, sequence length and plan, on the same nodes."""
    mixing: Mixing | None = None
    """Plans on two pools at once, as `{network: 25 GB/s}`: pipeline stages or replicas on each."""
    assume_mfu: Annotated[float | None, BeforeValidator(_mfu)] = Field(default=None)
    """Skip the cost model for time: t = 6*P*D / (GPUs * peak * MFU), as in planning on paper."""
    search: Search = Search()
    """Allowed values of decisions; what is left out is free."""
    scenarios: dict[str, dict[str, Any]] = Field(default_factory=dict)
    """Named overrides by dotted path: {h20_cheap: {hardware.1.price: 0.50 USD/gpu-hour}}."""
    time_limit: Duration | None = None
    """How long the search may take."""

    _sites: tuple[Site, ...] = PrivateAttr()

    @model_validator(mode="after")
    def _agrees(self) -> Problem:
        if self.assume_mfu == 0:
            raise Refused("found 0", "a model FLOPs utilisation above 0, such as 0.4", "", ("assume_mfu",))
        if self.assume_mfu is not None and self.limits.confidence is not None:
            found = "assume_mfu is given as well: an agreed MFU is no prediction that could be off"
            raise Refused(found, "one of them", "", ("limits", "confidence"))
        accelerators = [pool.accelerator for pool in self.hardware]
        if not any(usable(precision, accelerators) for precision in self.training.precision):
            names = ", ".join(gpu.name for gpu in accelerators)
            found = f"{' or '.join(self.training.precision)} is not among the precisions of {names}"
            raise Refused(found, "a precision that one of the pools has", "", ("training", "precision"))
        try:
            refuse_for_model(self.search, self.model.architecture)
        except Refused as refused:
            raise refused.below("search") from None
        try:
            in_words(self.limits.require, "gpu", [gpu.name for gpu in accelerators])
            in_words(self.limits.require, "precision", self.training.precision)
        except Refused as refused:
            raise refused.below("limits", "require") from None
        return self

    @model_validator(mode="after")
    def _surroundings(self) -> Problem:
        if self.phases and self.limits.confidence is not None:
            found = "a confidence is asked for, and the run has phases"
            raise Refused(found, "one of them: phases are planned as predicted", "", ("limits", "confidence"))
        try:
            self.resolved_phases()
        except Refused as refused:
            raise refused.below("phases") from None
        self._sites = sites_of(self)
        if self.mixing is not None:
            refuse_mixing(self)
        return self

    def resolved_phases(self) -> tuple[ResolvedPhase, ...]:
        """The phases with nothing left open; the run itself where there are none."""
        of = self.training
        batch = {"min_batch": of.global_batch.min, "max_batch": of.global_batch.max}
        return resolved_phases(self.phases, tokens=of.tokens, seq_len=of.seq_len, **batch)

    def of_phase(self, phase: ResolvedPhase) -> Problem:
        """One phase as a problem of its own: without a window that is paid for by the whole run."""
        batch = Range[int](min=phase.min_batch, max=phase.max_batch)
        of = {"tokens": round(phase.tokens), "seq_len": phase.seq_len, "global_batch": batch}
        training = self.training.model_copy(update=of)
        alone = self.model_copy(update={"training": training, "phases": ()})
        alone._sites = tuple(
            replace(site, tariff=replace(site.tariff, committed_days=0.0)) for site in self._sites
        )
        return alone

    @property
    def sites(self) -> tuple[Site, ...]:
        """What surrounds the GPUs of each pool."""
        return self._sites

    def as_written(self) -> dict[str, Any]:
        """Plain data in the spelling of the problem file; reading it gives the same problem."""
        return self.model_dump(mode="json", exclude_unset=True)

    @property
    def problem_hash(self) -> str:
        """SHA-256 over every field and every fact it resolves to, however the file spelled them."""
        apart = {"name", "scenarios", "time_limit", "fine_tune", *(() if self.mixing else ("mixing",))}
        resolved = {
            "problem": self.model_dump(mode="json", exclude=apart),
            "architecture": self.model.architecture.model_dump(mode="json"),
            "accelerators": [pool.accelerator.model_dump(mode="json") for pool in self.hardware],
        }
        return hashlib.sha256(json.dumps(resolved, sort_keys=True).encode()).hexdigest()

    @property
    def files(self) -> dict[str, str]:
        """SHA-256 of the files that the problem file names, by their path in it."""
        return {self.model.file.path: self.model.file.sha256} if self.model.file else {}

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What the file left open or made remarkable, a sentence each."""
        return tuple(assumptions_of(self))


def parse_problem(
    data: dict[str, Any],
    overrides: Sequence[tuple[str, Any]] = (),
    *,
    file: str = "problem",
    folder: Path = Path(),
) -> Problem:
    """A problem from plain data; each scenario is read too, so that its typos show now.

    Raises `InvalidInput`.
    """
    changed = settings.apply(data, overrides)
    read = partial(_validated, folder=folder)
    problem = read(changed, file=file, overrides=[key for key, _ in overrides])
    for name, changes in problem.scenarios.items():
        source = f"{file}: scenarios.{name}"
        scenario = settings.apply(changed | {"scenarios": {}}, changes.items(), source=source)
        read(scenario, file=source, overrides=())
    return problem


def _validated(data: dict[str, Any], *, file: str, overrides: Sequence[str], folder: Path) -> Problem:
    try:
        return Problem.model_validate(data, context={"folder": folder})
    except ValidationError as error:
        raise invalid_input(error, file, overrides) from None


def load_problem(path: str | Path, overrides: Sequence[tuple[str, Any]] = ()) -> Problem:
    """The problem in a YAML file, with overrides such as `("hardware.1.price", "0.5 USD/gpu-hour")`.

    Raises `InvalidInput`.
    """
    path = Path(path)
    data = {"name": path.stem} | read_mapping(path)
    return parse_problem(data, overrides, file=str(path), folder=path.parent)


__all__ = ["InvalidInput", "Problem", "load_problem", "parse_problem"]
