from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from handmade import feasible, infeasible
from typer.testing import CliRunner

import planner
from planner.cli.app import VERBS, app
from planner.cli.words import stages_line
from planner.errors import TimeLimit
from planner.solution import Solution, Stage

ROOT = Path(__file__).parent.parent
EXAMPLE = ROOT / "problems" / "70b_3T_60days.yaml"
TEXT = EXAMPLE.read_text(encoding="utf-8")


def run(*args: object, columns: int | None = None):
    env = {"COLUMNS": None if columns is None else str(columns), "TERMINAL_WIDTH": None}
    return CliRunner().invoke(app, [str(arg) for arg in args], env=env)


# --- bad input: exit 2, one message, no traceback, nothing on stdout -----------------------------------

FILES = {
    "unknown key": (TEXT + "dedline: 3\n", ["dedline", "unknown key", "limits", "accepted"]),
    "unknown key inside": (
        TEXT.replace("deadline:", "dedline:", 1),
        ["limits.dedline", "did you mean 'deadline'"],
    ),
    "wrong unit": (
        TEXT.replace("60 days", "60 GB"),
        ["limits.deadline", "'60 GB'", "60 days, 8 weeks or 36 h"],
    ),
    "money for tokens": (TEXT.replace("tokens: 3T", "tokens: $3T"), ["training.tokens", "'$3T'", "300B"]),
    "no unit": (TEXT.replace("60 days", "60"), ["limits.deadline", "60", "without a unit"]),
    "sexagesimal": (TEXT.replace("deadline: 60 days", "deadline: 60:00"), ["limits.deadline", "60 min"]),
    "ambiguous month": (TEXT.replace("60 days", "2 months"), ["limits.deadline", "give days"]),
    "negative": (TEXT.replace("tokens: 3T", "tokens: -3T"), ["training.tokens", "'-3T'", "not positive"]),
    "negative price": (TEXT.replace("2.00 USD", "-2.00 USD"), ["hardware.0.price", "not positive"]),
    "absurd": (TEXT.replace("tokens: 3T", "tokens: 3e30"), ["training.tokens", "more than any plan"]),
    "absurd price": (TEXT.replace("2.00 USD", "2000000 USD"), ["hardware.0.price", "more than any plan"]),
    "nan": (TEXT.replace("tokens: 3T", "tokens: .nan"), ["training.tokens", "nan", "finite"]),
    "infinite budget": (TEXT.replace("budget: 2M USD", "budget: .inf"), ["limits.budget", "inf"]),
    "boolean": (TEXT.replace("seq_len: 4096", "seq_len: true"), ["training.seq_len", "True", "booleans"]),
    "null": (TEXT.replace("tokens: 3T", "tokens:"), ["training.tokens", "nothing"]),
    "ambiguous 4K": (TEXT.replace("seq_len: 4096", "seq_len: 4K"), ["training.seq_len", "4Ki"]),
    "model typo": (
        TEXT.replace("llama-2-70b ", "lama-2-70b "),
        ["model", "'lama-2-70b'", "did you mean 'llama-2-70b'"],
    ),
    "config.json": (TEXT.replace("llama-2-70b ", "./config.json "), ["model", "config.json", "no such file"]),
    "gpu typo": (TEXT.replace("gpu: H800", "gpu: H80O"), ["hardware.0.gpu", "'H80O'", "did you mean 'H800'"]),
    "gpu file missing": (
        TEXT.replace("gpu: H800", "gpu: mine.yaml"),
        ["hardware.0.gpu", "mine.yaml", "no such file"],
    ),
    "precision": (TEXT.replace("bf16", "fp16"), ["training.precision", "'fp16'", "bf16, fp8"]),
    "precision no GPU has": (
        TEXT.replace("bf16", "fp8").replace("gpu: H800", "gpu: A100-80").replace("gpu: H20", "gpu: A800"),
        ["training.precision", "fp8", "A100-80"],
    ),
    "batch without unit": (
        TEXT.replace("{min: 2M tokens, max: 6M tokens}", "1024"),
        ["training.global_batch", "1024", "say tokens or sequences"],
    ),
    "batch upside down": (TEXT.replace("max: 6M", "max: 1M"), ["training.global_batch", "min is above max"]),
    "batch typo": (TEXT.replace("min: 2M", "mni: 2M"), ["training.global_batch.mni", "did you mean 'min'"]),
    "no nodes": (TEXT.replace("nodes: {max: 128}, ", ""), ["hardware.0", "neither nodes nor gpus"]),
    "half a node": (TEXT.replace("nodes: {max: 128}", "nodes: 0.5"), ["hardware.0.nodes", "whole"]),
    "zero nodes": (TEXT.replace("max: 128}", "max: 0}"), ["hardware.0.nodes.max", "0"]),
    "objective": (
        TEXT.replace("objective: cost", "objective: price"),
        ["objective", "'price'", "cost, time"],
    ),
    "objective in dollars": (
        TEXT.replace("objective: cost", "objective: {cost: 1, time: 20}"),
        ["objective.time", "20k USD/day"],
    ),
    "mfu in percent": (TEXT + "assume_mfu: 40\n", ["assume_mfu", "40", "did you mean 40%"]),
    "tp": (TEXT.replace("[1, 2, 4, 8]", "[1, two]"), ["search.tp.1", "'two'", "whole number"]),
    "framework": (
        TEXT.replace("framework: megatron", "framework: megatorn"),
        ["search.framework", "'megatron'"],
    ),
    "stack": (TEXT.replace("framework: megatron", "stack: megatron-cora"), ["search.stack", "megatron-core"]),
    "scenario": (
        TEXT.replace("hardware.1.price", "hardware.1.prise"),
        ["scenarios.h20_cheap", "did you mean 'price'"],
    ),
    "scenario index": (
        TEXT.replace("hardware.1.price", "hardware.7.price"),
        ["scenarios.h20_cheap", "0 to 1"],
    ),
    "missing key": (TEXT.replace("  tokens: 3T", "  #"), ["training.tokens", "required"]),
    "section is a list": (TEXT + "search2: []\n", ["search2", "did you mean 'search'"]),
    "limits is text": (TEXT.split("limits:")[0] + "limits: none\n", ["limits", "'none'", "deadline, budget"]),
    "syntax": ("name: [unclosed\nmodel: x\n", [":2:6", "not valid YAML"]),
    "tab": ("name:\tx\n\tmodel: y\n", [":1:6", "not valid YAML"]),
    "duplicate key": (TEXT + "objective: time\n", ["'objective'", "twice"]),
    "alias": ("name: &a x\nmodel: *a\n", [":2:8", "aliases"]),
    "python tag": ("name: !!python/object/apply:os.system [ls]\n", [":1:7", "not valid YAML"]),
    "merge key": ("<<: {name: x}\n" + TEXT, ["<<", "unknown key"]),
    "endless number": (TEXT.replace("tokens: 3T", "tokens: " + "9" * 5000), ["p.yaml"]),
    "number as a key": (TEXT + "1: x\n", ["1", "unknown key"]),
    "two documents": ("name: x\n---\nname: y\n", ["not valid YAML"]),
    "a list": ("- a\n- b\n", ["holds a list", "a mapping"]),
    "a word": ("hello\n", ["holds a single value", "a mapping"]),
    "only comments": ("# nothing\n", ["holds nothing", "a mapping"]),
    "empty": ("", ["is empty"]),
    "blank": ("  \n\n", ["is empty"]),
    "deep": ("[" * 5000, ["p.yaml"]),
}


