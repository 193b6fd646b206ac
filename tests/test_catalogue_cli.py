"""`planner catalogue` lists facts with their sources; `planner schema` is the problem file for editors."""

from __future__ import annotations

import json
import re
from pathlib import Path

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from costmodel.cards import card_names, load_card
from costmodel.parameters import total_parameters
from costmodel.stack import load_stack, stack_names
from hardware.catalogue import accelerator_names, load_accelerator
from planner import patterns, units
from planner.cli.app import app
from planner.errors import Refused
from planner.problem import Problem, load_problem
from planner.yaml_file import read_mapping

ROOT = Path(__file__).parent.parent
PROBLEMS = sorted((ROOT / "problems").glob("*.yaml"))
KNOWN = {"gpus": accelerator_names(), "models": card_names(), "profiles": stack_names()}


def run(*args: object, columns: int = 80):
    return CliRunner().invoke(app, [str(arg) for arg in args], env={"COLUMNS": str(columns)})


def listed(*args: object):
    return json.loads(run("catalogue", *args, "--format", "json").stdout)


# --- the catalogue -----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KNOWN)
def test_every_fact_sheet_is_listed_with_its_sources(kind):
    rows = listed(kind)
    assert [row["name"] for row in rows] == list(KNOWN[kind])
    assert all(row["sources"] and all(row["sources"]) for row in rows)


def test_sources_are_those_of_the_fact_sheets():
    gpus, models, profiles = (listed(kind) for kind in KNOWN)
    for row in gpus:
        gpu = load_accelerator(row["name"])
        assert row["sources"] == [*gpu.sources, f"prices: {gpu.prices.source}"]
        assert row["reserved_usd"][0] <= row["usd_per_gpu_hour"] <= row["reserved_usd"][1]
    for row in models:
        assert row["sources"] == [load_card(row["name"]).source]
        assert row["parameters"] == total_parameters(load_card(row["name"]))
    for row in profiles:
        assert row["sources"] == list(load_stack(row["name"]).sources)


@pytest.mark.parametrize("columns", [80, 120])
@pytest.mark.parametrize("kind", KNOWN)
def test_a_table_fits_its_width_and_cuts_nothing(kind, columns):
    result = run("catalogue", kind, columns=columns)
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert max(map(len, lines)) <= columns
    assert "…" not in result.stdout
    table, sources = result.stdout.split("\nSources\n")
    for row in listed(kind):
        assert re.search(rf"^{re.escape(row['name'])} ", table, re.MULTILINE)
        assert re.search(rf"^{re.escape(row['name'])} ", sources, re.MULTILINE)
        assert " ".join(row["sources"][0].split())[:12] in " ".join(sources.split())
        if kind == "models":
            assert f"{row['parameters']:,}" in table, "a number is not broken over lines"


def test_without_a_kind_everything_is_listed():
    assert {kind: [row["name"] for row in rows] for kind, rows in listed().items()} == {
        kind: list(names) for kind, names in KNOWN.items()
    }
    table = run("catalogue").stdout
    assert all(name in table for names in KNOWN.values() for name in names)


@pytest.mark.parametrize(
    ("kind", "name", "facts"),
    [
        ("gpus", "h800-80GB", ["link.one_way", "2e+11", "deepseek-ai/DeepEP"]),
        ("models", "DeepSeek-V3", ["moe.experts", "256", "671,026,404,352", "arXiv:2412.19437"]),
        ("profiles", "nemo", ["expert_parallel.capacity_experts", "133 configurations"]),
    ],
)
def test_one_of_them_is_shown_with_every_fact(kind, name, facts):
    result = run("catalogue", kind, name, columns=120)
    assert result.exit_code == 0
    assert all(fact in result.stdout for fact in facts)
    assert isinstance(json.loads(run("catalogue", kind, name, "-f", "json").stdout), dict)


@pytest.mark.parametrize(
    ("kind", "typo", "meant"),
    [("gpus", "H8O0", "H800"), ("models", "lama-2-70b", "llama-2-70b"), ("profiles", "nemoo", "nemo")],
)
def test_an_unknown_name_exits_2_with_the_nearest(kind, typo, meant):
    result = run("catalogue", kind, typo)
    assert (result.exit_code, result.stdout) == (2, "")
    assert f"catalogue {kind}: found {typo!r}" in result.stderr
    assert f"did you mean {meant!r}" in result.stderr


# --- the schema --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def validator():
    schema = json.loads(run("schema").stdout)
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


