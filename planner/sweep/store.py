"""The folder of a sweep: JSON lines that survive a kill, and the manifest that says what they are of."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Any

from planner.errors import InvalidInput
from planner.files import usable_folder, write_whole

Line = dict[str, Any]
MANIFEST = "sweep.json"
RETRIED = ("failed", "out_of_time")
"""Statuses that may be another one the next time: such what-ifs are answered again."""
TAIL = 1 << 16
"""Bytes from the end in which the last line break is looked for at once."""


class Store:
    """The lines of one sweep, or of one shard of it, in a folder. To be used in a `with` statement."""

    def __init__(self, folder: Path, shard: tuple[int, int] | None = None) -> None:
        self.folder = usable_folder(folder)
        self.path = folder / ("results.jsonl" if shard is None else "results-{}-of-{}.jsonl".format(*shard))
        self._file: int | None = None

    def agree(self, manifest: dict[str, Any]) -> None:
        """Writes what lines are of. Raises `InvalidInput` where the folder holds those of something else."""
        path = self.folder / MANIFEST
        try:
            known = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            write_whole(path, json.dumps(manifest, indent=2) + "\n")
            return
        except (OSError, ValueError):
            known = None
        differs = [
            name for name in manifest if not isinstance(known, dict) or known.get(name) != manifest[name]
        ]
        if differs:
            found = f"holds the sweep of another {' and '.join(name.replace('_', ' ') for name in differs)}"
            accepted = "an empty folder, or that of the same sweep, which is then continued"
            raise InvalidInput(file=str(self.folder), found=found, accepted=accepted)

    def lines(self) -> dict[str, Line]:
        """Whole lines of all files of the folder by the id of their what-if, whoever wrote them."""
        found: dict[str, Line] = {}
        for path in sorted(self.folder.glob("results*.jsonl")):
            for line in read_lines(path):
                known = found.get(line["id"])
                if known is None or known["status"] in RETRIED:
                    found[line["id"]] = line
        return found

    def __enter__(self) -> Store:
        """Opens the own file to append to; what a kill left of its last line goes."""
        try:
            self._file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
            os.ftruncate(self._file, end_of_last_line(self._file))
        except OSError as error:
            accepted = "a folder you may write to"
            raise InvalidInput(
                file=str(self.path), found=f"cannot be written: {error.strerror}", accepted=accepted
            ) from None
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def append(self, lines: Iterable[Line]) -> None:
        """Adds lines; each is in the file as a whole once this returns."""
        assert self._file is not None, "a store is written to in a `with` statement"
        data = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines).encode()
        while data:
            data = data[os.write(self._file, data) :]


def end_of_last_line(file: int) -> int:
    """Where the last line that was written to its end ends."""
    end = os.fstat(file).st_size
    while end:
        start = max(end - TAIL, 0)
        last = os.pread(file, end - start, start).rfind(b"\n")
        if last >= 0:
            return start + last + 1
        end = start
    return 0


def read_lines(path: Path) -> Iterable[Line]:
    """Lines of a file of results that were written to their end, line break included."""
    with path.open("rb") as file:
        for text in file:
            try:
                line = json.loads(text if text.endswith(b"\n") else b"")
            except ValueError:
                continue
            if isinstance(line, dict) and isinstance(line.get("id"), str) and "status" in line:
                yield line
