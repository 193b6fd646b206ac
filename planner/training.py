"""The section `training:`: tokens, sequence length, batch, precision."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, PlainSerializer, ValidationInfo, field_validator, model_validator
from pydantic.json_schema import WithJsonSchema

from planner import patterns
from planner.errors import Refused
from planner.narrowing import PRECISIONS, choices, one_of
from planner.quantities import Range, SequenceLength, Strict, Tokens, batch_range

BATCH_TEXT = {"type": "string", "pattern": patterns.BATCH}
BATCH_SCHEMA = {
    "anyOf": [
        BATCH_TEXT,
        {
            "type": "object",
            "properties": {"min": BATCH_TEXT, "max": BATCH_TEXT},
            "required": ["min", "max"],
            "additionalProperties": False,
        },
    ],
    "examples": ["4Mi tokens", "640 sequences", {"min": "2M tokens", "max": "6M tokens"}],
}
Batch = Annotated[
    Range[int],
    PlainSerializer(lambda r: {"min": f"{r.min} sequences", "max": f"{r.max} sequences"}),
    WithJsonSchema(BATCH_SCHEMA),
]


PRECISION = {"enum": list(PRECISIONS)}


def _precisions(value: Any) -> Any:
    """A precision or a list of them, in the order of `PRECISIONS`."""
    read = one_of(PRECISIONS)
    chosen = (read(value),) if value is None else choices(read)(value)
    return tuple(each for each in PRECISIONS if each in chosen)


def _as_written(precisions: tuple[str, ...]) -> str | list[str]:
    """One precision stands without the list."""
    return precisions[0] if len(precisions) == 1 else list(precisions)


Precisions = Annotated[
    tuple[Literal["bf16", "fp8"], ...],
    BeforeValidator(_precisions),
    PlainSerializer(_as_written),
    WithJsonSchema({"anyOf": [PRECISION, {"type": "array", "items": PRECISION, "minItems": 1}]}),
]


class Training(Strict):
    """What one run of training is."""

    tokens: Tokens
    """Tokens the model sees: 3T."""
    seq_len: SequenceLength
    """Tokens in a sequence: 4096."""
    global_batch: Batch
    """Batch of an optimizer step, one value or `{min, max}`, in tokens or sequences; kept as sequences."""
    precision: Precisions = Field(default=("bf16",), json_schema_extra={"default": "bf16"})
    """Of the matrix products: one, or a list from which the plan takes what is best, `[bf16, fp8]`. Only what
    is named is planned, on GPUs that have it: no prediction here says what FP8 does to the loss."""
    optimizer: Annotated[Literal["adamw"], BeforeValidator(one_of(("adamw",)))] = "adamw"
    """AdamW with FP32 master weights and moments."""

    @field_validator("global_batch", mode="before")
    @classmethod
    def _in_sequences(cls, value: Any, info: ValidationInfo) -> Any:
        return batch_range(value, info.data.get("seq_len", 1))

    @model_validator(mode="after")
    def _one_step_at_least(self) -> Training:
        if self.tokens < self.global_batch.min * self.seq_len:
            found = f"{self.tokens} tokens are less than one batch of {self.global_batch.min} sequences"
            raise Refused(found, "more tokens or a smaller batch", "", ("tokens",))
        return self
