"""Which models a framework's code trains, by the features of their blocks."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from costmodel.architecture import Architecture
from costmodel.cards import load_card
from hardware import yaml_text

FILE = Path(__file__).parent / "models.yaml"
FLAVORS = Path(__file__).parent.parent / "importers" / "torchtitan.yaml"

Shapes = dict[str, dict[str, list[Any]]]
"""What each feature may be, by the name of a model."""


@cache
def shapes() -> Shapes:
    """`models.yaml`."""
    return yaml_text.load(FILE.read_text(encoding="utf-8"))


def names_of(architecture: Architecture, seq_len: int, known: tuple[str, ...]) -> frozenset[str]:
    """Which of some models an architecture is, with sequences of that length."""
    mine, rules = features(architecture, seq_len), shapes()
    found = {
        name
        for name in known
        if name in rules and all(mine[feature] in allowed for feature, allowed in rules[name].items())
    }
    if any(name.startswith("torchtitan-") for name in known):
        modules = torchtitan_modules(architecture)  # pyright: ignore[reportArgumentType]  # frozen pydantic models hash
        found |= modules & set(known)
    return frozenset(found)


def features(a: Architecture, seq_len: int) -> dict[str, Any]:
    """What frameworks tell models apart by."""
    pattern = set(a.pattern())
    return {
        "experts": "none" if a.moe is None else "every_layer" if pattern == {"moe"} else "some_layers",
        "shared_experts": bool(a.moe and a.moe.shared_expert_ffn),
        "mla": a.mla is not None,
        "qk_norm": a.qk_norm,
        "attention_sinks": a.attention_sinks,
        "window": window(a),
        "positions": positions(a, seq_len),
        "norms_per_layer": a.norms_per_layer,
        "norm": a.norm,
        "gated_mlp": a.gated_mlp,
        "mtp": a.mtp_layers > 0,
        "biases": biases(a),
        "tied": a.tied_embeddings,
        "usual_heads": a.heads * a.head_dim == a.hidden,
    }


def window(a: Architecture) -> str:
    """none, idle (no layer has it), unset (layers, and no width), chunked, all, every_nth, or some layers."""
    if not a.sliding_layers:
        return "none" if a.sliding_window is None and not a.chunked_window else "idle"
    if a.sliding_window is None:
        return "unset"
    if a.chunked_window:
        return "chunked"
    whole = a.layers - a.sliding_layers
    if not whole:
        return "all"
    # All layers but every n-th have one, for some n.
    return "every_nth" if a.layers // -(-a.layers // whole) == whole else "some"


def positions(a: Architecture, seq_len: int) -> str:
    """rotary, learned, or too_short: a table with fewer rows than a sequence has tokens."""
    if not a.learned_positions:
        return "rotary"
    return "learned" if seq_len <= a.learned_positions else "too_short"


def biases(a: Architecture) -> str:
    """On no linear layers, on queries, keys and values, on all of them, or on other ones."""
    on = (a.qkv_bias, a.output_bias, a.mlp_bias)
    if on in ((False, False, False), (True, False, False)):
        return "qkv" if a.qkv_bias and a.mla is None else "none"
    # Latent attention has no such projections of its own.
    return "all" if on == (True, True, True) or (on[1:] == (True, True) and a.mla is not None) else "other"


@cache
def torchtitan_modules(architecture: Architecture) -> frozenset[str]:
    """The module of torchtitan that registers a flavor with these shapes."""
    wanted = _shapes_alone(architecture)
    return frozenset(name for name, known in registered() if known == wanted)


@cache
def registered() -> tuple[tuple[str, dict[str, Any]], ...]:
    """Shapes of torchtitan's flavors with their modules; it trains none with multi-token prediction."""
    found: list[tuple[str, dict[str, Any]]] = []
    for module, flavors in yaml_text.load(FLAVORS.read_text(encoding="utf-8"))["models"].items():
        for of in flavors.values():
            known = load_card(of) if isinstance(of, str) else Architecture.model_validate(of)
            found.append((f"torchtitan-{module}", _shapes_alone(known.model_copy(update={"mtp_layers": 0}))))
    return tuple(found)


def _shapes_alone(architecture: Architecture) -> dict[str, Any]:
    """What two models must share to be the same."""
    return architecture.model_dump(exclude={"name", "source", "max_seq_len"})
