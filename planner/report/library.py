"""Vega, Vega-Lite and Vega-Embed as one script: bundled once, kept for the next report."""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

from planner.errors import InvalidInput
from planner.files import write_whole
from planner.report.extras import extra

SNIPPET = "window.vegaEmbed = vegaEmbed;"


def library(progress: Callable[[str], None] = lambda text: None) -> str:
    """The script. Bundling takes seconds, so it is kept in the user's cache folder, by version."""
    convert, altair = extra("vl_convert"), extra("altair")
    major = ".".join(altair.SCHEMA_VERSION.lstrip("v").split(".")[:2])
    kept = cache_folder() / f"vega-lite-{major}-{version('vl-convert-python')}.js"
    try:
        return kept.read_text(encoding="utf-8")
    except OSError:
        progress("bundling the chart library, once")
    script = convert.javascript_bundle(SNIPPET, major).replace("</script", r"<\/script")
    try:
        kept.parent.mkdir(parents=True, exist_ok=True)
        write_whole(kept, script)
    except (OSError, InvalidInput):
        pass  # without a folder to keep it in, the next report bundles it again
    return script


def cache_folder() -> Path:
    """Where the user's caches are: `$XDG_CACHE_HOME` or `~/.cache`."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "planner"
