"""What is trained: a model card by name, a card with changes, or shapes written out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import (
    Field,
    GetJsonSchemaHandler,
    PrivateAttr,
    SerializerFunctionWrapHandler,
    ValidationError,
    model_serializer,
    model_validator,
)

from costmodel.architecture import Architecture
from costmodel.cards import card_names, load_card
from planner.complaints import first_fault
from planner.errors import Refused, nearest, shown
from planner.quantities import Parameters, Strict


class Model(Strict):
    """A model card's name, `{base: card, ...changes}`, or an architecture written out."""

    base: str | None = None
    """Name of a model card (`planner catalogue models` lists them)."""
    changes: dict[str, Any] = Field(default_factory=dict)
    """Architecture fields that differ from the card, or all of them where there is no card."""
    nominal_parameters: Parameters | None = None
    """Parameters as people quote them (70B), used only in the 6*P*D arithmetic under `assume_mfu`."""

    _architecture: Architecture = PrivateAttr()

    @model_validator(mode="before")
    @classmethod
    def _spelled(cls, data: Any) -> Any:
        if isinstance(data, str):
            return {"base": _card(data)}
        if not isinstance(data, dict):
            accepted = (
                "the name of a model card, {base: card, ...changes}, or a mapping of architecture fields"
            )
            raise Refused(f"found {shown(data)}", accepted)
        fields = {*Architecture.model_fields, "base", "nominal_parameters"}
        for key in data:
            if key not in fields:
                raise Refused(
                    "unknown key", ", ".join(sorted(fields)), nearest(key, fields), where=(str(key),)
                )
        base = data.get("base")
        if base is not None and not isinstance(base, str):
            raise Refused(f"found {shown(base)}", "the name of a model card", where=("base",))
        changes = {key: value for key, value in data.items() if key in Architecture.model_fields}
        read = {"base": base if base is None else _card(base, "base"), "changes": changes}
        return read | {key: data[key] for key in ("nominal_parameters",) if key in data}

    def model_post_init(self, context: Any, /) -> None:
        self._architecture = self._resolved()

    @property
    def name(self) -> str:
        return self._architecture.name

    @classmethod
    def spelled(cls, name: str) -> Model:
        """The model a card's name means. Raises `Refused`."""
        return cls(base=_card(name))

    @property
    def architecture(self) -> Architecture:
        """The shapes, card and changes merged."""
        return self._architecture

    def _resolved(self) -> Architecture:
        card = load_card(self.base).model_dump() if self.base else {}
        unnamed = {} if card else {"name": "custom"}
        try:
            return Architecture.model_validate(_merged(unnamed | card, self.changes))
        except ValidationError as error:
            raise first_fault(error) from None

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: Any, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """As it is spelled in a file: a name, or a mapping of shapes over a card."""
        own = {
            "base": {"type": "string"},
            "nominal_parameters": {"type": ["string", "number"], "examples": ["70B"]},
        }
        inner = handler.resolve_ref_schema(handler(Architecture.__pydantic_core_schema__))
        mapping = {"type": "object", "properties": own | inner["properties"], "additionalProperties": False}
        return {
            "anyOf": [{"type": "string", "examples": ["llama-2-70b"]}, mapping],
            "description": cls.__doc__,
        }

    @model_serializer(mode="wrap")
    def _written(self, handler: SerializerFunctionWrapHandler) -> Any:
        if self.base and not self.changes and self.nominal_parameters is None:
            return self.base
        head = {"base": self.base} if self.base else {}
        tail = {} if self.nominal_parameters is None else {"nominal_parameters": self.nominal_parameters}
        return head | self.changes | tail


def _card(name: str, *where: str) -> str:
    """The card's own spelling of a name, or a refusal with the nearest one."""
    if name.endswith(".json") or "/" in name or Path(name).is_dir():
        hint = "Hugging Face config.json files are not read yet: name a card or write the shapes inline"
        raise Refused(f"found {shown(name)}", "the name of a model card", hint, where)
    known = card_names()
    if name.lower() not in known:
        hint = nearest(name, known) or "`planner catalogue models` lists them with their shapes"
        raise Refused(f"found {shown(name)}, which is no model card", ", ".join(known), hint, where)
    return name.lower()


def _merged(card: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """The card with changes laid over it; mappings (moe, mla) merge, everything else replaces."""
    merged = dict(card)
    for key, value in changes.items():
        old = merged.get(key)
        merged[key] = _merged(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
    return merged
