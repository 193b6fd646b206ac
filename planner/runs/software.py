"""The software profile of a run, and what the run itself says differently."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict

from costmodel.architecture import Architecture
from costmodel.overlap import KINDS, without_overlap
from costmodel.schedules import OVERLAPPED, bubble_left
from costmodel.stack import Stack, load_stack
from hardware.accelerator import Accelerator
from planner.errors import Refused, nearest
from planner.runs.facts import RunFacts

RULES = Path(__file__).parent / "frameworks.yaml"
DEFAULT = "megatron-core"
VERSION = re.compile(r"v?(\d+)\.(\d+)")
PLACING = {"dualpipe": "both", "dualpipev": "v"}
"""Where schedules place stages, if not around and around."""
Overrides = dict[str, Any]


class Rule(BaseModel):
    """One line of `frameworks.yaml`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    framework: str
    profile: str
    before: str | None = None
    flash: bool | None = None
    network: str | None = None
    latent: bool | None = None
    generation: str | None = None

    def fits(self, facts: RunFacts, architecture: Architecture, gpu: Accelerator) -> bool:
        named = f"{facts.framework or ''}; {facts.software or ''}"
        if not re.search(self.framework, named, re.IGNORECASE):
            return False
        if self.before is not None and not _older(facts, self.before):
            return False
        if self.flash is not None and self.flash != (facts.flash_attention is not False):
            return False
        if self.network is not None and not re.search(self.network, facts.interconnect or "", re.IGNORECASE):
            return False
        if self.latent is not None and self.latent != (architecture.mla is not None):
            return False
        return self.generation in (None, gpu.generation)


@cache
def rules() -> tuple[Rule, ...]:
    """The rules of `frameworks.yaml`, in order."""
    return tuple(Rule.model_validate(each) for each in yaml.safe_load(RULES.read_text(encoding="utf-8")))


def version(text: str) -> tuple[int, int] | None:
    """The first `major.minor` in a text."""
    found = VERSION.search(text)
    return (int(found.group(1)), int(found.group(2))) if found else None


def _older(facts: RunFacts, than: str) -> bool:
    limit, known = version(than), version(facts.software or "") or version(facts.framework or "")
    return known is not None and limit is not None and known < limit


def profile_of(facts: RunFacts, architecture: Architecture, gpu: Accelerator) -> tuple[str, list[str]]:
    """Name of the profile that the run's framework means, and what was assumed."""
    for rule in rules():
        if rule.fits(facts, architecture, gpu):
            return rule.profile, []
    known = f"{facts.framework!r} is not known" if facts.framework else "not given"
    return DEFAULT, [f"framework: {known}; the profile {DEFAULT}"]


def stack_of(facts: RunFacts, architecture: Architecture, gpu: Accelerator) -> tuple[Stack, list[str]]:
    """The profile of the run's framework with the run's own settings, and what was assumed."""
    profile, warnings = profile_of(facts, architecture, gpu)
    own, more = own_settings(facts, architecture, load_stack(profile), gpu)
    own |= known_fields(load_stack(profile), facts.profile_settings or {})
    off = tuple(kind for kind in KINDS if getattr(facts, f"{kind}_overlap") is False)
    return _changed(profile, tuple(sorted(own.items())), off), warnings + more


