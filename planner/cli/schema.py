"""`planner schema`: every key of a problem file, as JSON schema."""

from __future__ import annotations

from planner.cli.failures import reported
from planner.cli.output import print_json


@reported
def schema() -> None:
    """Print the JSON schema of a problem file (for editors and other programs)."""
    from planner.problem import Problem

    print_json(Problem.model_json_schema())
