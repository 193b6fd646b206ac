"""Launch files given to the frameworks that read them, where these are installed: none is a dependency.

Without a GPU their readers work all the same, and models are built on the meta device: they must have
exactly the parameters that the plan was priced with.
"""

from __future__ import annotations

import importlib
import json
import sys
from dataclasses import fields
from importlib.metadata import version

import pytest
from launch_files import run_recipe
from test_export import job

from costmodel.parameters import total_parameters
from planner.export import LAUNCHERS
from planner.export.torchtitan import NEEDED as TITAN
from planner.export.undecided import ROTARY, UNDECIDED

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore"),
]

PIPELINE = {"pp": 4, "layers": [19, 21, 21, 19], "tp": 2}
TITAN_PLANS = [
    ("llama-2-70b", PIPELINE),
    ("llama-2-7b", {"zero": 3, "recomputed": [32]}),
    ("llama-3-8b", {"zero": 2, "cp": 2}),
    ("qwen-3-30b-a3b", {"zero": 3, "ep": 8}),
    ("deepseek-v2-lite", {"zero": 3, "ep": 8, "layers": [27]}),
]


def write(folder, files):
    for name, text in files.items():
        (folder / name).write_text(text)


def set_by_the_user(monkeypatch, names):
    for name in names:
        monkeypatch.setenv(name, "10000")


def on_meta(build):
    import torch

    with torch.device("meta"):
        return sum(parameter.numel() for parameter in build().parameters())


@pytest.mark.parametrize(
    "of",
    [
        job(**PIPELINE),
        job(pp=4, vpp=2, recomputed=[3] * 8),
        job(
            "deepseek-v3",
            layers=[15, 16, 15, 15],
            pp=4,
            ep=8,
            modules=("mla_up_proj", "moe_act", "layernorm"),
        ),
        job("gpt-oss-20b", ep=4, pp=2),
        job("qwen-3-235b-a22b", pp=4, vpp=2, layers=[11, 12, 12, 12, 12, 12, 12, 11], tp=2, ep=16, dp=32),
    ],
    ids=["uneven", "block", "mla", "gpt-oss", "uneven virtual"],
)
def test_megatron_core_accepts_the_fields_and_lays_layers_where_the_plan_does(of, monkeypatch):
    config = pytest.importorskip("megatron.core.transformer.transformer_config")
    utilities = importlib.import_module("megatron.core.transformer.moe.moe_utils")
    for kernel in ("fused_permute", "fused_permute_with_probs", "fused_sort_chunks_by_index"):
        monkeypatch.setattr(utilities, kernel, object(), raising=False)
    for kernel in ("fused_sort_chunks_by_index_with_probs", "fused_unpermute"):
        monkeypatch.setattr(utilities, kernel, object(), raising=False)
    with monkeypatch.context() as stand_ins:
        set_by_the_user(stand_ins, UNDECIDED | ROTARY)
        kind, given = run_recipe(LAUNCHERS["bridge"](of)["recipe.py"], stand_ins).model
    import torch

    made = config.MLATransformerConfig if kind == "MLA" else config.TransformerConfig
    known = {field.name for field in fields(made)}
    own = {name: value for name, value in given.items() if name in known}
    own |= {"params_dtype": torch.bfloat16, "bf16": True, "activation_func": torch.nn.functional.silu}
    if "pipeline_dtype" in own:
        own["pipeline_dtype"] = torch.bfloat16
    built = made(**own)
    outside = {
        "make_vocab_size_divisible_by",
        "max_position_embeddings",
        "position_embedding_type",
        "rotary_base",
        "seq_length",
        "share_embeddings_and_output_weights",
        "transformer_layer_spec",
        "vocab_size",
    }
    assert set(given) - known <= outside
    layout = built.pipeline_model_parallel_layout
    if layout is not None:
        d, decoder = of.decisions, next(kind for kind in set(layout.flatten_layout) if kind.name == "decoder")
        held = [layout.layout[rank][chunk].count(decoder) for chunk in range(d.vpp) for rank in range(d.pp)]
        assert held == of.layers
        layout.validate_layer_layout(of.architecture.layers, of.architecture.mtp_layers or None)


