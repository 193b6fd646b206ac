"""What makes a plan acceptable and what makes it better: limits and objective."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import (
    GetJsonSchemaHandler,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)

from planner import patterns, units
from planner.errors import Refused, nearest, shown
from planner.quantities import Dollars, Duration, Fraction, Number, Quantity, Strict, ValueOfTime
from planner.requirements import Requirements
from planner.site_units import Energy, Tonnes

Goal = Literal["cost", "time", "energy", "carbon"]
GOALS = ("cost", "time", "energy", "carbon")
LEAST_SURE, SUREST = 0.6, 0.99
"""Beyond 0.99 the runs that bands rest on are too few; one half is what limits mean as predicted."""


def _confidence(value: object) -> float:
    share = units.fraction(value)
    if not LEAST_SURE <= share <= SUREST:
        accepted = f"a share from {LEAST_SURE} to {SUREST}, such as 0.9 or 90%"
        raise Refused(
            f"found {shown(value)}", accepted, "without it limits hold as predicted, half of the time"
        )
    return share


Confidence = Annotated[float, Quantity(_confidence, float, (0.9, "90%"), patterns.FRACTION)]


class Limits(Strict):
    """What a plan must keep to. A limit that is left out does not bind."""

    deadline: Duration | None = None
    """The run ends within this time."""
    budget: Dollars | None = None
    """The run costs at most this much."""
    memory_headroom: Fraction = 0.05
    """Share of each GPU's memory that no plan may touch."""
    energy: Energy | None = None
    """The run draws at most this much, the data centre's overhead included."""
    carbon: Tonnes | None = None
    """The run's electricity emits at most this much CO2."""
    confidence: Confidence | None = None
    """How sure deadline and budget have to be: 0.9 means that nine of ten runs of the plan meet both."""
    require: Requirements = ()
    """Limits of your own on decisions and predictions: `[gpus <= 512, tp == 8, pp in [4, 8], mfu >= 0.35,
    memory_gib <= 70, step_time_s <= 10, tokens_per_s_per_gpu >= 400]`."""


class Objective(Strict):
    """`cost`, `time`, `energy`, `carbon`, `[cost, time]` (the second breaks ties of the first), weights."""

    goals: tuple[Goal, ...] = ("cost",)
    """What is minimised, most important first; both where they are weighted."""
    cost_weight: Number = 1.0
    """With a value of time: dollars count this much."""
    value_of_time: ValueOfTime | None = None
    """USD a second that an earlier end is worth; given, cost and time are added up in dollars."""

    @model_validator(mode="before")
    @classmethod
    def _spelled(cls, data: Any) -> Any:
        accepted = "cost, time, energy, carbon, [cost, time], or weights such as {cost: 1, time: 20k USD/day}"
        if isinstance(data, dict):
            return _weights(data)
        goals = data if isinstance(data, (list, tuple)) else [data]
        for goal in goals:
            if goal not in GOALS:
                raise Refused(f"found {shown(goal)}", accepted, nearest(goal, GOALS))
        if not goals or len(set(goals)) < len(goals):
            raise Refused("each goal has to be there once", accepted)
        return {"goals": tuple(goals)}

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: Any, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """As it is spelled in a file."""
        goal = {"enum": list(GOALS)}
        value = {"type": "string", "pattern": patterns.VALUE_OF_TIME, "examples": ["20k USD/day"]}
        weights = {"cost": {"type": "number"}, "time": value}
        closed = {
            "type": "object",
            "properties": weights,
            "required": ["time"],
            "additionalProperties": False,
        }
        return {"anyOf": [goal, {"type": "array", "items": goal}, closed], "description": cls.__doc__}

    @property
    def weighted(self) -> bool:
        return self.value_of_time is not None

    @model_serializer(mode="wrap")
    def _written(self, handler: SerializerFunctionWrapHandler) -> Any:
        if self.value_of_time is not None:
            whole = handler(self)
            return {"cost": self.cost_weight, "time": whole["value_of_time"]}
        return self.goals[0] if len(self.goals) == 1 else list(self.goals)


def _weights(data: dict[str, Any]) -> dict[str, Any]:
    """`{cost: 1, time: 20k USD/day}` in field names."""
    for key in data:
        if key not in ("cost", "time"):
            raise Refused("unknown key", "cost, time", nearest(key, ("cost", "time")), where=(str(key),))
    if "time" not in data:
        raise Refused("weights without a value of time", "{cost: 1, time: 20k USD/day}", "", ("time",))
    read = {"goals": ("cost", "time")}
    for key, name, parse in (
        ("time", "value_of_time", units.value_of_time),
        ("cost", "cost_weight", units.plain),
    ):
        try:
            read |= {name: parse(data[key])} if key in data else {}  # pyright: ignore[reportOperatorIssue]
        except Refused as refused:
            raise refused.below(key) from None
    return {**read, "value_of_time": f"{read['value_of_time']!r} USD/s"}