def assert_one_clear_message(result, *says: str) -> None:
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    assert "Traceback" not in result.stderr
    assert result.stderr.count("planner: ") == 1
    for each in says:
        assert each in result.stderr


@pytest.mark.parametrize("case", list(FILES))
def test_a_bad_problem_file_exits_2_with_one_clear_message(case, tmp_path):
    text, says = FILES[case]
    assert text != TEXT
    path = tmp_path / "p.yaml"
    path.write_text(text, encoding="utf-8")
    assert_one_clear_message(run("solve", path), "p.yaml", *says)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"\x7fELF\x02\x01\x01\x00\x00", "not text"),
        (b"\xff\xfe\x00\x01" * 50, "not text"),
        (b"name: caf\xe9\n", "not text"),
        (b"a: b\x00c\n", "not text"),
    ],
)
def test_a_binary_file_exits_2(content, says, tmp_path):
    path = tmp_path / "p.yaml"
    path.write_bytes(content)
    assert_one_clear_message(run("solve", path), "p.yaml", says)


def test_a_folder_and_a_missing_file_exit_2_and_name_the_neighbour(tmp_path):
    (tmp_path / "problem.yaml").write_text(TEXT)
    assert_one_clear_message(run("solve", tmp_path), str(tmp_path), "is a folder")
    missing = run("solve", tmp_path / "problm.yaml")
    assert_one_clear_message(missing, "no such file", "did you mean 'problem.yaml'")
    assert_one_clear_message(run("solve", tmp_path / "problem.yaml" / "x"), "cannot be read")


