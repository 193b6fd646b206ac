"""Runs the main job as a reader would and puts what it prints into the README.

python scripts/update_readme.py
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
BEGIN, END = "<!-- run: begin (scripts/update_readme.py) -->\n", "<!-- run: end -->"
COMMAND = ["planner", "solve", "problems/70b_3T_60days.yaml"]
COLUMNS = 100


def printed() -> str:
    """Stdout of the main job, this many columns wide."""
    code = "from planner.cli import main; main()"
    run = subprocess.run(
        [sys.executable, "-c", code, *COMMAND[1:]],
        cwd=ROOT,
        env=os.environ | {"COLUMNS": str(COLUMNS)},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return run.stdout


def block(output: str) -> str:
    return f"```console\n$ {' '.join(COMMAND)}\n{output.rstrip()}\n```\n"


def with_block(readme: str, output: str) -> str:
    before, rest = readme.split(BEGIN)
    return before + BEGIN + block(output) + END + rest.split(END, 1)[1]


def main() -> None:
    path = ROOT / "README.md"
    path.write_text(with_block(path.read_text(encoding="utf-8"), printed()), encoding="utf-8")


if __name__ == "__main__":
    main()
