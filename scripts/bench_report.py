"""How long `planner report` takes and how large its page is, each in a process of its own.

    python scripts/bench_report.py [SOLUTION...]

Of every example problem: the solution that is kept, and one that is solved now, plainly, without `--explore`;
or of the solution files that are given. The chart library is bundled once for all reports (the first line);
limits are 3 s of a process, start included, and 3 MB. Exits 1 beyond them. Besides the clock, which also counts
what other work had the cores for, there is the CPU.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage
from time import perf_counter

ROOT = Path(__file__).parent.parent
SECONDS, BYTES = 3.0, 3_000_000
RUNS = 3


def planner(*arguments: str) -> tuple[float, float, str]:
    """Seconds by the clock, seconds of CPU and stdout of a run."""
    before, start = getrusage(RUSAGE_CHILDREN), perf_counter()
    command = [sys.executable, "-c", "from planner.cli import main; main()", *arguments]
    done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT)
    after = getrusage(RUSAGE_CHILDREN)
    return (
        perf_counter() - start,
        after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime,
        done.stdout,
    )


def solutions(folder: Path) -> Iterator[tuple[str, Path]]:
    """The examples' solutions by name: those that are kept, and those of today."""
    for problem in sorted((ROOT / "problems").glob("*.yaml")):
        kept, path = ROOT / "solutions" / problem.name, folder / f"{problem.stem}.json"
        if kept.exists():
            yield f"{problem.stem}, kept", kept
        path.write_text(planner("solve", str(problem), "--format", "json", "--quiet")[2])
        yield f"{problem.stem}, solved now", path


def complete(page: str) -> str:
    """Whether the page says that the time ran out."""
    return "cut short" if "the time ran out" in page or "ran out of time" in page else "all of it"


def measured(name: str, path: Path, page: Path) -> bool:
    """Prints a line on a report; whether it is within the limits."""
    runs = [planner("report", str(path), "-o", str(page), "--quiet")[:2] for _ in range(RUNS)]
    clock, cpu = min(runs)
    size, text = page.stat().st_size, page.read_text(encoding="utf-8")
    within = clock <= SECONDS and size <= BYTES
    told, verdict = text.partition('id="planner-data"')[0], "pass" if within else "fail"
    print(f"{name:38}{clock:9.2f}{cpu:9.2f}{size:12,}  {complete(told):10} {verdict}", flush=True)
    return within


def main(given: list[str]) -> int:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        page, within, first = folder / "report.html", True, True
        named = [(Path(path).stem, Path(path).resolve()) for path in given]
        for label, path in named or solutions(folder):
            if first:
                took = planner("report", str(path), "-o", str(page), "--quiet")[0]
                print(f"first report, which may bundle the chart library: {took:.1f} s")
                print(f"{'solution':38}{'seconds':>9}{'of CPU':>9}{'bytes':>12}  (best of {RUNS})")
            first = False
            within &= measured(label, path, page)
    print("within" if within else "beyond", f"{SECONDS:g} s and {BYTES:,} bytes")
    return 0 if within else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