SETTINGS = [
    ("limits.budgett=1M USD", ["-s limits.budgett", "did you mean 'budget'"]),
    ("hardware.1.prize=1 USD/gpu-hour", ["hardware.1.prize", "did you mean 'price'"]),
    ("hardware.2.price=1 USD/gpu-hour", ["hardware.2", "0 to 1"]),
    ("hardware.H20.price=1 USD/gpu-hour", ["hardware.H20", "entry 1"]),
    ("hardware.-1.price=1 USD/gpu-hour", ["hardware.-1", "0 to 1"]),
    ("training.tokens.x=3", ["training.tokens", "nothing inside"]),
    ("limits.budget=abc", ["-s limits.budget", "'abc'", "2M USD"]),
    ("limits.budget=[", ["-s limits.budget", "not valid YAML"]),
    ("limits.budget", ["not an assignment", "key.path=value"]),
    ("=3", ["not an assignment"]),
    (".=3", ["unknown key"]),
    ("model={base: llama-2-70b, layers: -1}", ["model.layers", "-1"]),
    ("model={base: llama-2-70b, layer: 3}", ["model.layer", "did you mean 'layers'"]),
    ("model={base: llama-2-70b, kv_heads: 7}", ["kv_heads", "must divide heads"]),
    ("model={hidden: 5}", ["model.layers", "required"]),
    ("hardware=[]", ["hardware", "no pool"]),
    ("hardware.0.gpu={based_on: H100, memory: {drivr: 3}}", ["hardware.0.gpu.memory.drivr", "driver"]),
    ("hardware.0.gpu={name: X}", ["hardware.0.gpu.based_on", "missing"]),
    ("hardware.0.gpu=3", ["hardware.0.gpu", "found 3"]),
]


@pytest.mark.parametrize(("setting", "says"), SETTINGS, ids=[setting for setting, _ in SETTINGS])
def test_a_bad_setting_exits_2_and_names_itself(setting, says):
    assert_one_clear_message(run("solve", EXAMPLE, "-s", setting), *says)


def test_everything_else_that_is_wrong_is_named_too():
    result = run("solve", EXAMPLE, "-s", "training.tokens=x", "-s", "limits.budget=y")
    assert_one_clear_message(result, "training.tokens", "more is wrong at: limits.budget")


def test_a_bad_time_limit_or_output_exits_2(tmp_path):
    assert_one_clear_message(run("solve", EXAMPLE, "--time-limit", "soon"), "--time-limit", "'soon'")
    (tmp_path / "file").write_text("")
    assert_one_clear_message(run("solve", EXAMPLE, "-o", tmp_path / "file"), "is a file")
    assert_one_clear_message(run("solve", EXAMPLE, "-o", tmp_path / "file" / "below"), "cannot be made")


@pytest.mark.parametrize(
    "args", [["sovle"], ["solve"], ["solve", "x", "--formt", "json"], ["catalogue", "gpu"]]
)
def test_wrong_usage_exits_2(args):
    result = run(*args)
    assert result.exit_code == 2
    assert "Traceback" not in result.output


# --- what is printed of a solution -------------------------------------------------------------------


@pytest.fixture
def answered(monkeypatch):
    """Makes `planner solve` answer with what a function returns or raises."""

    def answer(with_what):
        module = type(sys)("planner.solve")
        module.solve = with_what  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "planner.solve", module)
        monkeypatch.setattr(planner, "solve", module, raising=False)

    return answer


def test_solve_passes_the_problem_with_its_settings_and_limit(answered):
    asked = {}

    def solve(problem, *, progress, time_limit):
        progress("looking")
        asked.update(problem=problem, time_limit=time_limit)
        return feasible()

    answered(solve)
    result = run("solve", EXAMPLE, "-s", "limits.budget=3M USD", "--time-limit", "2 min", "--format", "json")
    assert result.exit_code == 0
    assert asked["problem"].limits.budget == 3e6
    assert asked["time_limit"] == 120.0
    assert result.stderr == "looking\n"
    assert Solution.from_text(result.stdout) == feasible()


