"""The model of a torchtitan run: a registered flavor, or Llama in sizes of one's own."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from planner.errors import InvalidInput, nearest
from planner.runs.model import architecture_of

FACTS = Path(__file__).parent / "torchtitan.yaml"
OWN = "llama3"
"""The model whose sizes a file of one's own can register."""
MOST = 10**9
"""No size is larger."""
NEEDED = ("dim", "n_layers", "n_heads", "vocab_size")


@cache
def facts() -> dict[str, Any]:
    """`torchtitan.yaml`."""
    return yaml.safe_load(FACTS.read_text(encoding="utf-8"))


def flavors() -> dict[str, dict[str, Any]]:
    """Cards or shapes by model and flavor."""
    return facts()["models"]


def model_of(file: str, name: str, flavor: str, registering: ast.Module | None) -> Any:
    """A card's name, or shapes. Raises InvalidInput."""
    found = (flavors().get(name) or {}).get(flavor)
    if found is not None:
        return without_mtp(found)
    sizes = sizes_of(registering, flavor) if name == OWN and registering is not None else {}
    if set(NEEDED) <= set(sizes):
        return shapes(flavor, sizes)
    choices = [f"{each} {size}" for each, sizes in flavors().items() for size in sizes]
    raise InvalidInput(
        file=file,
        path="model",
        found=f"found {name!r} of flavor {flavor!r}",
        accepted=f"{', '.join(choices)}, or --model CARD",
        suggestion=nearest(f"{name} {flavor}", choices),
    )


def without_mtp(model: Any) -> Any:
    """The model as torchtitan trains it: has multi-token prediction."""
    architecture = architecture_of(model)
    if not architecture.mtp_layers:
        return model
    return architecture.model_copy(update={"mtp_layers": 0}).model_dump(exclude_none=True)


def sizes_of(tree: ast.Module, flavor: str) -> dict[str, Any]:
    """Sizes behind `..._args["flavor"] = ModelArgs(...)`, or a function that returns them (0.3.0)."""
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    for node in tree.body:
        if not (isinstance(node, ast.Assign) and _registers(node.targets[0], flavor)):
            continue
        value: ast.expr | None = node.value
        if isinstance(value, ast.Name) and value.id in functions:
            returns = [each for each in functions[value.id].body if isinstance(each, ast.Return)]
            value = returns[-1].value if returns else None
        if isinstance(value, ast.Call):
            return _keywords(value)
    return {}


def _registers(target: ast.expr, flavor: str) -> bool:
    return (
        isinstance(target, ast.Subscript)
        and isinstance(target.slice, ast.Constant)
        and target.slice.value == flavor
    )


def _keywords(call: ast.Call) -> dict[str, Any]:
    """Numbers above 0 among the arguments; those of `layers=...(...)` too."""
    found: dict[str, Any] = {}
    for keyword in call.keywords:
        if keyword.arg == "layers" and isinstance(keyword.value, ast.Call):
            found |= _keywords(keyword.value)
        elif isinstance(keyword.value, ast.Constant) and _positive(str(keyword.arg), keyword.value.value):
            found[str(keyword.arg)] = keyword.value.value
    return found


def _positive(name: str, value: object) -> bool:
    """A whole number, or for the multiplier of the FFN any."""
    kinds = (int, float) if name == "ffn_dim_multiplier" else int
    return isinstance(value, kinds) and not isinstance(value, bool) and 0 < value < MOST


def shapes(flavor: str, sizes: dict[str, Any]) -> dict[str, Any]:
    """Llama's block; its FFN is hidden_dim wide, or round_up(multiplier * int(8*dim/3), multiple_of)."""
    dim, multiple = sizes["dim"], sizes.get("multiple_of", 256)
    ffn = sizes.get("hidden_dim")
    if ffn is None:
        width = int(sizes.get("ffn_dim_multiplier", 1) * int(2 * 4 * dim / 3))
        ffn = multiple * -(-width // multiple)
    return {
        "name": flavor,
        "layers": sizes["n_layers"],
        "hidden": dim,
        "ffn": ffn,
        "heads": sizes["n_heads"],
        "kv_heads": sizes.get("n_kv_heads", sizes["n_heads"]),
        "head_dim": dim // sizes["n_heads"],
        "vocab": sizes["vocab_size"],
    }
