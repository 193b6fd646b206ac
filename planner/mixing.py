"""The section `mixing:`: whether one plan may use two pools at once, and what connects them."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BeforeValidator, WithJsonSchema

from planner.errors import Refused
from planner.narrowing import choices, one_of
from planner.quantities import Bandwidth, Strict

if TYPE_CHECKING:
    from planner.problem import Problem

Form = Literal["stages", "replicas"]
FORMS: tuple[Form, ...] = ("stages", "replicas")
LAUNCHERS = ("megatron", "any")
"""Frameworks that can launch plans on two GPU types."""
WORD = {"enum": list(FORMS)}


def _forms(value: Any) -> Any:
    """A form or a list of them, in the order of `FORMS`."""
    if value is None:
        return FORMS
    chosen = choices(one_of(FORMS))(value)
    return tuple(form for form in FORMS if form in chosen)


Forms = Annotated[
    tuple[Form, ...],
    BeforeValidator(_forms),
    WithJsonSchema({"anyOf": [WORD, {"type": "array", "items": WORD}]}),
]


class Mixing(Strict):
    """Plans on two pools at once. Without the section every plan stays within one pool."""

    network: Bandwidth
    """Bandwidth one way that each GPU has to GPUs of another pool; no more than their own NICs' counts."""
    forms: Forms = FORMS
    """`stages`: the first pipeline ranks on one pool, the others on another. `replicas`: whole data-parallel
    replicas on each."""


ALONE = "Plans here are on one pool each; `planner solve` says whether two pools together are better."
"""What commands say that do not look at mixed plans."""
BETTER_ALONE = "No plan on two pools is better; reasons compare plans on one pool each."
"""What is said of an explanation of a plan on one pool, where the problem lets plans use two."""


def alone_note(problem: Problem) -> tuple[str, ...]:
    """That, where a problem asks for mixed plans."""
    return () if problem.mixing is None else (ALONE,)


def refuse_mixing(problem: Problem) -> None:
    """Refuses `mixing` beside what mixed plans are not worked out for, and where there is nothing to mix."""
    beside: dict[str, tuple[Any, tuple[str, ...]]] = {
        "phases": (problem.phases, ("phases",)),
        "a confidence": (problem.limits.confidence, ("limits", "confidence")),
        "assume_mfu": (problem.assume_mfu, ("assume_mfu",)),
    }
    for name, (given, where) in beside.items():
        if given not in (None, ()):
            raise Refused(f"{name} is given, and so is mixing", "one of them", "", where)
    if problem.search.framework not in LAUNCHERS:
        found = f"{problem.search.framework} launches no plan on two GPU types, and mixing is given"
        raise Refused(found, ", ".join(LAUNCHERS), "", ("search", "framework"))
    precisions, gpus = problem.training.precision, [pool.accelerator for pool in problem.hardware]
    # Both pools of a plan train in one precision.
    precision = max(precisions, key=lambda each: len(usable(each, gpus)))
    names = usable(precision, gpus)
    if len(names) < 2:
        pools = f"one pool ({names[0]})" if names else "no pool"
        raise Refused(
            f"there is {pools} to train on in {' or in '.join(precisions)}",
            "two pools or more under hardware, or no mixing",
            "",
            ("mixing",),
        )


def usable(precision: str, accelerators: Collection[Any]) -> list[str]:
    """Names of the GPUs that have a precision."""
    return [gpu.name for gpu in accelerators if precision in gpu.peak_flops]
