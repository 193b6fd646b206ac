"""Problems that are each solved in a process of their own: what they take and say, printed and put into a page."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from scripts.bench_tables import PAGE, machine

Found = dict[str, Any]
"""What a case takes and says."""


@dataclass(frozen=True, slots=True)
class Case:
    """A problem, what is laid over it, and the seconds that it is given."""

    name: str
    path: str
    seconds: float
    changes: dict[str, Any] = field(default_factory=dict[str, Any])


def each_alone(
    script: str,
    doc: str | None,
    cases: Sequence[Case],
    measured: Callable[[Case], Found],
    line: Callable[[Case, Found], str],
    table: Callable[[list[tuple[Case, Found]]], str],
    block: tuple[str, str],
) -> None:
    """The command line of such a script; `--write` puts the table between the two marks of `block`."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--write", action="store_true", help="put the table into docs/search.md")
    parser.add_argument(
        "--only", nargs="*", default=[], metavar="WORD", help="cases with a word in their name"
    )
    parser.add_argument("--case", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.case is not None:
        print(json.dumps(measured(cases[options.case])))
        return
    found: list[tuple[Case, Found]] = []
    for index, case in enumerate(cases):
        if options.only and not any(word in case.name for word in options.only):
            continue
        command = [sys.executable, script, "--case", str(index)]
        of = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        found.append((case, of))
        print(f"{line(case, of)}\n       {of['said']}", flush=True)
    if options.write:
        begin, end = block
        before, rest = PAGE.read_text(encoding="utf-8").split(begin)
        after = rest.split(end)[1]
        text = f"{before}{begin}\n\n{machine()}\n\n{table(found)}\n\n{end}{after}"
        PAGE.write_text(text, encoding="utf-8")
