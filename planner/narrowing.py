"""Where the search may look: allowed values of decisions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema

from costmodel.stack import stack_names
from planner import units
from planner.errors import Refused, nearest, shown
from planner.quantities import Strict

RECOMPUTE = ("none", "selective", "full")
FRAMEWORKS = ("megatron", "any")


def _choices(read: Callable[[Any], Any]) -> Callable[[Any], Any]:
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


def _sizes(schema: dict[str, Any]) -> Any:
    return WithJsonSchema({"anyOf": [schema, {"type": "array", "items": schema}]})


Sizes = Annotated[
    tuple[int, ...], BeforeValidator(_choices(units.count)), _sizes({"type": "integer", "minimum": 1})
]
ZeroStages = Annotated[tuple[int, ...], BeforeValidator(_choices(_zero)), _sizes({"enum": [0, 1, 2, 3]})]
Recompute = Annotated[
    tuple[str, ...], BeforeValidator(_choices(one_of(RECOMPUTE))), _sizes({"enum": list(RECOMPUTE)})
]


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
    recompute: Recompute | None = None
    """none, selective (by module), full."""
    framework: Annotated[Literal["megatron", "any"], BeforeValidator(one_of(FRAMEWORKS))] = "megatron"
    """Only plans that this framework can launch."""
    stack: Annotated[str | None, BeforeValidator(_stack)] = Field(default=None)
    """Software profile that predicts times and bytes (`planner catalogue profiles`)."""
    per_stage_recompute: bool | None = None
    """Whether stages may recompute different numbers of layers; as the framework can, unless given."""

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
            "recompute",
        )
        return {name: values for name in names if (values := getattr(self, name)) is not None}
