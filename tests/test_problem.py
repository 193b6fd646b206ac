from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from planner.errors import InvalidInput
from planner.overrides import parse_setting
from planner.problem import load_problem, parse_problem

PROBLEMS = sorted((Path(__file__).parent.parent / "problems").glob("*.yaml"))
EXAMPLE = PROBLEMS[0].parent / "70b_3T_60days.yaml"


def test_there_are_example_problems():
    assert len(PROBLEMS) >= 6


@pytest.mark.parametrize("path", PROBLEMS, ids=lambda path: path.stem)
def test_example_problems_are_valid_and_called_like_their_file(path):
    assert load_problem(path).name == path.stem


@pytest.mark.parametrize("path", PROBLEMS, ids=lambda path: path.stem)
def test_a_problem_survives_being_written_and_read(path):
    problem = load_problem(path)
    again = parse_problem(yaml.safe_load(yaml.safe_dump(problem.as_written())))
    assert again == problem
    assert again.problem_hash == problem.problem_hash


def test_fields_are_si_and_names_are_resolved():
    problem = load_problem(EXAMPLE)
    assert problem.training.tokens == 3 * 10**12
    assert (problem.limits.deadline, problem.limits.budget) == (60 * 86400.0, 2e6)
    assert problem.model.architecture.layers == 80
    assert [pool.accelerator.name for pool in problem.hardware] == ["H800", "H20"]
    assert (problem.hardware[0].min_nodes, problem.hardware[0].max_nodes) == (1, 128)
    assert problem.search.allowed == {"tp": (1, 2, 4, 8)}


def test_a_batch_range_in_tokens_keeps_the_whole_sequences_inside_it():
    batch = load_problem(EXAMPLE).training.global_batch
    assert batch.min * 4096 >= 2_000_000 > (batch.min - 1) * 4096
    assert batch.max * 4096 <= 6_000_000 < (batch.max + 1) * 4096


def test_a_batch_in_tokens_that_is_no_whole_number_of_sequences_is_refused():
    with pytest.raises(InvalidInput, match="976 sequences or 977 sequences"):
        changed("training.global_batch=4M tokens")
    assert changed("training.global_batch=4Mi tokens").training.global_batch.min == 1024


def changed(*settings: str):
    return load_problem(EXAMPLE, [parse_setting(each) for each in settings])


@pytest.mark.parametrize(
    ("setting", "read", "value"),
    [
        ("hardware.1.price=0.5 USD/gpu-hour", lambda p: p.hardware[1].price, 0.5),
        ("limits.deadline=8 weeks", lambda p: p.limits.deadline, 56 * 86400.0),
        ("limits.deadline=null", lambda p: p.limits.deadline, None),
        ("search.pp=[4, 2, 4]", lambda p: p.search.pp, (2, 4)),
        ("search.recompute=full", lambda p: p.search.recompute, ("full",)),
        ("training.tokens=1e9", lambda p: p.training.tokens, 10**9),
        ("objective=[time, cost]", lambda p: p.objective.goals, ("time", "cost")),
        ("objective={cost: 1, time: 86400 USD/day}", lambda p: p.objective.value_of_time, 1.0),
        ("hardware.0.nodes=16", lambda p: (p.hardware[0].min_nodes, p.hardware[0].max_nodes), (16, 16)),
        ("hardware.0.network=400 Gbit/s", lambda p: p.hardware[0].fabric.nic, 50e9),
        ("hardware.0.committed=60 days", lambda p: p.hardware[0].committed, 60 * 86400.0),
        ("assume_mfu=40%", lambda p: p.assume_mfu, 0.4),
        ("model.base=llama-2-70b", lambda p: p.model.base, "llama-2-70b"),
        ("time_limit=90 s", lambda p: p.time_limit, 90.0),
    ],
)
def test_a_setting_changes_what_it_names(setting, read, value):
    if setting.startswith("model."):
        setting = "model={base: llama-2-70b}"
    assert read(changed(setting)) == value


def test_settings_apply_in_order_and_make_mappings_on_the_way():
    assert changed("limits.budget=1M USD", "limits.budget=3M USD").limits.budget == 3e6
    plain = {k: v for k, v in yaml.safe_load(EXAMPLE.read_text()).items() if k != "search"}
    assert parse_problem(plain, [("search.tp", 4)]).search.tp == (4,)


