"""What is wrong with a launch, each with its numbers and what would fix it."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Literal

Level = Literal["error", "warning", "note"]
LEVELS: tuple[Level, ...] = ("error", "warning", "note")


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing about a launch that its owner should know."""

    code: str
    """Stable name: `bubble`, `does_not_fit`, `layers_do_not_divide`."""
    level: Level
    """error: it does not start, does not fit, or trains something else; warning: it costs time or is at
    risk; note: it is ignored or only looks odd."""
    text: str
    """What is so, in numbers."""
    fix: str = ""
    """What to change."""
    numbers: dict[str, float] = field(default_factory=dict)
    """The figures of the text, for programs."""

    def as_data(self) -> dict[str, Any]:
        """As JSON has it."""
        return asdict(self)


def in_order(findings: list[Finding]) -> list[Finding]:
    """Errors first, and each fact once."""
    unique = list({(each.code, each.text): each for each in findings}.values())
    return sorted(unique, key=lambda each: LEVELS.index(each.level))
