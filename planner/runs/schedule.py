"""What pipeline schedules ask of a layout."""

from __future__ import annotations

from planner.errors import Refused


def check_schedule(schedule: str | None, pp: int, vpp: int, num_microbatches: int) -> None:
    """Refuses layouts that DualPipe and DualPipeV cannot run, as github.com/deepseek-ai/DualPipe does.

    DualPipe: an even number of ranks with a stage for each direction, as many micro-batches from either end;
    DualPipeV: two stages a rank. Both fill the pipeline with two micro-batches a rank or more.
    """
    if schedule not in ("dualpipe", "dualpipev"):
        return
    both = schedule == "dualpipe"
    if pp < 2 or (both and pp % 2):
        accepted = "an even number of pipeline ranks" if both else "two pipeline ranks or more"
        raise Refused(f"pp {pp} with schedule {schedule}", accepted, where=("pp",))
    if vpp != (1 if both else 2):
        accepted = (
            "1: a rank holds two stages already, one for each direction"
            if both
            else "2: the two arms of the V"
        )
        raise Refused(f"vpp {vpp} with schedule {schedule}", accepted, where=("vpp",))
    if num_microbatches < 2 * pp or (both and num_microbatches % 2):
        even = "an even number, " if both else ""
        found = f"{num_microbatches} micro-batches on {pp} pipeline ranks with schedule {schedule}"
        raise Refused(
            found, f"{even}{2 * pp} or more (global_batch / (dp*micro_batch))", where=("global_batch",)
        )
