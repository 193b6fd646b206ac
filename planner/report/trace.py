"""The timeline of a step as a trace: JSON in Chrome's trace event format, which Perfetto and Chrome open."""

from __future__ import annotations

import json
from typing import Any

from planner.report.stages import Ranks
from planner.report.timeline import ends

MICROSECONDS = 1e6
TAIL = {
    "p2p": "pipeline transfers",
    "data_parallel": "gradient reduction",
    "optimizer": "optimizer",
    "fixed": "per-step overhead",
    "stragglers": "stragglers",
}


def trace(ranks: Ranks, name: str) -> str:
    """A process for the pipeline, a thread a stage, a complete event a pass; times in microseconds.

    After the pipeline comes what the step takes beside it, as the cost model adds it up.
    """
    passes = ranks.timeline()
    events = [_named("process_name", 0, f"{name}: one step")]
    events += [_named("thread_name", rank, f"stage {name}") for rank, name in enumerate(ranks.names)]
    for each in passes:
        which = f"{each.kind} {each.microbatch}" + (
            f" chunk {each.chunk}" if ranks.forward.shape[1] > 1 else ""
        )
        more = {"micro-batch": each.microbatch, "chunk": each.chunk}
        events.append(_complete(which, each.kind, each.rank, each.start, each.end - each.start, more))
    for rank in range(len(ranks.names)):
        start = ends(passes)
        for part, seconds in ranks.tail.items():
            if seconds > 0:
                events.append(_complete(TAIL[part], part, rank, start, seconds, {}))
                start += seconds
    return json.dumps({"displayTimeUnit": "ms", "traceEvents": events}) + "\n"


def _named(kind: str, thread: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": kind, "pid": 0, "tid": thread, "args": {"name": name}}


def _complete(
    name: str, category: str, thread: int, start: float, seconds: float, more: dict[str, Any]
) -> dict[str, Any]:
    times = {"ts": round(start * MICROSECONDS, 3), "dur": round(seconds * MICROSECONDS, 3)}
    return {"ph": "X", "name": name, "cat": category, "pid": 0, "tid": thread, **times, "args": more}