@pytest.mark.parametrize("path", PROBLEMS, ids=lambda path: path.stem)
def test_the_schema_accepts_the_example_problems_and_what_is_written_of_them(validator, path):
    assert list(validator.iter_errors(read_mapping(path))) == []
    assert list(validator.iter_errors({**load_problem(path).as_written(), "name": "x"})) == []


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("limits.deadline", "60"),
        ("limits.deadline", "60 GB"),
        ("limits.budget", "2M"),
        ("training.tokens", "3 tesla"),
        ("training.seq_len", "4K"),
        ("training.global_batch", "1024"),
        ("training.global_batch", {"min": "1M tokens", "max": "2"}),
        ("training.precision", "fp16"),
        ("objective", {"cost": 1, "time": "20k USD"}),
        ("model", "lama-2-70b"),
        ("model", {"base": "llama-2-70b", "layer": 3}),
        ("search", {"tp": "two"}),
        ("dedline", "60 days"),
    ],
)
def test_the_schema_refuses_what_the_planner_refuses(validator, path, value):
    data = read_mapping(ROOT / "problems" / "70b_3T_60days.yaml")
    *above, key = path.split(".")
    part = data
    for name in above:
        part = part[name]
    part[key] = value
    errors = list(validator.iter_errors(data))
    assert errors
    assert all(list(error.absolute_path)[: len(above)] == above for error in errors)


@pytest.mark.parametrize("model", ["llama-2-70b", "Llama-2-70B", "./config.json", "models/x", "mine.json"])
def test_the_schema_accepts_cards_in_any_case_and_paths(validator, model):
    data = read_mapping(ROOT / "problems" / "70b_3T_60days.yaml") | {"model": model}
    assert list(validator.iter_errors(data)) == []


def described(schema, path=""):
    """Every key of a mapping with whether the schema says what it is."""
    if isinstance(schema, list):
        for each in schema:
            yield from described(each, path)
    if isinstance(schema, dict):
        for key, value in schema.get("properties", {}).items():
            yield f"{path}.{key}", "description" in value or "$ref" in json.dumps(value)
        for key, value in schema.items():
            if key not in ("examples", "default", "enum"):
                yield from described(value, f"{path}.{key}")


def test_an_editor_can_say_what_each_key_is(validator):
    inline = (".min", ".max", ".cost", ".time")
    keys = dict(described(validator.schema))
    assert len(keys) > 60
    assert [key for key, said in keys.items() if not said and not key.endswith(inline)] == []
    assert validator.schema["title"]
    assert validator.schema["$schema"].startswith("https://json-schema.org/")


# --- patterns ----------------------------------------------------------------------------------------

PARSERS = {
    patterns.TOKENS: units.tokens,
    patterns.PARAMETERS: units.parameters,
    patterns.SEQUENCE_LENGTH: units.sequence_length,
    patterns.BATCH: units.batch,
    patterns.MONEY: units.money,
    patterns.PRICE: units.price,
    patterns.VALUE_OF_TIME: units.value_of_time,
    patterns.DURATION: units.duration,
    patterns.BANDWIDTH: units.bandwidth,
    patterns.FRACTION: units.fraction,
}
NUMBERS = st.sampled_from(
    ["3", "2.00", "1_000", "1,000,000", "1e3", "2.5e9", ".5", "+4", "0.05", "-1", "nan", "x", ""]
)
SCALES = st.sampled_from(["", "K", "k", "M", "B", "T", "Ki", "Mi", " M", "Q"])
UNITS = st.sampled_from(
    [
        "",
        "tokens",
        "token",
        "parameters",
        "params",
        "sequences",
        "seqs",
        "USD",
        "$",
        "dollars",
        "EUR",
        "USD/gpu-hour",
        "USD/GPU-h",
        "/gpu hour",
        "$/gpu-hr",
        "USD/day",
        "USD/ h",
        "$/week",
        "days",
        "Days",
        "h",
        "weeks",
        "min",
        "months",
        "m",
        "GB/s",
        "Gbit/s",
        "GiB / s",
        "Gb/s",
        "GB",
        "%",
    ]
)


@settings(deadline=None, max_examples=400)
@given(st.sampled_from(["", "$", "USD ", " "]), NUMBERS, SCALES, st.sampled_from(["", " ", "  "]), UNITS)
def test_what_a_parser_accepts_its_pattern_accepts(sign, number, scale, blank, unit):
    text = f"{sign}{number}{scale}{blank}{unit}"
    for pattern, parse in PARSERS.items():
        try:
            parse(text)
        except Refused:
            continue
        assert re.search(pattern, text), (text, parse.__name__)


def test_every_quantity_of_the_problem_file_has_a_pattern():
    text = json.dumps(Problem.model_json_schema())
    for pattern in (each for each in PARSERS if each != patterns.FRACTION):
        assert json.dumps(pattern)[1:-1] in text, pattern
