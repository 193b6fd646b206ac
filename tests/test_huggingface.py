"""Hugging Face config.json files: exact parameters of the published classes, and refusals by name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from costmodel.cards import load_card
from costmodel.flops import attention_span, layer_span, model_flops_per_token
from costmodel.huggingface import MODEL_TYPES, ConfigError, read
from costmodel.huggingface.layers import moe_positions
from costmodel.huggingface.reader import READERS
from costmodel.parameters import active_parameters, total_parameters
from planner.cli.app import app
from planner.config_file import read_config
from planner.errors import InvalidInput
from planner.problem import load_problem, parse_problem
from planner.runs import read_runs

DATA = Path(__file__).parent / "data" / "huggingface"
TOTALS = yaml.safe_load((DATA / "totals.yaml").read_text(encoding="utf-8"))
VARIANTS = json.loads((DATA / "variants" / "variants.json").read_text(encoding="utf-8"))
PUBLISHED_BILLIONS = {
    "qwen3-30b-a3b": 3.35,
    "qwen3-235b-a22b": 22.19,
    "mixtral-8x7b": 12.88,
    "mixtral-8x22b": 39.15,
    "deepseek-v3": 37.55,
    "gpt-oss-20b": 4.19,
    "gpt-oss-120b": 5.71,
}
"""Active parameters as they were published, in billions."""
SAME_AS_CARD = {
    "deepseek-v2": "deepseek-v2",
    "deepseek-v2-lite": "deepseek-v2-lite",
    "deepseek-v3": "deepseek-v3",
    "gemma-2-9b": "gemma-2-9b",
    "gpt-oss-20b": "gpt-oss-20b",
    "gpt-oss-120b": "gpt-oss-120b",
    "llama-2-7b": "llama-2-7b",
    "llama-3.1-405b": "llama-3.1-405b",
    "mistral-7b": "mistral-7b",
    "mixtral-8x7b": "mixtral-8x7b",
    "mixtral-8x22b": "mixtral-8x22b",
    "qwen2.5-72b": "qwen-2.5-72b",
    "qwen3-30b-a3b": "qwen-3-30b-a3b",
    "qwen3-30b-a3b-transformers5": "qwen-3-30b-a3b",
    "qwen3-235b-a22b": "qwen-3-235b-a22b",
}


def config(name: str, **changes: Any) -> dict[str, Any]:
    return json.loads((DATA / f"{name}.json").read_text(encoding="utf-8")) | changes


def architecture(name: str, **changes: Any):
    return read(config(name, **changes), name).architecture


def run(*args: object):
    return CliRunner().invoke(app, [str(arg) for arg in args])


# --- parameters --------------------------------------------------------------------------------------


def test_every_file_has_its_total_and_every_total_its_file() -> None:
    assert sorted(TOTALS) == sorted(path.stem for path in DATA.glob("*.json"))
    assert len(TOTALS) >= 30


@pytest.mark.parametrize("name", TOTALS)
def test_a_config_has_exactly_the_parameters_of_its_model_class(name: str) -> None:
    found = architecture(name)
    counted = {"parameters": total_parameters(found), "active_parameters": active_parameters(found)}
    assert counted == TOTALS[name]


@pytest.mark.parametrize("case", VARIANTS, ids=lambda case: case["config"]["model_type"])
def test_unusual_settings_of_each_class_count_exactly_too(case: dict[str, Any]) -> None:
    """Biases, odd heads, experts in some layers, tied and untied; oracle: the model classes of transformers."""
    found = read(case["config"], "variant").architecture
    assert total_parameters(found) == case["parameters"]
    assert active_parameters(found) == case["active_parameters"]
    assert found.sliding_layers == case["windowed_layers"] or not case["windowed_layers"]


def test_the_variants_reach_every_reader() -> None:
    assert {case["config"]["model_type"] for case in VARIANTS} == set(READERS)


@pytest.mark.parametrize(("name", "billions"), PUBLISHED_BILLIONS.items())
def test_active_parameters_are_the_published_ones(name: str, billions: float) -> None:
    assert round(active_parameters(architecture(name)) / 1e9, 2) == billions


@pytest.mark.parametrize(("name", "card"), SAME_AS_CARD.items())
def test_a_config_and_the_card_of_the_same_model_agree_in_every_shape(name: str, card: str) -> None:
    without = {"name", "source"}
    assert architecture(name).model_dump(exclude=without) == load_card(card).model_dump(exclude=without)


# --- traps -------------------------------------------------------------------------------------------


def test_three_names_for_the_number_of_experts_mean_the_same() -> None:
    for name in ("num_local_experts", "n_routed_experts", "num_experts"):
        data = config("qwen3-30b-a3b")
        data[name] = data.pop("num_experts")
        assert read(data, "x").architecture == read(config("qwen3-30b-a3b"), "x").architecture
    old = config("gpt-oss-20b")
    old["experts_per_token"] = old.pop("num_experts_per_tok")
    assert read(old, "x").architecture.moe.top_k == 4


def test_an_absent_key_takes_its_classs_default_and_null_does_not() -> None:
    def without(name: str, key: str):
        data = config(name)
        del data[key]
        return read(data, name).architecture

    assert without("mistral-7b", "sliding_window").sliding_window == 4096
    assert architecture("mistral-7b", sliding_window=None).sliding_layers == 0
    assert without("gemma-7b", "head_dim").head_dim == 256
    assert without("llama-2-7b", "num_key_value_heads").kv_heads == 32
    assert without("mistral-7b", "num_key_value_heads").kv_heads == 8
    assert architecture("mistral-7b", num_key_value_heads=None).kv_heads == 32
    assert without("llama-2-7b", "tie_word_embeddings").tied_embeddings is False
    assert architecture("gemma-7b").tied_embeddings is True


def test_a_window_that_is_set_but_off_is_off() -> None:
    assert config("qwen2.5-72b")["sliding_window"] == 131072
    assert architecture("qwen2.5-72b").sliding_window is None
    on = architecture("qwen2.5-72b", use_sliding_window=True, sliding_window=4096, max_window_layers=70)
    assert (on.sliding_window, on.sliding_layers) == (4096, 10)


def test_layer_types_overrule_the_pattern() -> None:
    layers = ["sliding_attention"] * 3 + ["full_attention"] * 21
    assert architecture("gpt-oss-20b", layer_types=layers).sliding_layers == 3
    text = config("gemma-3-27b")["text_config"]
    assert architecture("gemma-3-27b").sliding_layers == 52
    older = config("gemma-3-27b", text_config=text | {"_sliding_window_pattern": 2})
    assert read(older, "x").architecture.sliding_layers == 31


def test_tied_embeddings_may_stand_on_either_level() -> None:
    outer = config("mistral-small-3.1-24b", tie_word_embeddings=True)
    inner = config("mistral-small-3.1-24b")
    inner["text_config"]["tie_word_embeddings"] = True
    assert read(outer, "x").architecture.tied_embeddings
    assert read(inner, "x").architecture.tied_embeddings
    assert not architecture("mistral-small-3.1-24b").tied_embeddings


def test_a_nested_config_may_leave_sizes_out_and_a_whole_one_may_not() -> None:
    nested = read(config("gemma-3-4b"), "x")
    assert (nested.architecture.heads, nested.architecture.vocab) == (8, 262208)
    assert any("num_attention_heads 8" in note for note in nested.notes)
    whole = config("gemma-3-4b")["text_config"]
    with pytest.raises(ConfigError, match=r"num_attention_heads: missing.*vocab_size"):
        read(whole, "x")


@pytest.mark.parametrize(
    ("sparse", "fields"),
    [
        ([True] * 6, {}),
        ([False, True, True, True], {"first_dense_layers": 1, "moe_every_n_layers": 1}),
        ([False, True] * 3, {"first_dense_layers": 0, "moe_every_n_layers": 2}),
        ([False, False, True, False, True], {"first_dense_layers": 1, "moe_every_n_layers": 2}),
        ([True, False, True, False], {"moe_layers": (0, 2)}),
        ([True, False, False, True, True], {"moe_layers": (0, 3, 4)}),
    ],
)
def test_which_layers_are_moe_is_said_in_the_fewest_words(sparse: list[bool], fields: dict[str, Any]) -> None:
    assert moe_positions(sparse) == fields


@pytest.mark.parametrize("listed", [[], [0], [0, 1, 2], [3, 5]])
def test_dense_layers_of_a_list_are_dense_in_the_pattern(listed: list[int]) -> None:
    pattern = architecture("qwen3-30b-a3b", mlp_only_layers=listed, decoder_sparse_step=2).pattern()
    wanted = ["moe" if (i + 1) % 2 == 0 and i not in listed else "dense" for i in range(48)]
    assert list(pattern) == wanted


def test_maverick_is_moe_in_every_other_layer_and_scout_in_all() -> None:
    assert architecture("llama-4-maverick").pattern()[:4] == ("dense", "moe", "dense", "moe")
    assert set(architecture("llama-4-scout").pattern()) == {"moe"}


# --- chunked attention -------------------------------------------------------------------------------


@pytest.mark.parametrize(("seq_len", "window"), [(8, 4), (10, 4), (4, 4), (3, 4), (65536, 8192)])
def test_a_chunk_sees_only_itself(seq_len: int, window: int) -> None:
    seen = sum(position % window + 0.5 for position in range(seq_len)) / seq_len
    assert attention_span(seq_len, window=window, chunked=True) == pytest.approx(seen)
    whole = attention_span(seq_len, window=window, chunked=True, causal=False)
    assert whole == pytest.approx(2 * seen)
    assert attention_span(seq_len, window=window, chunked=True) <= attention_span(seq_len, window=window)


def test_chunks_are_free_up_to_their_size_and_save_flops_beyond() -> None:
    scout = architecture("llama-4-scout")
    open_ended = scout.model_copy(update={"sliding_layers": 0})
    sliding = scout.model_copy(update={"chunked_window": False})
    assert scout.chunked_window
    assert scout.sliding_layers == 36
    assert layer_span(scout, 8192) == layer_span(open_ended, 8192)
    flops = [model_flops_per_token(each, 65536) for each in (scout, sliding, open_ended)]
    assert flops == sorted(flops)
    assert len(set(flops)) == 3


# --- refusals ----------------------------------------------------------------------------------------

LLAMA = config("llama-3.1-8b")
REFUSED = {
    "linear attention": ({"model_type": "qwen3_next"}, "model_type", "linear attention is not modelled"),
    "mamba": ({"model_type": "nemotron_h"}, "model_type", "Mamba blocks are not modelled"),
    "sparse": (config("deepseek-v3", model_type="deepseek_v32"), "model_type", "sparse attention"),
    "encoder": ({"model_type": "bert"}, "model_type", "an encoder, not a decoder"),
    "encoder with decoder": (LLAMA | {"is_encoder_decoder": True}, "is_encoder_decoder", "an encoder with"),
    "cross attention": (LLAMA | {"add_cross_attention": True}, "add_cross_attention", "cross-attention"),
    "vision": ({"model_type": "siglip_vision_model"}, "model_type", "a vision model without a language model"),
    "unknown vision": ({"model_type": "newvit", "patch_size": 14}, "model_type", "a vision model"),
    "vision without a type": ({"image_size": 224}, "model_type", "missing: it is a vision model"),
    "unknown": ({"model_type": "phi9"}, "model_type", "found 'phi9'"),
    "typo": (LLAMA | {"model_type": "lama"}, "model_type", "did you mean 'llama'"),
    "no type": ({"hidden_size": 3}, "model_type", "missing"),
    "type is a number": ({"model_type": 3}, "model_type", "found 3"),
    "nested": (
        {"model_type": "qwen3_5_moe", "text_config": {"model_type": "qwen3_5_moe_text"}},
        "text_config.model_type",
        "linear attention",
    ),
    "nested without a type": (
        {"model_type": "minimax_m3_vl", "text_config": {}},
        "text_config.model_type",
        "sparse attention",
    ),
    "nested is text": ({"model_type": "gemma3", "text_config": "x"}, "text_config", "found 'x'"),
    "layer types": (
        config("qwen3-8b", layer_types=["linear_attention"] * 27 + ["full_attention"] * 9),
        "layer_types",
        "linear_attention in 27 of 36 layers",
    ),
    "indexer": (config("deepseek-v3", index_topk=2048), "index_topk", "sparse attention"),
    "latent bias": (config("deepseek-v3", attention_bias=True), "attention_bias", "found true"),
    "missing": ({"model_type": "llama"}, "num_hidden_layers", "missing"),
    "text for a number": (LLAMA | {"hidden_size": "4096"}, "hidden_size", "found '4096'"),
    "true for a number": (LLAMA | {"hidden_size": True}, "hidden_size", "found true"),
    "half a layer": (LLAMA | {"num_hidden_layers": 1.5}, "num_hidden_layers", "found 1.5"),
    "no layer": (LLAMA | {"num_hidden_layers": 0}, "num_hidden_layers", "a whole number above 0"),
    "number for a truth": (LLAMA | {"tie_word_embeddings": 1}, "tie_word_embeddings", "true or false"),
    "odd head": (LLAMA | {"num_attention_heads": 7}, "head_dim", "no multiple of 7 heads"),
    "kv heads": (LLAMA | {"num_key_value_heads": 5}, "", "kv_heads (5) must divide heads"),
    "short list": (config("qwen3-8b", use_sliding_window=True, layer_types=["full_attention"]), "layer_types", "1 entries"),
    "layer beyond": (
        config("llama-4-scout", text_config=config("llama-4-scout")["text_config"] | {"moe_layers": [48]}),
        "text_config.moe_layers",
        "found 48",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_not_modelled_is_refused_by_name(case: str) -> None:
    data, key, says = REFUSED[case]
    with pytest.raises(ConfigError) as caught:
        read(data, "x")
    assert caught.value.key == key
    assert says in f"{caught.value.found}; {caught.value.accepted}; {caught.value.hint}"
    assert caught.value.accepted


def test_every_accepted_type_is_listed_with_a_refusal() -> None:
    with pytest.raises(ConfigError) as caught:
        read({"model_type": "bert"}, "x")
    assert caught.value.accepted.split(", ") == list(MODEL_TYPES)


def test_a_checkpoints_quantisation_is_remarked_and_not_used() -> None:
    reading = read(config("deepseek-v3"), "x")
    assert any("quantization_config" in note for note in reading.notes)
    assert read(config("llama-2-7b"), "x").notes == ()


# --- files -------------------------------------------------------------------------------------------

BROKEN = {
    "truncated": ('{"model_type": "llama", "hidden_size": 40', "ends in the middle"),
    "truncated in text": ('{"model_type": "lla', "ends in the middle"),
    "syntax": ('{"model_type" "llama"}', ":1:15"),
    "a list": ("[1]", "holds a list"),
    "a number": ("3", "holds a single value"),
    "deep": ("[" * 100_000, "nested too deeply"),
    "empty": ("", "is empty"),
    "missing key": ('{"model_type": "llama"}', "num_hidden_layers: missing"),
    "a vision config": ('{"model_type": "clip_vision_model"}', "a vision model"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_file_exits_2_with_one_clear_message(case: str, tmp_path: Path) -> None:
    text, says = BROKEN[case]
    path = tmp_path / "config.json"
    path.write_text(text, encoding="utf-8")
    result = run("model", path)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith(f"planner: {path}")
    assert says in result.stderr
    assert "accepted:" in result.stderr
    assert "Traceback" not in result.stderr


def test_a_binary_file_and_a_missing_one_are_named(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_bytes(b"\x89PNG\r\n\x1a\n\x00")
    with pytest.raises(InvalidInput, match="is not text"):
        read_config(str(tmp_path / "config.json"))
    with pytest.raises(InvalidInput, match=r"no such file(.|\n)*did you mean 'config.json'"):
        read_config("confg.json", tmp_path)


def test_model_prints_exact_parameters_of_a_file() -> None:
    facts = json.loads(run("model", DATA / "deepseek-v3.json", "--format", "json").stdout)
    assert facts["parameters"] == 671_026_404_352
    assert facts["active_parameters"] == 37_552_282_624
    assert facts["embedding_parameters"] == 129280 * 7168
    assert "deepseek-ai/DeepSeek-V3" in facts["source"]
    assert facts["notes"]
    table = run("model", DATA / "deepseek-v3.json").stdout
    assert "671,026,404,352" in table
    assert "moe.experts" in table


def test_a_folder_is_read_by_its_config_and_gives_the_model_its_name(tmp_path: Path) -> None:
    folder = tmp_path / "my-model"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config("qwen3-8b")), encoding="utf-8")
    assert read_config("./my-model", tmp_path).architecture.name == "my-model"
    assert read_config("my-model/config.json", tmp_path).architecture.name == "my-model"


PROBLEM = """\
model: {model}
training: {{tokens: 1T, seq_len: 4096, global_batch: 1024 sequences}}
hardware: [{{gpu: H800, nodes: {{max: 16}}}}]
"""


@pytest.fixture
def problem(tmp_path: Path):
    """Loads a problem in a folder whose sibling holds a config.json."""
    (tmp_path / "models" / "q8").mkdir(parents=True)
    (tmp_path / "jobs").mkdir()
    text = json.dumps(config("qwen3-vl-8b"))
    (tmp_path / "models" / "q8" / "config.json").write_text(text, encoding="utf-8")

    def load(model: str, *settings: tuple[str, Any]):
        path = tmp_path / "jobs" / "p.yaml"
        path.write_text(PROBLEM.format(model=model), encoding="utf-8")
        return load_problem(path, settings)

    return load


def test_a_problem_names_a_config_relative_to_itself(problem) -> None:
    read_ = problem("../models/q8/config.json")
    assert total_parameters(read_.model.architecture) == 8_190_735_360
    assert list(read_.files) == ["../models/q8/config.json"]
    assert any("Only the language model" in note for note in read_.assumptions)


def test_a_problem_may_change_what_a_config_says(problem) -> None:
    changed = problem("{base: ../models/q8, layers: 40}").model.architecture
    assert (changed.layers, changed.hidden) == (40, 4096)
    again = problem("llama-2-7b", ("model", "../models/q8/config.json"))
    assert again.model.architecture.layers == 36


def test_a_solved_problem_stands_without_the_file_and_names_it(problem) -> None:
    original = problem("../models/q8/config.json")
    written = json.loads(json.dumps(original.as_written()))
    assert written["model"]["source"].endswith("../models/q8/config.json")
    again = parse_problem(written)
    assert again.model.architecture == original.model.architecture
    assert again.problem_hash == original.problem_hash


def test_provenance_names_the_file_and_its_hash(problem) -> None:
    from hashlib import sha256

    from planner.answer import provenance

    original = problem("../models/q8/config.json")
    text = json.dumps(config("qwen3-vl-8b")).encode()
    found = provenance(original.problem_hash, original.files).files
    assert found == {"../models/q8/config.json": sha256(text).hexdigest()}


def test_a_bad_config_of_a_problem_is_one_message_with_both_files(problem, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput) as caught:
        problem("../models/q9/config.json")
    assert "p.yaml: model: " in str(caught.value)
    assert "no such file" in str(caught.value)
    bad = tmp_path / "models" / "q8" / "config.json"
    bad.write_text('{"model_type": "qwen3", "hidden_size": 0}', encoding="utf-8")
    with pytest.raises(InvalidInput, match=r"model\.base: .*config\.json: num_hidden_layers: missing"):
        problem("{base: ../models/q8/config.json}")


def test_a_run_may_name_a_config_beside_the_runs_file(tmp_path: Path) -> None:
    row = {"seq_len": 4096, "global_batch": 64, "gpu": "H100", "num_gpus": 8, "tp": 2}
    (tmp_path / "mine.json").write_text(json.dumps(config("llama-2-7b")), encoding="utf-8")
    (tmp_path / "runs.yaml").write_text(
        yaml.safe_dump({"runs": [{**row, "model": "mine.json"}, {**row, "model": "./no.json"}]}),
        encoding="utf-8",
    )
    good, bad = read_runs(tmp_path / "runs.yaml")
    assert total_parameters(good.run.architecture) == 6_738_415_616
    assert "no.json: no such file" in bad.error
    rows = json.loads(run("estimate", tmp_path / "runs.yaml", "--format", "json").stdout)
    assert rows[0]["step_time_s"] > 0


def test_a_card_keeps_its_name_whatever_lies_beside_the_problem(tmp_path: Path) -> None:
    (tmp_path / "llama-2-7b").mkdir()
    (tmp_path / "p.yaml").write_text(PROBLEM.format(model="llama-2-7b"), encoding="utf-8")
    assert load_problem(tmp_path / "p.yaml").model.base == "llama-2-7b"
