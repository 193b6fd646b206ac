"""Where the search may look: allowed values of decisions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema, model_validator

from costmodel.modules import COVERED
from costmodel.stack import Stack, stack_names
from planner import units
from planner.errors import Refused, nearest, shown
from planner.frameworks.table import ANY, FRAMEWORKS, framework_of, profile_of
from planner.quantities import Strict
from planner.switch_rules import refuse_switches
from planner.switches import SWITCHES, software, switch

RECOMPUTE = ("none", "selective", "full")
Modules = frozenset[str]
"""Modules that selective recompute repeats in every layer."""
NAMEABLE = ("core_attn", "layernorm", "mla_up_proj", "mlp", "moe", "moe_act", "shared_experts")
"""What Megatron-Core's `--recompute-modules` can name, of what the cost model knows (core 0.16 to 0.20)."""
OPERATIONS = "per_op"
"""The choice by operation of frameworks that recompute so."""
PRECISIONS = ("bf16", "fp8")
ZERO_SCOPES = ("full", "node")
"""Ranks that share states under ZeRO: all that hold the same weights, or those of one NVLink domain."""
DEFAULT_STACK = "megatron-core"
"""The software profile where neither a profile nor a framework is named: today's Megatron-Core."""


def choices(read: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """One value or a list of allowed values, as a sorted tuple without repeats."""

    def parse(value: Any) -> Any:
        if value is None:
            return None
        values = value if isinstance(value, (list, tuple)) else [value]
        if not values:
            raise Refused("found an empty list", "one value or a list of allowed values")
        allowed: list[Any] = []
        for index, each in enumerate(values):
            try:
                allowed.append(read(each))
            except Refused as refused:
                raise refused.below(index) if isinstance(value, (list, tuple)) else refused from None
        return tuple(dict.fromkeys(allowed if isinstance(allowed[0], str) else sorted(allowed)))

    return parse


def _zero(value: Any) -> int:
    return units.count(value, "a ZeRO stage", least=0, most=3)


def one_of(choices: tuple[str, ...]) -> Callable[[Any], str]:
    """A parser of one of a few words."""

    def parse(value: Any) -> str:
        if value not in choices:
            raise Refused(f"found {shown(value)}", ", ".join(choices), nearest(value, choices))
        return str(value)

    return parse


def _stack(value: Any) -> Any:
    """The name of a software profile under costmodel/stacks."""
    if value is None:
        return None
    return one_of(stack_names())(value)


def set_name(modules: Modules) -> str:
    """Modules as one word: layernorm+mlp."""
    return "+".join(sorted(modules))


def module_set(value: Any) -> str:
    """Reads `layernorm+mlp`, in any order. Raises Refused."""
    accepted = f"modules joined by +, such as layernorm+mlp; there are {', '.join((*NAMEABLE, OPERATIONS))}"
    if not isinstance(value, str) or not value.strip():
        raise Refused(f"found {shown(value)}", accepted)
    names = [name.strip() for name in value.split("+")]
    for name in names:
        if name not in (*NAMEABLE, OPERATIONS):
            raise Refused(f"found {shown(name)}", accepted, nearest(name, (*NAMEABLE, OPERATIONS)))
    for whole, parts in COVERED.items():
        if whole in names and (double := parts & set(names)):
            raise Refused(
                f"found {shown(value)}", f"{whole} without {', '.join(sorted(double))}, which it covers"
            )
    if OPERATIONS in names and len(set(names)) > 1:
        raise Refused(f"found {shown(value)}", f"{OPERATIONS} alone: the framework chooses by operation")
    return set_name(frozenset(names))


def _sizes(schema: dict[str, Any]) -> Any:
    return WithJsonSchema({"anyOf": [schema, {"type": "array", "items": schema}]})


Sizes = Annotated[
    tuple[int, ...], BeforeValidator(choices(units.count)), _sizes({"type": "integer", "minimum": 1})
]
ZeroStages = Annotated[tuple[int, ...], BeforeValidator(choices(_zero)), _sizes({"enum": [0, 1, 2, 3]})]
Recompute = Annotated[
    tuple[str, ...], BeforeValidator(choices(one_of(RECOMPUTE))), _sizes({"enum": list(RECOMPUTE)})
]
ModuleSets = Annotated[tuple[str, ...], BeforeValidator(choices(module_set)), _sizes({"type": "string"})]
ZeroScopes = Annotated[
    tuple[str, ...], BeforeValidator(choices(one_of(ZERO_SCOPES))), _sizes({"enum": list(ZERO_SCOPES)})
]
Switch = Annotated[
    bool | None,
    BeforeValidator(switch),
    WithJsonSchema({"anyOf": [{"type": "boolean"}, {"enum": ["on", "off"]}, {"type": "null"}]}),
]


Framework = Literal["megatron", "torchtitan", "deepspeed", "nanotron", "any"]


class Search(Strict):
    """Allowed values of decisions, one or a list; what is left out is free."""

    tp: Sizes | None = None
    """Tensor-parallel sizes."""
    cp: Sizes | None = None
    """Context-parallel sizes."""
    pp: Sizes | None = None
    """Pipeline stages."""
    vpp: Sizes | None = None
    """Virtual stages (chunks) a pipeline rank holds; 1 is no interleaving."""
    dp: Sizes | None = None
    """Data-parallel replicas."""
    ep: Sizes | None = None
    """Expert-parallel sizes."""
    etp: Sizes | None = None
    """Tensor-parallel sizes inside an expert."""
    micro_batch: Sizes | None = None
    """Sequences in a micro-batch."""
    num_microbatches: Sizes | None = None
    """Micro-batches a step (gradient accumulation)."""
    zero: ZeroStages | None = None
    """Sharding stages."""
    zero_scope: ZeroScopes | None = None
    """Ranks that share states: full (all that hold the same weights), node (those in one NVLink domain)."""
    recompute: Recompute | None = None
    """none, selective (by module), full."""
    recompute_modules: ModuleSets | None = None
    """Sets of modules that selective recompute may repeat in every layer, such as layernorm+moe_act; unless
    given, every set of those that free at least 1 % of what a layer keeps."""
    tp_overlap: Switch = None
    """Tensor-parallel collectives beside GEMMs (user buffers, async TP): off plans without, on asks for
    software that has it; as profile and framework have it, unless given."""
    dp_overlap: Switch = None
    """Gradient reduction and weight gathers behind compute, likewise."""
    pp_overlap: Switch = None
    """Transfers of interleaved pipeline stages behind compute, likewise."""
    ep_overlap: Switch = None
    """The experts' all-to-all behind the compute of another micro-batch: on or off in every plan; either,
    unless given."""
    framework: Annotated[Framework, BeforeValidator(one_of((*FRAMEWORKS, ANY)))] = "megatron"
    """Only plans that this framework can launch, so that each can be exported to it; `any` removes none."""
    stack: Annotated[str | None, BeforeValidator(_stack)] = Field(default=None)
    """Software profile that predicts times and bytes (`planner catalogue profiles`); the framework's unless
    given."""
    per_stage_recompute: bool | None = None
    """Whether stages may recompute different numbers of layers; as the framework can, unless given."""

    @model_validator(mode="after")
    def _launchable(self) -> Search:
        rules = framework_of(self.framework)
        if self.per_stage_recompute and rules is not None and rules.recompute != "stage":
            found = f"found true, and {self.framework} recomputes the same number of layers on every stage"
            raise Refused(found, "false, or `framework: any`", "", ("per_stage_recompute",))
        refuse_switches(self)
        return self

    @property
    def chosen(self) -> dict[str, bool]:
        """Switches of the software that are given, and what they are."""
        return {name: on for name in SWITCHES if (on := getattr(self, name)) is not None}

    @property
    def software(self) -> Stack:
        """The software profile that predicts times and bytes, with its switches."""
        return software(self.profile, self.chosen)

    @property
    def profile(self) -> str:
        """Name of the software profile that predicts times and bytes."""
        return self.stack or profile_of(self.framework, DEFAULT_STACK)

    @property
    def by_stage(self) -> bool:
        """Whether stages may recompute different numbers of layers."""
        if self.per_stage_recompute is not None:
            return self.per_stage_recompute
        rules = framework_of(self.framework)
        return rules is None or rules.recompute == "stage"

    @property
    def allowed(self) -> dict[str, tuple[int | str, ...]]:
        """Decisions that are narrowed, with their allowed values."""
        names = (
            "tp",
            "cp",
            "pp",
            "vpp",
            "dp",
            "ep",
            "etp",
            "micro_batch",
            "num_microbatches",
            "zero",
            "zero_scope",
            "recompute",
            "recompute_modules",
        )
        found: dict[str, tuple[int | str, ...]] = {
            name: values for name in names if (values := getattr(self, name)) is not None
        }
        if self.ep_overlap is not None:
            found["ep_overlap"] = (self.ep_overlap,)
        return found


def software_words(search: Search) -> list[str]:
    """Which software a framework's plans are priced as, where that is not what goes without saying."""
    rules = framework_of(search.framework)
    if search.framework == FRAMEWORKS[0] and search.profile == DEFAULT_STACK:
        return []
    if rules is None:
        return [f"Plans are for any framework, and priced with the profile {search.profile}."]
    words = f"Only what {rules.title} can launch is planned, and priced with the profile {search.profile}"
    if search.stack is None and rules.split_profile is not None:
        words += (
            f"; what splits the model is other code, which `search: {{stack: {rules.split_profile}}}` prices"
        )
    return [f"{words}."]
