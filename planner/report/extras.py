"""The libraries that draw: optional, imported when a report is written."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from planner.errors import InvalidInput

PACKAGES = {"altair": "altair", "vl_convert": "vl-convert-python"}


def extra(module: str) -> Any:
    """A module of the `report` extra. Raises `InvalidInput` where it is not installed."""
    try:
        return import_module(module)
    except ImportError:
        raise InvalidInput(
            file="planner report",
            found=f"needs {PACKAGES[module]}, which is not installed",
            suggestion="pip install 'planner[report]'",
        ) from None
