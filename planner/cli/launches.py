"""Launches as people read them: the run as it was read, what it does, what is wrong, what is better."""

from __future__ import annotations

from typing import Any

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from planner.cli.grid import INDENT
from planner.cli.words import decisions_line, seconds, share
from planner.solution import Decisions

LEVEL_WORDS = {"error": "error", "warning": "warning", "note": "note"}
SIZES = ("tp", "cp", "pp", "vpp", "ep", "etp")
NEEDED = ("num_gpus", "gpu", "global_batch", "seq_len")


def launches_table(results: list[dict[str, Any]]) -> RenderableType:
    """Every launch, one below the other."""
    return Group(*(part for result in results for part in _launch(result)))


def _launch(result: dict[str, Any]) -> list[RenderableType]:
    parts: list[RenderableType] = [Text(f"{result['id']}: {layout_line(result['run'])}", style="bold")]
    parts.append(Padding(_refused(result) if "error" in result else _figures(result), INDENT))
    if result["findings"]:
        parts += [Text("\nFindings"), Padding(_findings(result["findings"]), INDENT)]
    if "better" in result:
        parts += [Text("\nBetter plan on the same GPUs"), Padding(_better(result), INDENT)]
    if result["warnings"]:
        parts += [Text("\nAssumed"), Padding(Text("\n".join(result["warnings"])), INDENT)]
    return [*parts, Text("")]


def layout_line(run: dict[str, Any]) -> str:
    """64 x H100, TP8 PP4 VPP4, micro-batch 1, batch 128 x 8192 tokens, bf16."""
    said = {key: "?" if run.get(key) is None else run[key] for key in NEEDED}
    sizes = [
        f"{name.upper()}{run[name]}" for name in SIZES if run.get(name) not in (None, 1) and name != "etp"
    ]
    words = [f"{said['num_gpus']} x {said['gpu']}", " ".join(sizes) or "no model parallelism"]
    if run.get("micro_batch"):
        words.append(f"micro-batch {run['micro_batch']}")
    words.append(f"batch {said['global_batch']} x {said['seq_len']} tokens")
    if run.get("zero_stage") is not None:
        words.append(f"ZeRO {run['zero_stage']}")
    words.append(f"recompute {run.get('recompute') or 'none'}")
    return ", ".join([*words, str(run.get("precision") or "bf16")])


def _refused(result: dict[str, Any]) -> Text:
    return Text(f"not estimated: {result['error']}")


def _figures(result: dict[str, Any]) -> Table:
    low, high = result["interval_80"]
    memory = result["memory_gib"]
    parts = sorted(((size, name) for name, size in memory.items() if name != "total"), reverse=True)
    largest = ", ".join(f"{name} {size:.1f}" for size, name in parts if size >= 0.05)
    where = sorted(((part, name) for name, part in result["breakdown_s"].items()), reverse=True)
    step = result["step_time_s"]
    busy = ", ".join(f"{name} {share(part / step)}" for part, name in where if part / step >= 0.01)
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_row(
        "step", f"{seconds(step)}, 80 % between {seconds(low)} and {seconds(high)} ({result['evidence']})"
    )
    table.add_row(
        "speed",
        f"{result['tokens_per_s_per_gpu']:,.0f} tokens/s/GPU, "
        f"{result['model_tflops_per_gpu']:.0f} TFLOP/s/GPU, "
        f"MFU {share(result['mfu'])}, HFU {share(result['hfu'])}",
    )
    fits = "fits" if result["fits"] else "DOES NOT FIT"
    table.add_row("memory", f"{memory['total']:.1f} GiB on the fullest GPU: {fits} ({largest})")
    table.add_row("time", busy)
    return table


def _findings(findings: list[dict[str, Any]]) -> Table:
    table = Table(box=None, show_header=False, pad_edge=False)
    for finding in findings:
        text = finding["text"] + (f"\n-> {finding['fix']}" if finding["fix"] else "")
        table.add_row(LEVEL_WORDS[finding["level"]], text)
    return table


def _better(result: dict[str, Any]) -> RenderableType:
    found = result["better"]
    if "decisions" not in found:
        return Text(f"{found['status']}: {found['text']}")
    decisions = Decisions.model_validate(found["decisions"])
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_row("gain", found["text"])
    table.add_row("plan", decisions_line(decisions))
    batch = f"micro-batch {decisions.micro_batch} x {decisions.num_microbatches} x {decisions.dp} replicas"
    table.add_row("batch", batch)
    step = f"{seconds(found['step_time_s'])}, MFU {share(found['mfu'])}, {found['memory_gib']:.1f} GiB"
    table.add_row("step", f"{step} ({'proved' if found['status'] == 'optimal' else found['status']})")
    if found.get("settings"):
        with_settings = seconds(found["today_with_settings_s"])
        table.add_row(
            "settings", f"{'; '.join(found['settings'])}: with them today's layout takes {with_settings}"
        )
    return table
