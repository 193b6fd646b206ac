"""Look a GPU up by name, or build one from a user's file on top of a known one.

One YAML file a GPU lies under `hardware/data/`, its kernel curves under `hardware/data/kernels/`.
`index.yaml` says which names and aliases there are, so that a look-up reads the files of one GPU only.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, cast

import yaml
from pydantic import ValidationError

from hardware import yaml_text
from hardware.accelerator import Accelerator, Kernels
from hardware.errors import HardwareFileError, UnknownAccelerator, problems

__all__ = [
    "HardwareFileError",
    "UnknownAccelerator",
    "accelerator_names",
    "load_accelerator",
    "load_overlay",
    "overlay",
]

_DATA = Path(__file__).parent / "data"


def accelerator_names() -> tuple[str, ...]:
    """Canonical names in the catalogue, in its order."""
    return tuple(_index())


@cache
def load_accelerator(name: str) -> Accelerator:
    """The GPU of that name or alias, whatever its case.

    Raises UnknownAccelerator, with the nearest names.
    """
    canonical = _aliases().get(_normalised(name))
    if canonical is None:
        raise UnknownAccelerator(name, likely=_nearest(name), known=accelerator_names())
    path = _DATA / f"{canonical.lower()}.yaml"
    return _accelerator(_read(path), str(path))


def overlay(base: Accelerator, changes: Mapping[str, Any], where: str = "overlay") -> Accelerator:
    """`base` with a partial mapping of the same shape merged over it, validated as a whole.

    Values are SI, as in the catalogue. A changed `kernels` brings the curves of that chip; a changed
    `name` drops the aliases unless new ones are given. `where` names the changes in errors.

    Raises HardwareFileError.
    """
    facts = base.model_dump()
    if changes.get("name", base.name) != base.name:
        facts["aliases"] = ()
    if changes.get("kernels", base.kernels) != base.kernels:
        del facts["curves"]
    return _accelerator(_merged(facts, changes), where)


def load_overlay(path: str | Path) -> Accelerator:
    """A GPU from a user's YAML file: `based_on: H100`, a `name` and changes, or a whole accelerator.

    Raises HardwareFileError or UnknownAccelerator.
    """
    changes = dict(_read(Path(path)))
    if "name" not in changes:
        raise HardwareFileError(str(path), ("name: missing; give the GPU a name of its own",))
    base = changes.pop("based_on", None)
    if base is None:
        return _accelerator(changes, str(path))
    try:
        known = load_accelerator(str(base))
    except UnknownAccelerator as error:
        raise HardwareFileError(str(path), (f"based_on: {error}",)) from error
    return overlay(known, changes, where=str(path))


def _accelerator(facts: Mapping[str, Any], where: str) -> Accelerator:
    kernels = facts.get("kernels")
    if kernels is not None:
        curves = cast("Mapping[str, Any]", facts.get("curves") or {})
        if "name" not in curves:
            facts = {**facts, "curves": _merged(_kernel_facts(str(kernels), where), curves)}
    try:
        return Accelerator.model_validate(facts)
    except ValidationError as error:
        raise HardwareFileError(where, problems(error)) from error


@cache
def _kernel_facts(name: str, where: str) -> Mapping[str, Any]:
    path = _DATA / "kernels" / f"{name}.yaml"
    if not path.is_file():
        known = ", ".join(sorted(file.stem for file in path.parent.glob("*.yaml")))
        raise HardwareFileError(where, (f"kernels: found {name!r}; accepted: {known}",))
    return {key: value for key, value in _read(path).items() if key in Kernels.model_fields}


def _merged(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Deep merge: mappings are merged key by key, anything else is replaced."""
    result = dict(base)
    for key, value in changes.items():
        old = result.get(key)
        if isinstance(old, Mapping) and isinstance(value, Mapping):
            value = _merged(cast("Mapping[str, Any]", old), cast("Mapping[str, Any]", value))
        result[key] = value
    return result


def _read(path: Path) -> Mapping[str, Any]:
    try:
        content = yaml_text.load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise HardwareFileError(str(path), (f"cannot be read: {error.strerror}",)) from error
    except yaml.YAMLError as error:
        raise HardwareFileError(str(path), (f"not YAML: {' '.join(str(error).split())}",)) from error
    if not isinstance(content, dict):
        raise HardwareFileError(str(path), (f"found {type(content).__name__}; accepted: a mapping",))
    return cast("dict[str, Any]", content)


@cache
def _index() -> dict[str, tuple[str, ...]]:
    return {name: tuple(aliases) for name, aliases in _read(_DATA / "index.yaml").items()}


@cache
def _aliases() -> dict[str, str]:
    spellings = {_normalised(name): name for name in _index()}
    return spellings | {_normalised(alias): name for name, others in _index().items() for alias in others}


def _normalised(name: str) -> str:
    words = name.upper().replace("_", " ").replace("-", " ").split()
    return "-".join(word for word in words if word != "NVIDIA")


def _nearest(name: str) -> tuple[str, ...]:
    close = difflib.get_close_matches(_normalised(name), list(_aliases()), n=3, cutoff=0.5)
    return tuple(dict.fromkeys(_aliases()[spelling] for spelling in close))