@pytest.mark.parametrize(("card", "plan"), TITAN_PLANS)
def test_torchtitan_03_builds_the_model_from_the_recipe(card, plan, tmp_path, monkeypatch):
    pytest.importorskip("torchtitan")
    if not version("torchtitan").startswith("0.3"):
        pytest.skip("torchtitan 0.3 is not installed")
    of = job(card, **plan)
    write(tmp_path, LAUNCHERS["torchtitan"](of))
    set_by_the_user(monkeypatch, TITAN | ROTARY)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "recipe", raising=False)
    from torchtitan.config import ConfigManager
    from torchtitan.distributed.parallel_dims import ParallelDims

    config = ConfigManager().parse_args(["--module", "recipe", "--config", "plan"])
    config.model_spec.model.update_from_config(config=config)
    assert on_meta(config.model_spec.model.build) == total_parameters(of.architecture)
    ParallelDims.from_config(config.parallelism, of.decisions.num_gpus)
    accumulation = config.training.global_batch_size // config.training.local_batch_size // of.decisions.dp
    assert accumulation == (1 if of.decisions.pp > 1 else of.decisions.num_microbatches)


@pytest.mark.parametrize(("card", "plan"), TITAN_PLANS)
def test_torchtitan_02_builds_the_model_from_the_toml(card, plan, tmp_path, monkeypatch):
    pytest.importorskip("torchtitan")
    if not version("torchtitan").startswith("0.2"):
        pytest.skip("torchtitan 0.2 is not installed")
    of = job(card, **plan)
    write(tmp_path, LAUNCHERS["torchtitan"](of))
    set_by_the_user(monkeypatch, TITAN | ROTARY)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "planner_flavor", raising=False)
    from torchtitan.config import ConfigManager
    from torchtitan.distributed import ParallelDims
    from torchtitan.protocols.train_spec import get_train_spec

    config = ConfigManager().parse_args(["--job.config_file", str(tmp_path / "torchtitan_0.2.toml")])
    if config.experimental.custom_import:
        importlib.import_module(config.experimental.custom_import)
    spec = get_train_spec(config.model.name)
    sizes = spec.model_args[config.model.flavor]
    sizes.update_from_config(config)
    assert on_meta(lambda: spec.model_cls(sizes)) == total_parameters(of.architecture)
    p = config.parallelism
    ParallelDims(
        dp_replicate=p.data_parallel_replicate_degree,
        dp_shard=p.data_parallel_shard_degree,
        cp=p.context_parallel_degree,
        tp=p.tensor_parallel_degree,
        pp=p.pipeline_parallel_degree,
        ep=p.expert_parallel_degree,
        etp=p.expert_tensor_parallel_degree,
        world_size=of.decisions.num_gpus,
    )


@pytest.mark.parametrize("plan", [{"zero": 3, "cp": 2}, {"zero": 2}, {"zero": 0}])
def test_accelerate_reads_its_yaml(plan, tmp_path):
    arguments = pytest.importorskip("accelerate.commands.config.config_args")
    of = job("llama-2-7b", **plan)
    write(tmp_path, LAUNCHERS["accelerate"](of))
    config = arguments.load_config_from_file(str(tmp_path / "accelerate.yaml"))
    assert (config.num_processes, config.num_machines) == (of.decisions.num_gpus, of.decisions.nodes)
    if of.decisions.zero:
        assert config.fsdp_config["fsdp_reshard_after_forward"] == (of.decisions.zero == 3)
        assert config.parallelism_config["parallelism_config_cp_size"] == of.decisions.cp


@pytest.mark.parametrize(
    "card", ["llama-2-7b", "llama-3-70b", "qwen-2.5-7b", "qwen-3-30b-a3b", "mixtral-8x7b", "mistral-7b"]
)
def test_transformers_builds_the_model_from_the_config(card, tmp_path):
    transformers = pytest.importorskip("transformers")
    of = job(card, zero=3)
    (tmp_path / "config.json").write_text(LAUNCHERS["deepspeed"](of)["config.json"])
    config = transformers.AutoConfig.from_pretrained(str(tmp_path))
    count = on_meta(lambda: transformers.AutoModelForCausalLM.from_config(config))
    assert count == total_parameters(of.architecture)


@pytest.mark.parametrize("zero", [0, 1, 2, 3])
def test_deepspeed_reads_its_json(zero, tmp_path, monkeypatch):
    config = pytest.importorskip("deepspeed.runtime.config")
    of = job("llama-2-7b", zero=zero)
    data = json.loads(LAUNCHERS["deepspeed"](of)["ds_config.json"])
    monkeypatch.setattr(config.dist, "get_world_size", lambda *_: of.decisions.num_gpus)
    monkeypatch.setattr(config.dist, "get_rank", lambda *_: 0)
    read = config.DeepSpeedConfig(data)
    assert read.train_batch_size == of.decisions.global_batch
    assert read.gradient_accumulation_steps == of.decisions.num_microbatches
    assert read.zero_config.stage == zero
