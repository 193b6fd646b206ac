"""What is trained: a model card by name, a config.json, one of them with changes, or shapes written out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import (
    Field,
    GetJsonSchemaHandler,
    PrivateAttr,
    SerializerFunctionWrapHandler,
    ValidationError,
    ValidationInfo,
    model_serializer,
    model_validator,
)

from costmodel.architecture import Architecture
from costmodel.cards import card_names, load_card
from hardware.documented import attribute_docstrings
from planner import patterns
from planner.complaints import first_fault
from planner.config_file import looks_like_path, read_config
from planner.errors import InvalidInput, Refused, nearest, shown
from planner.quantities import Parameters, Strict

PATH_OR_OTHER_CASE = r"\.json$|[/\\]|[A-Z]"
"""A model that is not spelled like a card of the schema's list and may still be one, or a path."""


class FileFacts(Strict):
    """The config.json that a model was read from."""

    path: str
    """As the problem file names it."""
    sha256: str
    notes: tuple[str, ...] = ()
    """What the architecture leaves out or takes for granted."""


class Model(Strict):
    """A model card's name, a path to a config.json, `{base: one of them, ...changes}`, or shapes."""

    base: str | None = None
    """Name of a model card (`planner catalogue models` lists them)."""
    file: FileFacts | None = None
    """Where a config.json was the base: its shapes are among the changes."""
    changes: dict[str, Any] = Field(default_factory=dict)
    """Architecture fields that differ from the card, or all of them where there is no card."""
    nominal_parameters: Parameters | None = None
    """Parameters as people quote them (70B), used only in the 6*P*D arithmetic under `assume_mfu`."""

    _architecture: Architecture = PrivateAttr()

    @model_validator(mode="before")
    @classmethod
    def _spelled(cls, data: Any, info: ValidationInfo) -> Any:
        folder = (info.context or {}).get("folder", Path())
        if isinstance(data, str):
            return _base(data, folder, {})
        if not isinstance(data, dict):
            accepted = (
                "the name of a model card, a path to a config.json, {base: one of them, ...changes}, "
                "or a mapping of architecture fields"
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
            raise Refused(f"found {shown(base)}", NAMED, where=("base",))
        changes = {key: value for key, value in data.items() if key in Architecture.model_fields}
        read = {"changes": changes} if base is None else _base(base, folder, changes, "base")
        return read | {key: data[key] for key in ("nominal_parameters",) if key in data}

    def model_post_init(self, context: Any, /) -> None:
        self._architecture = self._resolved()

    @property
    def name(self) -> str:
        return self._architecture.name

    @classmethod
    def spelled(cls, name: str, folder: Path = Path()) -> Model:
        """The model that a card's name or a path to a config.json means. Raises `Refused`."""
        try:
            return cls.model_validate(name, context={"folder": folder})
        except ValidationError as error:
            raise first_fault(error) from None

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
        """As it is spelled in a file: a name, a path, or a mapping of shapes over one of them."""
        name = {
            "anyOf": [{"enum": list(card_names())}, {"type": "string", "pattern": PATH_OR_OTHER_CASE}],
            "examples": ["llama-2-70b", "./config.json"],
        }
        quoted = {
            "type": ["string", "number"],
            "pattern": patterns.PARAMETERS,
            "description": attribute_docstrings(cls)["nominal_parameters"],
            "examples": ["70B"],
        }
        base = {"description": "A card or a config.json; the other keys then say only what differs."} | name
        own = {"base": base, "nominal_parameters": quoted}
        inner = handler.resolve_ref_schema(handler(Architecture.__pydantic_core_schema__))
        for key, text in attribute_docstrings(Architecture).items():
            inner["properties"][key].setdefault("description", text)
        mapping = {"type": "object", "properties": own | inner["properties"], "additionalProperties": False}
        return {"anyOf": [name, mapping], "description": cls.__doc__}

    @model_serializer(mode="wrap")
    def _written(self, handler: SerializerFunctionWrapHandler) -> Any:
        if self.base and not self.changes and self.nominal_parameters is None:
            return self.base
        head = {"base": self.base} if self.base else {}
        tail = {} if self.nominal_parameters is None else {"nominal_parameters": self.nominal_parameters}
        return head | self.changes | tail


NAMED = "the name of a model card, or a path to a Hugging Face config.json"


def _base(name: str, folder: Path, changes: dict[str, Any], *where: str) -> dict[str, Any]:
    """Fields of a `Model` on a card, or on a config.json, whose shapes go under the changes."""
    if not looks_like_path(name):
        return {"base": _card(name, *where), "changes": changes}
    try:
        config = read_config(name, folder)
    except InvalidInput as error:
        raise _refused(error, *where) from None
    shapes = config.architecture.model_dump(mode="json", exclude_defaults=True)
    facts = FileFacts(path=name, sha256=config.digest, notes=config.notes)
    return {"file": facts, "changes": _merged(shapes, changes)}


def _refused(error: InvalidInput, *where: str) -> Refused:
    """What is wrong in a config.json, as a fault of the value that names it."""
    found = ": ".join(filter(None, (error.file, error.path, error.found)))
    return Refused(found, error.accepted, error.suggestion, where)


def _card(name: str, *where: str) -> str:
    """The card's own spelling of a name, or a refusal with the nearest one."""
    known = card_names()
    if name.lower() not in known:
        hint = nearest(name, known) or "a path to a config.json needs a / or ends in .json"
        raise Refused(f"found {shown(name)}, which is no model card", ", ".join(known), hint, where)
    return name.lower()


def _merged(card: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """The card with changes laid over it; mappings (moe, mla) merge, everything else replaces."""
    merged = dict(card)
    for key, value in changes.items():
        old = merged.get(key)
        merged[key] = _merged(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
    return merged
