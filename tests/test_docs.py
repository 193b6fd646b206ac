"""The documentation is what the code says it is, and its commands are what people run."""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path

import pytest

from planner.problem import Problem
from planner.solution import read_solution
from scripts.update_readme import BEGIN, END
from scripts.write_docs import BLOCKS, with_block

ROOT = Path(__file__).parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])
README = (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("page", BLOCKS)
def test_generated_blocks_are_up_to_date(page):
    name, content = BLOCKS[page]
    text = (ROOT / page).read_text(encoding="utf-8")
    assert with_block(text, name, content()) == text, "run scripts/write_docs.py"


def test_every_key_of_a_problem_is_described():
    text = (ROOT / "docs" / "problem-file.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| `(\w+)` \| (.*?) \|", text, flags=re.MULTILINE))
    keys = property_names(Problem.model_json_schema())
    assert len(keys) > 60
    assert sorted(key for key in keys if not rows.get(key)) == []


def property_names(schema):
    """Keys of every mapping in a JSON schema, but for those of values that are spelled in one line."""
    if isinstance(schema, list):
        return set().union(*map(property_names, schema))
    if not isinstance(schema, dict):
        return set()
    own = schema.get("properties", {})
    inline = {"min", "max", "cost", "time"}
    nested = (value for key, value in schema.items() if key not in ("examples", "default", "enum"))
    return (set(own) - inline).union(*map(property_names, nested))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_between_pages_lead_somewhere(page):
    text = page.read_text(encoding="utf-8")
    targets = [t for t in re.findall(r"\]\(([^)#]+)[^)]*\)", text) if "://" not in t]
    assert [t for t in targets if not (page.parent / t).exists()] == []


def command(marker):
    (block,) = re.findall(rf"<!-- {marker} -->\n```sh\n(.*?)```", README, flags=re.DOTALL)
    return block


@pytest.mark.parametrize("marker", ["main command", "test command"])
def test_each_command_is_one_line_with_its_environment(marker):
    text = command(marker)
    assert text.count("\n") == 1
    assert text.startswith("python3 -m venv .venv && .venv/bin/pip install ")


def test_the_run_that_the_readme_shows_is_the_kept_solution():
    """As `scripts/update_readme.py` put it there; times of the search may differ, the plan may not."""
    from planner.cli.table import solution_table
    from planner.cli.words import decisions_line, dollars

    shown = README.split(BEGIN)[1].split(END)[0]
    solution = read_solution(ROOT / "solutions" / "70b_3T_60days.yaml")
    plan = solution.plans[0]
    assert f"$ {command('main command').split('.venv/bin/')[-1].strip()}" in shown
    for text in (
        f"{plan.decisions.num_gpus} x {plan.decisions.gpu} in {plan.decisions.nodes} nodes",
        decisions_line(plan.decisions),
        f"{dollars(plan.estimate.dollars)}\n",
        f"{plan.estimate.days:.1f} days",
    ):
        assert text in shown
    assert before_proof(printed(solution_table(solution))) in before_proof(shown)


def printed(table):
    import io

    from rich.console import Console

    screen = Console(file=io.StringIO(), width=100, highlight=False, emoji=False, markup=False)
    screen.print(table)
    return "\n".join(line.rstrip() for line in screen.file.getvalue().splitlines())


def before_proof(text):
    """All but what the search took, wherever lines break."""
    return " ".join(text.split("\nProof\n")[0].split())


def test_ci_is_a_script_that_can_be_run_and_runs_the_readmes_test_command():
    script = ROOT / ".ci" / "run"
    text = script.read_text(encoding="utf-8")
    assert os.stat(script).st_mode & stat.S_IXUSR
    assert text.startswith("#!/usr/bin/env bash\n")
    assert "set -euo pipefail" in text
    assert "<!-- test command -->" in text