def own_settings(
    facts: RunFacts, architecture: Architecture, stack: Stack, gpu: Accelerator
) -> tuple[Overrides, list[str]]:
    """Fields of the profile that the run states, by dotted path, and what was assumed."""
    own: Overrides = {}
    warnings: list[str] = []
    if facts.tp > 1:
        if facts.sequence_parallel is None:
            state = "on" if stack.tensor_parallel.sequence_parallel else "off"
            warnings.append(f"sequence_parallel: not given; {state}, as {stack.name} has it")
        else:
            own["tensor_parallel.sequence_parallel"] = facts.sequence_parallel
    if facts.cuda_graphs is not None:
        own["host.graphs"] = facts.cuda_graphs
    if facts.flash_attention is False:
        own["attention.kernel"] = "unfused"
    if facts.schedule is not None and facts.pp > 1:
        own["pipeline.bubble"] = bubble_left(facts.schedule, facts.pp)
        own["pipeline.placing"] = PLACING.get(facts.schedule, "loop")
    if facts.fp8_params is not None:
        own["data_parallel.low_precision_parameter_bytes"] = 1.0 if facts.fp8_params else 2.0
    if facts.precision == "fp32-tf32":
        halved = stack.gemm.factor.of(gpu.generation) / 2
        own[f"gemm.factor.{gpu.generation}"] = halved
        warnings.append("precision: TF32 is priced as BF16 at half the rate")
    if architecture.moe:
        _experts(facts, architecture, stack, gpu, own, warnings)
    return own, warnings


def usual_routing(architecture: Architecture, stack: Stack) -> str:
    """How tokens are routed in runs that do not say so."""
    experts = architecture.moe.experts if architecture.moe else 0
    return "capacity" if experts <= stack.expert_parallel.capacity_experts else stack.expert_parallel.routing


def _experts(
    facts: RunFacts,
    architecture: Architecture,
    stack: Stack,
    gpu: Accelerator,
    own: Overrides,
    warnings: list[str],
) -> None:
    """Dispatcher, overlap and routing of a MoE run."""
    if facts.dispatcher is not None:
        own["expert_parallel.dispatcher"] = "alltoall" if facts.dispatcher == "alltoall" else "deepep"
    elif (facts.ep or 1) > 1:
        warnings.append(f"dispatcher: not given; {stack.expert_parallel.dispatcher}, as {stack.name} has it")
    if facts.ep_overlap is not None:
        own["expert_parallel.overlap"] = facts.ep_overlap
    elif facts.schedule in OVERLAPPED:
        own["expert_parallel.overlap"] = True
    elif facts.dispatcher is None and stack.expert_parallel.dispatcher == "deepep":
        own["expert_parallel.overlap"] = (facts.vpp or 1) > 1 and _leaves_domain(facts, gpu)
    routing = facts.routing or usual_routing(architecture, stack)
    if facts.routing is None:
        warnings.append(f"routing: not given; {routing}, as {stack.name} has it")
    own["expert_parallel.dropped_tokens"] = routing == "capacity"
    own["expert_parallel.imbalance"] = (
        stack.expert_parallel.natural_imbalance if routing == "natural" else 1.0
    )
    if facts.permute_fusion is False:
        own["elementwise.permute_passes"] = stack.elementwise.unfused_permute_passes


def _leaves_domain(facts: RunFacts, gpu: Accelerator) -> bool:
    domain = facts.nvlink_domain or max(gpu.link.domain, facts.gpus_per_node or 1)
    return (facts.ep or 1) * (facts.etp or 1) > domain


def known_fields(stack: Stack, settings: Overrides) -> Overrides:
    """The settings, if each names a field of the profile. Raises Refused."""
    for path in settings:
        part: Any = stack
        for name in path.split("."):
            fields = getattr(type(part), "model_fields", {})
            if name not in fields:
                where = ("profile_settings", path)
                raise Refused(
                    f"no field {name!r}", ", ".join(fields) or "no field", nearest(name, fields), where
                )
            part = getattr(part, name)
    return settings


@cache
def _changed(profile: str, own: tuple[tuple[str, Any], ...], off: tuple[str, ...]) -> Stack:
    return without_overlap(changed(load_stack(profile), dict(own)), **dict.fromkeys(off, True))


def changed(stack: Stack, own: Overrides) -> Stack:
    """A profile with single fields, by dotted path, replaced."""
    for path, value in own.items():
        stack = replaced(stack, path.split("."), value)
    return stack


def replaced(part: Any, path: list[str], value: Any) -> Any:
    """A frozen model with one field, below others, replaced."""
    name, *deeper = path
    below = replaced(getattr(part, name), deeper, value) if deeper else value
    return part.model_copy(update={name: below})
