"""The sections of a torchtitan run, as its TOML has them, read with their types checked."""

from __future__ import annotations

from typing import Any

from planner.errors import InvalidInput, shown


class Sections:
    """Values by section and key; a Python recipe is brought into the same form."""

    def __init__(self, file: str, sections: dict[str, dict[str, Any]]) -> None:
        self.file, self.sections = file, sections

    def get(self, section: str, key: str, default: Any = None) -> Any:
        """A value, or the default."""
        return self.sections.get(section, {}).get(key, default)

    def whole(self, section: str, key: str, default: int | None = None, least: int = 1) -> int | None:
        """A whole number. Raises InvalidInput."""
        value = self.get(section, key, default)
        if value is None or value == default:
            return value
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            accepted = f"a whole number, {least} or more"
            raise InvalidInput(
                file=self.file, path=f"{section}.{key}", found=f"found {shown(value)}", accepted=accepted
            )
        return value

    def words(self, section: str, key: str, default: tuple[str, ...] = ()) -> tuple[str, ...]:
        """A list of names. Raises InvalidInput."""
        value = self.get(section, key, list(default))
        if not isinstance(value, list):
            found, accepted = f"found {shown(value)}", "a list of names"
            raise InvalidInput(file=self.file, path=f"{section}.{key}", found=found, accepted=accepted)
        return tuple(map(str, value))

    def table(self, *path: str) -> dict[str, Any]:
        """A table by its path, or an empty one. Raises InvalidInput where it is another thing."""
        found: Any = self.sections
        for name in path:
            found = found.get(name, {})
            if not isinstance(found, dict):
                accepted = "a table"
                raise InvalidInput(
                    file=self.file, path=".".join(path), found=f"found {shown(found)}", accepted=accepted
                )
        return found

    @property
    def pp(self) -> int:
        """Pipeline ranks."""
        return self.whole("parallelism", "pipeline_parallel_degree", 1) or 1
