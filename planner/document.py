"""Documents: what a command returns and other programs read, and the parts that it is made of."""

from __future__ import annotations

import yaml
from pydantic import ConfigDict

from hardware.documented import Documented


class Report(Documented):
    """Frozen and closed; numbers are finite, so that JSON can hold them."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        allow_inf_nan=False,
        serialize_by_alias=True,
        validate_by_alias=True,
        validate_by_name=True,
    )


class Document(Report):
    """A report that is a file by itself."""

    def to_json(self) -> str:
        """Indented JSON, with a newline at the end."""
        return self.model_dump_json(indent=2) + "\n"

    def to_yaml(self) -> str:
        """YAML in the same order of keys."""
        # Escaped, since PyYAML folds line separators of Unicode when it writes them as they are.
        return yaml.safe_dump(self.model_dump(mode="json"), sort_keys=False, allow_unicode=False, width=110)