def test_the_catalogue_prices_a_pool_without_a_price_and_says_so():
    data = yaml.safe_load(EXAMPLE.read_text())
    del data["hardware"][0]["price"]
    problem = parse_problem(data)
    usual = problem.hardware[0].accelerator.prices.reserved.typical
    assert problem.hardware[0].price == usual
    assert f"H800 is priced at {usual:.2f}" in problem.assumptions[0]
    assert parse_problem(problem.as_written()).assumptions == problem.assumptions


def test_a_high_assumed_mfu_is_remarked():
    assert any("more than published" in note for note in changed("assume_mfu=0.8").assumptions)
    assert not any("more than published" in note for note in changed("assume_mfu=0.5").assumptions)


def test_a_card_can_be_changed_and_its_nominal_size_said():
    model = changed("model={base: llama-2-70b, layers: 40, nominal_parameters: 35B}").model
    assert (model.architecture.layers, model.architecture.hidden) == (40, 8192)
    assert model.nominal_parameters == 35e9


def test_part_of_a_nested_shape_can_be_changed():
    moe = changed("model={base: mixtral-8x7b, moe: {top_k: 1}}").model.architecture.moe
    assert moe is not None
    assert (moe.top_k, moe.experts) == (1, 8)


def test_an_architecture_can_be_written_out():
    shapes = "layers: 4, hidden: 512, ffn: 2048, heads: 8, kv_heads: 8, head_dim: 64, vocab: 32000"
    architecture = changed(f"model={{{shapes}}}").model.architecture
    assert (architecture.layers, architecture.hidden) == (4, 512)


def test_a_gpu_can_be_overlaid_inline_and_from_a_file(tmp_path):
    facts = "{based_on: H100, name: H100-X, memory: {driver: 90 GB}}"
    inline = changed(f"hardware.0.gpu={facts}").hardware[0].accelerator
    (tmp_path / "gpu.yaml").write_text(facts)
    (tmp_path / "p.yaml").write_text(EXAMPLE.read_text().replace("gpu: H800", "gpu: gpu.yaml"))
    problem = load_problem(tmp_path / "p.yaml")
    assert problem.hardware[0].accelerator == inline
    assert inline.memory.driver == 90e9
    assert parse_problem(problem.as_written()) == problem


def test_gpus_are_rounded_to_whole_nodes_inside_a_range_only():
    assert changed("hardware.0={gpu: H800, gpus: {min: 9, max: 63}}").hardware[0].min_nodes == 2
    assert changed("hardware.0={gpu: H800, gpus: {min: 9, max: 63}}").hardware[0].max_nodes == 7
    with pytest.raises(InvalidInput, match="a multiple of 8"):
        changed("hardware.0={gpu: H800, gpus: 100}")


def test_the_hash_is_of_meaning_not_of_spelling():
    base = changed().problem_hash
    assert changed("limits.budget=$2,000,000", "limits.deadline=1440 h", "name=other").problem_hash == base
    assert changed("limits.budget=$2,000,001").problem_hash != base
    assert changed("hardware.0.gpu=H100").problem_hash != base


def test_problems_are_frozen():
    problem = changed()
    with pytest.raises(ValueError, match="frozen"):
        problem.limits.budget = 1.0  # type: ignore[misc]


def test_a_typo_in_a_scenario_shows_when_the_file_is_read():
    with pytest.raises(InvalidInput) as caught:
        changed("scenarios={cheap: {hardware.1.prise: 1 USD/gpu-hour}}")
    assert "scenarios.cheap" in str(caught.value)
    assert "did you mean 'price'" in str(caught.value)


def test_every_key_of_the_schema_is_documented():
    from planner.problem import Problem

    schema = Problem.model_json_schema()
    ours = ("Limits", "Pool", "Search", "Training")
    undocumented = [
        f"{name}.{key}"
        for name, model in {**{name: schema["$defs"][name] for name in ours}, "Problem": schema}.items()
        for key, field in model["properties"].items()
        if "description" not in field and "$ref" not in field
    ]
    assert undocumented == []
