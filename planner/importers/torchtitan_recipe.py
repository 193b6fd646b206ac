"""Python recipes of torchtitan (from 0.3): functions that return the configuration of a run."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

from planner.errors import InvalidInput
from planner.importers.launch import Given, Launch
from planner.importers.torchtitan import Source, launch_of
from planner.importers.torchtitan_sections import Sections
from planner.yaml_file import read_text

ACCEPTED = "a torchtitan recipe: a function that returns Trainer.Config(model_spec=..., training=...)"
SECTIONS = {"TrainingConfig": "training", "ParallelismConfig": "parallelism", "CompileConfig": "compile"}
POLICIES: dict[str, dict[str, str]] = {
    "FullAC": {"mode": "full"},
    "SelectiveAC": {"mode": "selective", "selective_ac_option": "op"},
}
LOW_PRECISION = ("Float8", "MXFP8", "MXLinear", "NVFP4")


def read(path: Path, given: Given, name: str | None = None) -> list[Launch]:
    """The run of every function that returns a Trainer.Config, or of the one named. Raises InvalidInput."""
    text = read_text(path, ACCEPTED)
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError) as error:
        line = getattr(error, "lineno", None) or 1
        raise InvalidInput(file=f"{path}:{line}", found="is not valid Python", accepted=ACCEPTED) from None
    found = [
        (node.name, call)
        for node in tree.body
        if isinstance(node, ast.FunctionDef) and name in (None, node.name)
        for call in ast.walk(node)
        if isinstance(call, ast.Call) and {"model_spec", "training"} <= {each.arg for each in call.keywords}
    ]
    if not found:
        what = "holds no torchtitan recipe" if name is None else f"has no recipe {name!r}"
        raise InvalidInput(file=str(path), found=what, accepted=ACCEPTED)
    return [_launch(path, text, tree, function, call, given, len(found)) for function, call in found]


def _launch(
    path: Path, text: str, tree: ast.Module, function: str, call: ast.Call, given: Given, count: int
) -> Launch:
    source = Source(path.stem if count == 1 else f"{path.stem}-{function}", text, tree)
    body = next(node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == function)
    sections = sections_of(str(path), tree, body, call)
    return launch_of(sections, source, given)


def sections_of(file: str, tree: ast.Module, body: ast.FunctionDef, call: ast.Call) -> Sections:
    """A recipe as the TOML of an earlier release would have it. Raises InvalidInput."""
    written: dict[str, dict[str, Any]] = {"activation_checkpoint": POLICIES["SelectiveAC"].copy()}
    for each in (node for node in ast.walk(body) if isinstance(node, ast.Call)):
        if (section := SECTIONS.get(_name(each.func))) is not None:
            written[section] = {str(k.arg): _literal(file, k) for k in each.keywords}
        elif _name(each.func) == "model_registry":
            written["model"] = registry_of(file, tree, each)
    for keyword in call.keywords:
        if keyword.arg == "activation_checkpoint":
            written["activation_checkpoint"] = policy_of(file, keyword)
    if any(isinstance(node, ast.Name) and node.id.startswith(LOW_PRECISION) for node in ast.walk(body)):
        accepted = "recipes in BF16, or the TOML of torchtitan 0.2.2"
        raise InvalidInput(
            file=file, found="quantises layers, which is not read from Python", accepted=accepted
        )
    asynchronous = written.get("compile", {}).get("enable_async_tensor_parallel", False)
    written.setdefault("parallelism", {}).setdefault("enable_async_tensor_parallel", asynchronous)
    return in_sequences(Sections(file, written))


def _name(function: ast.expr) -> str:
    """The last name of what is called: of `llama3.model_registry` that behind the dot."""
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def _literal(file: str, keyword: ast.keyword) -> Any:
    try:
        return ast.literal_eval(keyword.value)
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        place = f"{file}:{keyword.value.lineno}"
        found = f"{keyword.arg} is computed when the recipe runs"
        raise InvalidInput(file=place, found=found, accepted="a value that is written out") from None


def registry_of(file: str, tree: ast.Module, call: ast.Call) -> dict[str, str]:
    """`llama3.model_registry("8B")`, or model_registry imported from torchtitan.models.llama3."""
    values = [*call.args, *(each.value for each in call.keywords if each.arg == "flavor")]
    flavor = values[0].value if values and isinstance(values[0], ast.Constant) else ""
    if isinstance(call.func, ast.Attribute) and isinstance(call.func.value, ast.Name):
        return {"name": call.func.value.id, "flavor": str(flavor)}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and any(each.name == "model_registry" for each in node.names):
            return {"name": (node.module or "").rsplit(".", 1)[-1], "flavor": str(flavor)}
    return {"name": Path(file).parent.name, "flavor": str(flavor)}


def policy_of(file: str, keyword: ast.keyword) -> dict[str, str]:
    """None, FullAC or SelectiveAC. Raises InvalidInput."""
    if isinstance(keyword.value, ast.Constant) and keyword.value.value is None:
        return {"mode": "none"}
    names = {node.id for node in ast.walk(keyword.value) if isinstance(node, ast.Name)}
    for name, policy in POLICIES.items():
        if name in names:
            return policy.copy()
    place = f"{file}:{keyword.value.lineno}"
    raise InvalidInput(
        file=place, found="another activation_checkpoint", accepted=f"None, {', '.join(POLICIES)}"
    )


def in_sequences(sections: Sections) -> Sections:
    """Batches counted in tokens (main of 2026) in sequences: local batch, micro-batch, global batch.

    Raises InvalidInput.
    """
    training, parallelism = (dict(sections.sections.get(name, {})) for name in ("training", "parallelism"))
    length = sections.whole("training", "max_context_length") or sections.whole("training", "seq_len")
    each = sections.whole("training", "num_tokens_per_microbatch_per_dp_rank")
    total = sections.whole("training", "num_tokens_per_train_step")
    if length is None:
        return sections
    training["seq_len"] = length
    if each:
        number = sections.whole("parallelism", "num_pp_microbatches", 1) or 1
        parallelism["pipeline_parallel_microbatch_size"] = max(1, each // length)
        training["local_batch_size"] = max(1, each // length) * number
    if total:
        training["global_batch_size"] = total // length
    return Sections(sections.file, sections.sections | {"training": training, "parallelism": parallelism})
