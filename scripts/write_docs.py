"""Writes the parts of the documentation that the code knows best: keys, terms, files.

    python scripts/write_docs.py

A block lies between `<!-- NAME: begin (scripts/write_docs.py) -->` and `<!-- NAME: end -->`; a test checks that
each is what this script would write.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

PACKAGES = ("hardware", "costmodel", "planner")
PLUMBING = {
    "__init__",
    "architecture",
    "cards",
    "records",
    "run",
    "stack",
    "stack_parallel",
    "stack_parts",
    "shape",
    "passes",
    "figures",
    "units",
}
"""Files of the cost model without a term of their own."""
APART = {"closed_form", "huggingface"}
"""Packages of the cost model that predictions do not pass through."""


def problem_keys() -> str:
    """A table for each mapping of the problem file."""
    from costmodel.architecture import Architecture, LatentAttention, MixtureOfExperts
    from planner.fine_tune import FineTune
    from planner.mixing import Mixing
    from planner.narrowing import Search
    from planner.objective import Limits
    from planner.phases import Phase
    from planner.pool import Pool
    from planner.power import Power
    from planner.pricing import Pricing
    from planner.problem import Problem
    from planner.reliability import Checkpoints, Evaluation, Parts, Reliability
    from planner.storage import Keep, Servers, Storage
    from planner.training import Training

    mappings = {
        "": Problem,
        "training": Training,
        "hardware": Pool,
        "limits": Limits,
        "search": Search,
        "reliability": Reliability,
        "reliability.parts": Parts,
        "reliability.checkpoint": Checkpoints,
        "reliability.evaluation": Evaluation,
        "storage": Storage,
        "storage.servers": Servers,
        "storage.keep": Keep,
        "pricing": Pricing,
        "power": Power,
        "fine_tune": FineTune,
        "phases": Phase,
        "mixing": Mixing,
        "model": Architecture,
        "model.moe": MixtureOfExperts,
        "model.mla": LatentAttention,
    }
    return "\n".join(key_table(where, mapping) for where, mapping in mappings.items())


CARD_KEYS = {
    "base": "A card (`planner catalogue models`) or a path to a config.json; the other keys then say what differs.",
    "nominal_parameters": "The P that was agreed on for `assume_mfu`, such as 70B; the active parameters unless given.",
}
"""Keys under `model` that are no shapes."""


def key_table(where: str, mapping: Any) -> str:
    """Keys of one mapping: name, what it is, an example, and what holds if it is left out."""
    title = f"`{where}`" if where else "The file"
    from hardware.documented import attribute_docstrings

    described = attribute_docstrings(mapping)
    schema = mapping.model_json_schema()["properties"]
    lines = [f"### {title}", "", "| key | meaning | examples | default |", "|---|---|---|---|"]
    if where == "model":
        lines += [f"| `{name}` | {meaning} |  | - |" for name, meaning in CARD_KEYS.items()]
    for name, field in mapping.model_fields.items():
        shape = schema.get(name, {})
        meaning = described.get(name, "")
        default = "required" if field.is_required() else shown_default(shape)
        lines.append(f"| `{name}` | {cell(meaning)} | {cell(examples(shape))} | {default} |")
    return "\n".join(lines) + "\n"


def shown_default(shape: dict[str, Any]) -> str:
    value = shape.get("default")
    if value is None or value == "" or isinstance(value, dict):
        return "-"
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def examples(shape: dict[str, Any]) -> str:
    """Examples and accepted words of a key, or the kind of number."""
    each = [shape, *shape.get("anyOf", [])]
    given = [example for one in each for example in one.get("examples", [])]
    given += [word for one in each for word in one.get("enum", [])]
    given += [one["const"] for one in each if "const" in one]
    return ", ".join(f"`{yaml_text(example)}`" for example in given)


def yaml_text(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {yaml_text(each)}" for key, each in value.items()) + "}"
    return f"{value:g}" if isinstance(value, float) else str(value)


def cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def model_terms() -> str:
    """A paragraph for each file of the cost model that holds terms, formulas as in the docstrings."""
    parts = []
    for path in sorted((ROOT / "costmodel").rglob("*.py")):
        if path.stem in PLUMBING or path.parent.name in APART:
            continue
        terms = "".join(f"- `{name}`: {text}\n" for name, text in documented_functions(path))
        if terms:
            name = path.relative_to(ROOT).as_posix()
            parts.append(f"### [{name}](../{name})\n\n{paragraph(docstring(path))}\n\n{terms}")
    return "\n".join(parts)


def docstring(path: Path) -> str:
    return ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""


def documented_functions(path: Path) -> Iterator[tuple[str, str]]:
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
            text = ast.get_docstring(node)
            if text:
                yield node.name, paragraph(text)


def paragraph(text: str) -> str:
    """Text on one line, with what Markdown would take for emphasis or tags left as it is written."""
    return (
        re.sub(r"(?<!`)([*_<>])(?!`)", r"\\\1", " ".join(text.split())) if "`" not in text else quoted(text)
    )


def quoted(text: str) -> str:
    pieces = re.split(r"(`[^`]*`)", " ".join(text.split()))
    return "".join(p if p.startswith("`") else re.sub(r"([*_<>])", r"\\\1", p) for p in pieces)


def tree() -> str:
    """Each file of the packages with the first paragraph of its docstring; sub-packages in a line each."""
    parts = []
    for package in PACKAGES:
        files = sorted(path for path in (ROOT / package).glob("*.py") if path.name != "__init__.py")
        lines = [f"- `{path.name}`: {first_paragraph(path)}" for path in files]
        for inside in sorted((ROOT / package).glob("*/__init__.py")):
            names = ", ".join(sorted(path.stem for path in inside.parent.glob("*.py") if path != inside))
            lines.append(f"- `{inside.parent.name}/` ({names}): {first_paragraph(inside)}")
        parts.append("\n".join([f"**{package}/**", "", *lines]) + "\n")
    return "\n".join(parts)


def first_paragraph(path: Path) -> str:
    return paragraph(docstring(path).split("\n\n")[0])


BLOCKS = {
    "docs/problem-file.md": ("keys", problem_keys),
    "docs/model.md": ("terms", model_terms),
    "ARCHITECTURE.md": ("tree", tree),
}


def with_block(text: str, name: str, content: str) -> str:
    """The page with the block of that name replaced."""
    begin, end = f"<!-- {name}: begin (scripts/write_docs.py) -->\n", f"<!-- {name}: end -->"
    before, rest = text.split(begin)
    return before + begin + "\n" + content + "\n" + end + rest.split(end, 1)[1]


def main() -> None:
    for page, (name, content) in BLOCKS.items():
        path = ROOT / page
        path.write_text(with_block(path.read_text(encoding="utf-8"), name, content()), encoding="utf-8")


if __name__ == "__main__":
    main()
