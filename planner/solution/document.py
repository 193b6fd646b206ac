"""The solution as a document: read from a file, written to one."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import JsonValue

from planner.document import Document, Report
from planner.solution.plan import PhasedRun, Plan, RunnerUp, Sure
from planner.solution.proof import Conflict, MixingVerdict, Proof

SCHEMA_VERSION = "1"

Status = Literal["optimal", "feasible", "infeasible"]


class Provenance(Report):
    """What the answer depends on."""

    planner: str
    """Version."""
    problem_hash: str
    catalogue: str = ""
    """Hash of the hardware facts and software profiles."""
    files: dict[str, str] = {}
    """SHA-256 of the files that the problem names (a model's config.json)."""
    versions: dict[str, str] = {}
    """Of the libraries that computed it."""


class End(Report):
    """What is chosen at one end of a change."""

    to: str
    """The value there."""
    days: float | None
    """None where nothing is within the limits."""
    dollars: float | None
    plan: str
    """In words."""


class Swing(Report):
    """One quantity, 10 % less and 10 % more."""

    name: str
    low: End
    high: End
    how: Literal["chosen again", "solved again"]
    """Among all plans that matter, or, where what a plan takes is another, among all there are."""


class Explored(Report):
    """What other limits, prices and hardware would choose: what `planner report` else has to look for."""

    plans: tuple[Plan, ...]
    """Those that no other of their pool beats in both time and money, beyond the limits as well."""
    complete: bool
    """Nothing else could be chosen."""
    swings: tuple[Swing, ...]


class Solution(Document):
    """The answer to a problem."""

    schema_version: Literal["1"] = SCHEMA_VERSION
    status: Status
    problem: dict[str, JsonValue]
    """The problem in the spelling of its file; reading it gives the same problem."""
    provenance: Provenance
    plans: tuple[Plan, ...] = ()
    """Best first. Of a run in phases: the plan of its longest phase. After a mixed plan that is best: the
    best one on a single pool."""
    run: PhasedRun | None = None
    """Where the problem has phases: all of them together."""
    runner_ups: tuple[RunnerUp, ...] = ()
    proof: Proof
    conflict: Conflict | None = None
    sure: Sure | None = None
    """Where the problem asks for a confidence."""
    mixing: MixingVerdict | None = None
    """Where the problem lets plans use two pools."""
    explored: Explored | None = None
    """Where `planner solve --explore` asked for it."""
    notes: tuple[str, ...] = ()
    """Assumptions and warnings, a sentence each."""

    @classmethod
    def from_text(cls, text: str) -> Solution:
        """Reads what `to_json` or `to_yaml` wrote."""
        data: Any = yaml.safe_load(text) if not text.lstrip().startswith("{") else None
        return cls.model_validate(data) if data is not None else cls.model_validate_json(text)


def read_solution(path: str | Path) -> Solution:
    """A solution file, JSON or YAML."""
    return Solution.from_text(Path(path).read_text(encoding="utf-8"))
