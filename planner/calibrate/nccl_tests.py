"""Reads the output of nccl-tests: which collective, among which GPUs, how long at which size.

Format: NVIDIA/nccl-tests, `src/common.cu` and `src/util.cu`: device lines, a table whose header names the
columns, and a verdict. Older versions have no `root` column, or a column `error` in the place of `#wrong`.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from math import isfinite
from pathlib import Path

from costmodel.collectives import wire_bytes
from hardware.accelerator import Collective
from planner.calibrate import MOST_BYTES
from planner.errors import InvalidInput
from planner.yaml_file import read_text

OPERATIONS: dict[str, Collective | str] = {
    "all_reduce": "all_reduce",
    "all_gather": "all_gather",
    "reduce_scatter": "reduce_scatter",
    "alltoall": "all_to_all",
    "sendrecv": "point_to_point",
}
"""Programs of nccl-tests that are read, and what the cost model calls their traffic."""
WHAT = "output of nccl-tests: " + ", ".join(f"{name}_perf" for name in OPERATIONS)
TAGGED = re.compile(r"^\s*(?:\[[\d, ]+\]\s*<std(?:out|err)>:|\d+:)\s?")
"""What mpirun --tag-output and srun --label put before a line."""
PROGRAM = re.compile(r"\b(\w+)_perf\b")
RANK = re.compile(
    r"^#\s+Rank\s+(\d+)\s+(?:Group\s+(\d+)\s+)?Pid\s+\d+\s+on\s+(\S+)\s+device\s+\d+\s+\[[^\]]*\]\s+(.+?)\s*$"
)
HEADER = re.compile(r"^#\s+size\s+.*\btime\b.*\bbusbw\b")
FAILURE = re.compile(r"Test (?:NCCL |CUDA |NVML )?failure|Out of bounds values\s*:\s*\d+\s+FAILED")
MICRO, GIGA = 1e-6, 1e9
DIFFERENT = 0.05
"""Relative difference of size/time and the printed algbw beyond which a row cannot be right."""
PRINTED = 1.0
"""GB/s below which algbw has too few digits to be compared."""


@dataclass(frozen=True, slots=True)
class NcclRun:
    """One table: a collective among `ranks` GPUs on `nodes` nodes."""

    file: str
    line: int
    """Where its header stands."""
    op: str
    ranks: int
    nodes: int
    device: str
    """What the driver calls the GPUs."""
    sent: tuple[float, ...]
    """Bytes a rank sends, V in the curves."""
    seconds: tuple[float, ...]

    @property
    def per_node(self) -> int:
        return self.ranks // self.nodes


@dataclass
class _Block:
    """What has been read of one table."""

    program: str = ""
    ranks: list[tuple[int, int, str, str]] = field(default_factory=list)
    """Rank, group, host, device."""
    header: tuple[str, ...] = ()
    line: int = 0
    rows: list[tuple[float, float]] = field(default_factory=list)
    """Size in bytes, seconds."""


def read_nccl_tests(path: Path) -> list[NcclRun]:
    """Every table of a file. Raises `InvalidInput` with the line of the first thing that is wrong."""
    blocks, here, program = [], _Block(), ""
    for number, raw in enumerate(read_text(path, WHAT, MOST_BYTES).splitlines(), 1):
        line = TAGGED.sub("", raw)
        if FAILURE.search(line):
            raise _wrong(path, number, f"says {line.strip()!r}", "a run without errors")
        if (named := PROGRAM.search(line)) and "concluded" not in line:
            program = named.group(1)
        if line.startswith("# nThread") and here.rows:
            blocks.append(here)
            here = _Block()
        if rank := RANK.match(line):
            here.ranks.append((int(rank.group(1)), int(rank.group(2) or 0), rank.group(3), rank.group(4)))
        elif HEADER.match(line):
            here.header, here.line = tuple(line.strip("# \t").split()), number
            here.program = program
        elif here.header and re.match(r"^\s*\d+\s+\d+\s+[a-z]", line):
            here.rows.append(_row(path, number, line, here.header))
    blocks += [here] if here.rows else []
    if not blocks:
        raise InvalidInput(file=str(path), found="holds no table of sizes and times", accepted=WHAT)
    return [_run(path, block) for block in blocks]


def _wrong(path: Path, number: int, found: str, accepted: str) -> InvalidInput:
    return InvalidInput(file=f"{path}:{number}", found=found, accepted=accepted)


def _row(path: Path, number: int, line: str, header: tuple[str, ...]) -> tuple[float, float]:
    """Size and seconds of one line: the geometric mean of out-of-place and in-place."""
    columns = header[header.index("time") :]
    cells = line.split()
    cells, size = cells[-len(columns) :], float(cells[0])
    if len(line.split()) < len(columns) + 3:
        raise _wrong(path, number, f"has {len(line.split())} columns", f"columns {' '.join(header)}")
    times: list[float] = []
    for at, name in enumerate(columns):
        if name == "#wrong" and cells[at] not in ("N/A", "0"):
            raise _wrong(path, number, f"{cells[at]} wrong values (#wrong)", "a run whose results are right")
        if name == "time":
            times.append(_time(path, number, size, cells[at], cells[at + 1]))
    product = 1.0
    for each in times:
        product *= each
    return size, product ** (1 / len(times))


def _time(path: Path, number: int, size: float, text: str, bandwidth: str) -> float:
    """Seconds from a time in microseconds; size over time must be what the line calls algbw."""
    try:
        seconds, printed = float(text) * MICRO, float(bandwidth)
    except ValueError:
        raise _wrong(path, number, f"time {text!r}, algbw {bandwidth!r}", "numbers") from None
    if not (isfinite(seconds) and seconds > 0):
        raise _wrong(path, number, f"a time of {text} us", "a time above 0")
    if printed >= PRINTED and abs(size / seconds / GIGA / printed - 1) > DIFFERENT:
        found = (
            f"{size:.0f} bytes in {text} us are {size / seconds / GIGA:.4g} GB/s, but algbw is {bandwidth}"
        )
        raise _wrong(path, number, found, "a line as nccl-tests printed it")
    return seconds


def _run(path: Path, block: _Block) -> NcclRun:
    """One table with its GPUs, checked."""
    op = _operation(path, block)
    group = [each for each in block.ranks if each[1] == 0]
    if not group:
        found = "the table has no lines `#  Rank 0 Group 0 Pid ... on HOST device ...` above it"
        raise _wrong(path, block.line, found, "the whole output: GPUs and nodes are read from these lines")
    if repeated := [rank for rank, times in Counter(each[0] for each in group).items() if times > 1]:
        found = f"rank {repeated[0]} is there {Counter(each[0] for each in group)[repeated[0]]} times"
        raise _wrong(path, block.line, found, "one run; nccl-tests built with MPI=1 for several processes")
    devices = {each[3] for each in group}
    if len(devices) > 1:
        found = f"mixes GPUs: {', '.join(sorted(devices))}"
        raise _wrong(path, block.line, found, "GPUs of one kind in a calibration")
    ranks, hosts = len(group), Counter(each[2] for each in group)
    if len(set(hosts.values())) > 1:
        found = f"{ranks} GPUs lie unevenly on nodes: {', '.join(f'{h} {n}' for h, n in hosts.items())}"
        raise _wrong(path, block.line, found, "the same number of GPUs on each node")
    if ranks == 1:
        raise _wrong(path, block.line, "one GPU, which sends nothing", "two GPUs or more")
    points = {size: seconds for size, seconds in block.rows if size > 0}
    sent = [_sent(op, size, ranks) for size in points]
    return NcclRun(
        str(path), block.line, op, ranks, len(hosts), devices.pop(), tuple(sent), tuple(points.values())
    )


def _sent(op: str, size: float, ranks: int) -> float:
    """Bytes a rank sends; nccl-tests prints the larger of the send and the receive buffer as size."""
    if op == "point_to_point":
        return size
    collective: Collective = op  # pyright: ignore[reportAssignmentType]
    return float(wire_bytes(collective, size, ranks))


def _operation(path: Path, block: _Block) -> str:
    """From the output itself, else from the file's name."""
    if block.program in OPERATIONS:
        return OPERATIONS[block.program]
    if block.program:
        raise _wrong(path, block.line, f"{block.program}_perf is not used", WHAT)
    plain = re.sub(r"[^a-z]", "", path.stem.lower())
    for name, op in OPERATIONS.items():
        if name.replace("_", "") in plain:
            return op
    found = "the output does not name its program (older versions do not)"
    accepted = "a file name that does: " + ", ".join(f"{name}.txt" for name in OPERATIONS)
    raise _wrong(path, block.line, found, accepted)
