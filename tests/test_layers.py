"""The packages import in one direction only: hardware <- costmodel <- planner."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
BELOW = {"hardware": set(), "costmodel": {"hardware"}, "planner": {"hardware", "costmodel"}}
LIBRARIES = {"hardware": {"pydantic", "yaml"}, "costmodel": {"numpy", "pydantic", "yaml"}}
TERMINAL = {"typer", "rich"}
EDGES = ("planner/cli/", "planner/report/")


def faults(source: str, path: str) -> list[str]:
    """What a file imports and may not, `path:line: why` each."""
    package = path.split("/")[0]
    found = []
    tree = ast.parse(source)
    inside = {
        id(node)
        for function in ast.walk(tree)
        if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef))
        for node in ast.walk(function)
    }
    typing_only = {
        id(node)
        for block in ast.walk(tree)
        if isinstance(block, ast.If) and ast.unparse(block.test).endswith("TYPE_CHECKING")
        for node in ast.walk(block)
    }
    for node in ast.walk(tree):
        for name in imported(node):
            if why := forbidden(name, package, path, lazy=id(node) in inside or id(node) in typing_only):
                found.append(f"{path}:{node.lineno}: {why}")
    return found


def imported(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name.split(".")[0] for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        return ["(relative)"] if node.level else [(node.module or "").split(".")[0]]
    return []


def forbidden(name: str, package: str, path: str, *, lazy: bool) -> str:
    import sys

    if name in BELOW and name != package and name not in BELOW[package]:
        return f"{package} imports {name}"
    if name == "(relative)":
        return "a relative import"
    if name == "ortools" and not (package == "planner" and lazy):
        return "ortools outside the functions that solve"
    if name in TERMINAL and not path.startswith(EDGES):
        return f"{name} outside the edge"
    known = LIBRARIES.get(package)
    if known is not None and name not in known | BELOW[package] | {package} | set(sys.stdlib_module_names):
        return f"{package} imports {name}"
    return ""


@pytest.mark.parametrize("package", list(BELOW))
def test_no_file_imports_the_wrong_way(package):
    files = sorted((ROOT / package).rglob("*.py"))
    assert files
    paths = [(file, file.relative_to(ROOT).as_posix()) for file in files]
    assert [fault for file, path in paths for fault in faults(file.read_text(encoding="utf-8"), path)] == []


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("hardware/x.py", "from costmodel.run import Run"),
        ("hardware/x.py", "import planner"),
        ("hardware/x.py", "import numpy as np"),
        ("costmodel/x.py", "def f():\n    from planner.problem import Problem"),
        ("costmodel/x.py", "from ortools.sat.python import cp_model"),
        ("costmodel/x.py", "from rich.table import Table"),
        ("planner/x.py", "from ortools.sat.python import cp_model"),
        ("planner/x.py", "def f():\n    import typer"),
        ("planner/x.py", "from . import units"),
    ],
)
def test_an_import_the_wrong_way_is_found(path, source):
    assert len(faults(source, path)) == 1


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("planner/x.py", "def f():\n    from ortools.sat.python import cp_model"),
        ("planner/x.py", "if TYPE_CHECKING:\n    from ortools.sat.python import cp_model"),
        ("planner/cli/x.py", "import typer\nfrom rich.table import Table"),
        ("costmodel/x.py", "import math\nfrom hardware.accelerator import Accelerator\nimport numpy"),
    ],
)
def test_an_import_the_right_way_is_not(path, source):
    assert faults(source, path) == []
