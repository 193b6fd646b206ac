"""`planner schema`: every key of a problem file, as JSON schema."""

from __future__ import annotations

from planner.cli.failures import reported
from planner.cli.output import print_json

DIALECT = "https://json-schema.org/draft/2020-12/schema"


@reported
def schema() -> None:
    """Print the JSON schema of a problem file (for editors and other programs).

    In an editor: save it as problem.schema.json, and start a problem file with the line
    `# yaml-language-server: $schema=problem.schema.json`.
    """
    from planner.problem import Problem

    print_json({"$schema": DIALECT} | Problem.model_json_schema() | {"title": "A planner problem file"})