def test_quiet_says_nothing_and_a_bare_time_limit_is_seconds(answered):
    limits = []

    def solve(problem, *, progress, time_limit):
        progress("looking")
        limits.append(time_limit)
        return feasible()

    answered(solve)
    assert run("solve", EXAMPLE, "--quiet", "--time-limit", "30").stderr == ""
    run("solve", EXAMPLE, "-s", "time_limit=45 s", "-q")
    assert limits == [30.0, 45.0]


@pytest.mark.parametrize("format", ["json", "yaml"])
def test_the_solution_is_data_on_stdout(answered, format):
    answered(lambda problem, **_: feasible())
    result = run("solve", EXAMPLE, "--format", format)
    assert Solution.from_text(result.stdout) == feasible()


def test_output_writes_both_files_whole_and_leaves_nothing_else(answered, tmp_path):
    answered(lambda problem, **_: feasible())
    assert run("solve", EXAMPLE, "--output", tmp_path / "deep" / "down").exit_code == 0
    folder = tmp_path / "deep" / "down"
    assert sorted(os.listdir(folder)) == ["solution.json", "solution.yaml"]
    assert Solution.from_text((folder / "solution.json").read_text()) == feasible()
    assert Solution.from_text((folder / "solution.yaml").read_text()) == feasible()


FACTS = (
    "proved optimal", "640 x H800 in 80 nodes", "TP8 PP4 DP20", "ZeRO 1", "bf16", "57.6 days", "54.2 to 61.3", "4.65 s",
    "$1,769,761", "40.1 %", "880 tokens/s", "62.0 GiB of 75.2 GiB", "86.0 %", "data parallel", "2.4 days", "$230,239",
    "13.2 GiB", "91.2 GiB", "H20", "71.3 days", "2.00 USD/gpu-hour", "41,200 valid", "gap 0.00 %", "20,000 by deadline",
    "2 x 21 layers", "19 layers, 3 of them recomputed", "640 sequences = 2.62M tokens",
)  # fmt: skip


@pytest.mark.parametrize("columns", [80, 120, None])
def test_a_table_keeps_every_fact_within_its_width(answered, columns):
    answered(lambda problem, **_: feasible())
    result = run("solve", EXAMPLE, columns=columns)
    assert result.exit_code == 0
    text = " ".join(result.stdout.split())
    for fact in FACTS:
        assert fact in text, fact
    assert max(map(len, result.stdout.splitlines())) <= (columns or 100)
    assert "\x1b" not in result.stdout
    assert "…" not in result.stdout


def test_an_infeasible_problem_exits_3_with_the_conflict_on_stdout(answered):
    answered(lambda problem, **_: infeasible())
    result = run("solve", EXAMPLE)
    assert result.exit_code == 3
    assert "proved infeasible" in result.stdout
    assert "deadline, budget" in result.stdout
    assert "budget to 2.13M USD" in result.stdout
    assert "deadline to 66.4 days" in result.stdout
    assert run("solve", EXAMPLE, "--format", "json").exit_code == 3


def test_a_time_limit_without_a_plan_exits_4(answered):
    def solve(problem, **_):
        raise TimeLimit("no plan within 5 s; give it more with --time-limit")

    answered(solve)
    result = run("solve", EXAMPLE, "--time-limit", "5 s")
    assert result.exit_code == 4
    assert result.stderr == "planner: no plan within 5 s; give it more with --time-limit\n"


def test_a_defect_exits_1_with_one_line_and_the_way_to_its_traceback(answered):
    def solve(problem, **_):
        raise ZeroDivisionError("division by\nzero")

    answered(solve)
    result = run("solve", EXAMPLE)
    assert result.exit_code == 1
    assert "ZeroDivisionError: division by zero" in result.stderr
    assert "--debug" in result.stderr
    assert "Traceback" not in result.stderr
    assert isinstance(run("--debug", "solve", EXAMPLE).exception, ZeroDivisionError)
    assert "Traceback" not in run("solve", EXAMPLE).stderr


# --- the other verbs ---------------------------------------------------------------------------------


