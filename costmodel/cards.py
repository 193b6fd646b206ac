"""Model cards: architectures by name, one YAML file each under `costmodel/cards`."""

from __future__ import annotations

from difflib import get_close_matches
from functools import cache
from pathlib import Path

from costmodel.architecture import Architecture
from hardware import yaml_text

CARDS = Path(__file__).parent / "cards"


class UnknownModel(ValueError):
    """No card has that name; the message offers the nearest one."""

    def __init__(self, name: str) -> None:
        known = card_names()
        nearest = get_close_matches(name.lower(), known, n=1)
        hint = f"did you mean {nearest[0]!r}? " if nearest else ""
        super().__init__(f"no model card named {name!r}; {hint}known: {', '.join(known)}")
        self.name = name
        self.nearest = nearest[0] if nearest else None


def card_names() -> tuple[str, ...]:
    """Names of all cards, sorted."""
    return tuple(sorted(path.stem for path in CARDS.glob("*.yaml")))


@cache
def load_card(name: str) -> Architecture:
    """The architecture a card describes; the name's case does not matter.

    Raises `UnknownModel` with the nearest name.
    """
    if name.lower() not in card_names():
        raise UnknownModel(name)
    text = (CARDS / f"{name.lower()}.yaml").read_text(encoding="utf-8")
    return Architecture.model_validate(yaml_text.load(text))
