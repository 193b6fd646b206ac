"""How long `planner report` takes and how large its page is, each in a process of its own.

    python scripts/bench_report.py [SOLUTION...]

Solves the example problems unless solution files are given, the largest with `--explore`. The chart library is
bundled once for all reports (the first line); limits are 3 s of a process, start included, and 3 MB. Exits 1
beyond them.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage
from time import perf_counter

ROOT = Path(__file__).parent.parent
EXAMPLES = (
    "70b_3T_60days",
    "deepseek_v2_8T_1024h800",
    "handbook_ten_step",
    "llama7b_2T_256h800",
    "moe_1.8T_15T",
)
EXPLORED = {"moe_1.8T_15T"}
"""Looking for what the page shows beside the answer takes a quarter of a minute: once, when it is solved."""
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


def main(given: list[str]) -> int:
    with tempfile.TemporaryDirectory() as folder:
        solutions = [Path(path).resolve() for path in given]
        for name in () if given else EXAMPLES:
            path = Path(folder) / f"{name}.json"
            more = ["--explore"] if name in EXPLORED else []
            command = ["solve", f"problems/{name}.yaml", "--format", "json", "--quiet", *more]
            path.write_text(planner(*command)[2])
            solutions.append(path)
        page, within = Path(folder) / "report.html", True
        first = planner("report", str(solutions[0]), "-o", str(page), "--quiet")[0]
        print(f"first report, which may bundle the chart library: {first:.1f} s")
        print(f"{'solution':32}{'seconds':>9}{'of CPU':>9}{'bytes':>12}   (best of {RUNS})")
        for path in solutions:
            runs = [planner("report", str(path), "-o", str(page), "--quiet")[:2] for _ in range(RUNS)]
            clock, cpu = min(runs)
            size = page.stat().st_size
            within &= clock <= SECONDS and size <= BYTES
            print(f"{path.stem:32}{clock:9.2f}{cpu:9.2f}{size:12,}")
    print("within" if within else "beyond", f"{SECONDS:g} s and {BYTES:,} bytes")
    return 0 if within else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