def test_model_prints_exact_parameters():
    facts = json.loads(run("model", "llama-2-70b", "--format", "json").stdout)
    assert facts["parameters"] == 68_976_648_192
    assert facts["active_parameters"] == facts["parameters"]
    assert facts["embedding_parameters"] == 32000 * 8192
    assert facts["layers"] == 80
    assert "68,976,648,192" in run("model", "llama-2-70b").stdout


def test_model_counts_only_the_experts_a_token_meets():
    facts = json.loads(run("model", "mixtral-8x7b", "--format", "json").stdout)
    assert facts["active_parameters"] < facts["parameters"] / 3


def test_an_unknown_model_exits_2_with_the_nearest():
    assert_one_clear_message(run("model", "lama-2-70b"), "'lama-2-70b'", "did you mean 'llama-2-70b'")
    assert_one_clear_message(run("model", "./config.json"), "config.json", "no such file")


@pytest.mark.parametrize(
    ("kind", "name"), [("gpus", "H800"), ("models", "llama-2-70b"), ("profiles", "megatron-core")]
)
def test_the_catalogue_lists_what_a_problem_can_name(kind, name):
    rows = json.loads(run("catalogue", kind, "--format", "json").stdout)
    assert name in [row["name"] for row in rows]
    for columns in (80, 120):
        table = run("catalogue", kind, columns=columns).stdout
        assert all(row["name"] in table for row in rows)
        assert max(map(len, table.splitlines())) <= columns
        assert "…" not in table


def test_the_schema_knows_every_section():
    schema = json.loads(run("schema").stdout)
    assert {"model", "training", "hardware", "limits", "objective", "search"} <= set(schema["properties"])
    assert schema["additionalProperties"] is False


def test_the_version_is_the_packages():
    assert run("--version").stdout == f"planner {planner.__version__}\n"


def test_help_imports_nothing_heavy():
    code = (
        "import sys\n"
        "sys.argv = ['planner', '--help']\n"
        "from planner.cli import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "print(sorted({'numpy', 'ortools', 'pydantic', 'costmodel', 'yaml', 'rich'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_the_installed_command_exits_with_the_same_codes(tmp_path):
    command = [
        sys.executable,
        "-c",
        "from planner.cli import main; main()",
        "solve",
        str(tmp_path / "no.yaml"),
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("planner: ")
    assert done.stdout == ""


def test_a_verb_is_read_without_the_others():
    code = (
        "import sys\n"
        "sys.argv = ['planner', 'solve', '--help']\n"
        "from planner.cli import main\n"
        "from planner.cli.app import VERBS\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "print(sorted(verb for verb in VERBS if f'planner.cli.{verb}' in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "['solve']"


def test_what_is_no_verb_is_compared_with_all_of_them():
    done = run("slove")
    assert done.exit_code == 2
    assert "No such command 'slove'" in done.stderr
    assert "'solve'" in done.stderr


def test_every_verb_is_in_the_help():
    shown = run("--help").stdout
    assert all(f"\n  {verb} " in shown for verb in VERBS)


COMMAND = f"{sys.executable} -c 'from planner.cli import main; main()'"


@pytest.mark.parametrize("redirection", [">&-", "2>&-", ">&- 2>&-"])
def test_closed_outputs_are_no_defect(redirection):
    command = f"{COMMAND} catalogue gpus {redirection}"
    assert subprocess.run(command, shell=True, check=False, capture_output=True).returncode == 0


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
def test_a_full_disk_is_said_and_no_defect():
    command = f"{COMMAND} schema > /dev/full"
    result = subprocess.run(command, shell=True, check=False, capture_output=True, text=True)
    assert result.returncode == 1
    assert result.stderr == "planner: the output cannot be written: No space left on device\n"


def test_recomputed_layers_are_those_of_the_rank_and_not_of_its_chunks() -> None:
    decisions = feasible().plans[0].decisions
    stage = Stage(layers=7, recomputed_layers=3, chunks=(1, 3, 3))
    words = stages_line(decisions.model_copy(update={"stages": (stage, Stage(layers=6, chunks=(2, 2, 2)))}))
    assert (
        words == "1 x 7 layers, 3 of them recomputed, in chunks of 1, 3, 3; 1 x 6 layers in chunks of 2, 2, 2"
    )
