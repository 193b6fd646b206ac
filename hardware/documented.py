"""Models whose attribute docstrings become the descriptions of their JSON schema, when one is asked for.

pydantic can do that itself (`use_attribute_docstrings`), but it parses the source of every class when it is
imported: a tenth of a second at each start of a program that hardly ever writes a schema.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from functools import cache
from typing import Any

from pydantic import BaseModel, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue


@cache
def attribute_docstrings(model: type[BaseModel]) -> dict[str, str]:
    """Docstrings under the attributes of a model and of what it inherits from."""
    found: dict[str, str] = {}
    for cls in reversed(model.__mro__):
        if not issubclass(cls, BaseModel) or cls is BaseModel:
            continue
        try:
            body = ast.parse(textwrap.dedent(inspect.getsource(cls))).body[0]
        except OSError:  # a class that no file defines, such as a generic one with its type filled in
            continue
        assert isinstance(body, ast.ClassDef)
        for here, after in zip(body.body, body.body[1:], strict=False):
            if (
                isinstance(here, ast.AnnAssign)
                and isinstance(here.target, ast.Name)
                and isinstance(after, ast.Expr)
                and isinstance(after.value, ast.Constant)
                and isinstance(after.value.value, str)
            ):
                found[here.target.id] = inspect.cleandoc(after.value.value)
    return found


class Documented(BaseModel):
    """A model that describes its keys in its schema."""

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: Any, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """The schema, with the docstring of each attribute as its description."""
        written = handler(schema)
        properties = handler.resolve_ref_schema(written).get("properties", {})
        for name, text in attribute_docstrings(cls).items():
            key = name if name in properties else getattr(cls.model_fields.get(name), "alias", None)
            if key in properties:
                properties[key].setdefault("description", text)
        return written
