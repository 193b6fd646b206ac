"""Launch files read back give the plan they were written from, with nothing said beside them.

Every target that has an importer: Megatron-LM, torchtitan (TOML and recipe, and the scripts that start
them) and DeepSpeed (JSON and script, with a Hugging Face model or Megatron-DeepSpeed).
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_export import PROBLEMS, SOLUTIONS, candidates, for_target, job
from typer.testing import CliRunner

from costmodel.run import Fabric
from planner.cli.app import app
from planner.errors import InvalidInput
from planner.export import LAUNCHERS, CannotExport, export, job_of
from planner.export.job import Job
from planner.importers import Given, Launch, read_launches, torchtitan
from planner.importers.launch import completed
from planner.importers.report import report
from planner.importers.torchtitan_model import facts
from planner.runs import DescribedRun, describe
from planner.solution import read_solution
from planner.switches import SWITCHES, overlaps_of

FILES = {
    "megatron": ("launch.sh",),
    "torchtitan": ("torchtitan_0.2.toml", "recipe.py", "launch.sh", "launch_0.2.sh"),
    "deepspeed": ("ds_config.json", "launch.sh"),
}
"""What of each target's files can be read."""
ENDS = {"name", "source", "max_seq_len"}
"""What no launcher is told of a model."""
SOME = {"megatron": 37, "torchtitan": 11, "deepspeed": 3}
"""One candidate in so many: enough for every combination of two decisions in a second or two."""


def given_back(of: Job, file: Path) -> dict[str, tuple[object, object]]:
    """What of the plan is another thing in the run that the file is read as: (written, read)."""
    (launch,) = read_launches(file, Given())
    assert not launch.refused
    assert [each.text for each in launch.findings if each.level == "error"] == []
    found = describe(launch.written, folder=file.parent)
    assert isinstance(found, DescribedRun), found
    read, written = as_read(found, of, launch.framework), as_written(of)
    return {key: (written[key], read[key]) for key in written if written[key] != read[key]}


def as_written(of: Job) -> dict[str, object]:
    d = of.decisions
    names = ("tp", "cp", "pp", "vpp", "dp", "ep", "etp", "micro_batch", "num_microbatches", "zero")
    return {name: getattr(d, name) for name in names} | {
        "zero_scope": d.zero_scope,
        "gpu": d.gpu,
        "num_gpus": d.num_gpus,
        "gpus_per_node": of.gpus_per_node,
        "nic": pytest.approx(of.fabric.nic),
        "global_batch": d.global_batch,
        "seq_len": of.seq_len,
        "fp8": d.precision == "fp8",
        "sequence_parallel": d.sequence_parallel,
        "modules": set(d.recompute_modules),
        "layers": of.layers,
        "recomputed": of.recomputed,
        **{name: getattr(d, name) for name in (*SWITCHES, "ep_overlap")},
        "model": of.architecture.model_dump(exclude=unsaid(of)),
    }


def as_read(found: DescribedRun, of: Job, framework: str) -> dict[str, object]:
    run, d = found.run, of.decisions
    sizes = ("tp", "cp", "pp", "vpp", "dp", "ep", "etp", "zero")
    switches = overlaps_of(
        run.architecture, run.stack, framework, {name: int(getattr(run, name)) for name in sizes}
    )
    if run.stack.name.startswith("megatron-deepspeed"):
        switches["dp_overlap"] = d.dp_overlap  # its profile waits for gradients, whatever the JSON says
    names = ("tp", "cp", "pp", "vpp", "dp", "ep", "micro_batch", "num_microbatches", "zero")
    return {name: int(getattr(run, name)) for name in names} | {
        "zero_scope": "node" if run.shard_ranks < run.weight_ranks else "full",
        # Without experts their tensor parallelism is nobody's, and without TP so is sequence parallelism.
        "etp": int(run.etp) if of.architecture.moe else d.etp,
        "gpu": run.gpu.name,
        "num_gpus": found.facts.num_gpus,
        "gpus_per_node": run.fabric.gpus_per_node,
        "nic": run.fabric.nic,
        "global_batch": found.facts.global_batch,
        "seq_len": run.seq_len,
        "fp8": "fp8" in run.precision,
        "sequence_parallel": d.tp > 1 and run.stack.tensor_parallel.sequence_parallel,
        "modules": set(run.recompute_modules),
        "layers": list(found.layers),
        "recomputed": list(found.recomputed),
        **switches,
        "ep_overlap": run.stack.expert_parallel.overlap,
        "model": run.architecture.model_dump(exclude=unsaid(of)),
    }


def unsaid(of: Job) -> set[str]:
    """Latent attention has no head_dim, and its norms are on the compressed queries and keys."""
    return ENDS | ({"head_dim", "qk_norm"} if of.architecture.mla else set())


def written_to(folder: Path, files: dict[str, str]) -> None:
    folder.mkdir(exist_ok=True)
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")


def both_ways(target: str, of: Job, folder: Path) -> bool:
    """Whether the plan is written; asserts that every file of it gives the plan back."""
    of = for_target(target, of)
    try:
        files = LAUNCHERS[target](of)
    except CannotExport:
        return False
    written_to(folder, files)
    for name in FILES[target]:
        assert given_back(of, folder / name) == {}, name
    return True


@pytest.mark.parametrize("problem", PROBLEMS)
@pytest.mark.parametrize("target", FILES)
def test_candidates_come_back(target: str, problem: str, tmp_path: Path) -> None:
    """Dense and MoE, all sizes, ZeRO stages and recompute modes that the search knows."""
    for of in candidates(problem)[:: SOME[target]]:
        both_ways(target, of, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("target", FILES)
def test_every_candidate_comes_back(target: str, tmp_path: Path) -> None:
    jobs = [of for name in PROBLEMS for of in candidates(name)]
    assert sum(both_ways(target, of, tmp_path) for of in jobs) > 60


@pytest.mark.parametrize("path", SOLUTIONS, ids=lambda path: path.stem)
def test_kept_solutions_come_back(path: Path, tmp_path: Path) -> None:
    of = job_of(read_solution(path), 1, path)
    if of.decisions.mixed is not None:
        pytest.skip("a launch on two pools is written, and not read back")
    written = {target: both_ways(target, of, tmp_path / target) for target in FILES}
    assert written["megatron"]


PLANS = [
    ("megatron", {"layers": [19, 21, 21, 19], "pp": 4, "recomputed": [4] * 4}),
    ("megatron", {"layers": [11, 10, 10, 9, 10, 10, 10, 10], "recomputed": [3] * 8, "pp": 4, "vpp": 2}),
    ("megatron", {"pp": 4, "vpp": 5, "tp": 4, "recomputed": [4] * 20}),
    (
        "megatron",
        {"card": "deepseek-v3", "layers": [15, 16, 15, 15], "pp": 4, "ep": 8, "modules": ("moe_act",)},
    ),
    ("megatron", {"card": "qwen-3-30b-a3b", "ep": 8, "etp": 1, "tp": 2, "zero": 3, "precision": "fp8"}),
    ("megatron", {"zero": 2}),
    ("megatron", {"zero_scope": "node", "tp": 2, "cp": 2, "pp": 2, "dp": 8}),
    ("megatron", {"zero_scope": "node", "zero": 3, "dp": 32}),
    ("megatron", {"zero_scope": "node", "card": "qwen-3-30b-a3b", "ep": 4, "tp": 2, "dp": 16}),
    ("torchtitan", {"zero_scope": "node", "zero": 3, "dp": 32}),
    ("torchtitan", {"zero_scope": "node", "zero": 2, "cp": 4, "tp": 2, "dp": 4}),
    ("torchtitan", {"zero_scope": "node", "pp": 4, "tp": 2, "dp": 8}),
    ("torchtitan", {"zero_scope": "node", "card": "qwen-3-30b-a3b", "zero": 2, "ep": 8, "tp": 2, "dp": 16}),
    ("megatron", {"zero": 0, "dp": 1, "tp": 8}),
    ("megatron", {"tp": 4, "pp": 4, "vpp": 5, "tp_overlap": False}),
    ("megatron", {"tp": 4, "pp": 4, "vpp": 5, "dp_overlap": False}),
    ("megatron", {"tp": 4, "pp": 4, "vpp": 5, "pp_overlap": False}),
    ("megatron", {"card": "qwen-3-30b-a3b", "ep": 8, "ep_overlap": True, "modules": ("moe_act",)}),
    ("megatron", {"card": "qwen-3-30b-a3b", "ep": 8, "tp": 2, "pp": 2, "vpp": 2, "ep_overlap": True}),
    ("megatron", {"card": "qwen-3-30b-a3b", "tp": 8, "ep": 4, "dp": 1, "zero": 0}),
    ("torchtitan", {"zero": 3, "tp": 4, "tp_overlap": False}),
    ("deepspeed", {"zero": 2, "card": "llama-2-7b", "dp_overlap": False}),
    ("deepspeed", {"zero": 3, "card": "llama-2-7b", "dp_overlap": False}),
    ("megatron", {"cp": 4, "dp": 2, "modules": ("core_attn", "mlp", "layernorm")}),
    ("torchtitan", {"pp": 4, "vpp": 2, "tp": 8}),
    ("torchtitan", {"pp": 2, "vpp": 3, "layers": [13, 14, 14, 13, 13, 13]}),
    ("torchtitan", {"pp": 3, "layers": [26, 28, 26], "recomputed": [26, 28, 26], "micro_batch": 2}),
    ("torchtitan", {"pp": 4, "zero": 3, "num_microbatches": 12}),
    ("torchtitan", {"zero": 3, "cp": 2, "tp": 4}),
    ("torchtitan", {"zero": 2, "num_microbatches": 1}),
    ("torchtitan", {"zero": 0}),
    ("torchtitan", {"card": "llama-3-70b", "zero": 3, "modules": ("per_op",)}),
    ("torchtitan", {"card": "deepseek-v2", "zero": 3, "ep": 8, "layers": [60]}),
    ("torchtitan", {"card": "qwen-3-30b-a3b", "zero": 2, "ep": 4, "tp": 2, "dp": 4}),
    *(("deepspeed", {"zero": zero, "recomputed": [80], "micro_batch": 2}) for zero in range(4)),
    ("deepspeed", {"zero": 1, "tp": 4, "pp": 2, "recomputed": [40, 40]}),
    ("deepspeed", {"zero": 0, "pp": 4}),
    ("deepspeed", {"zero": 2, "tp": 8, "modules": ("core_attn",)}),
    ("deepspeed", {"zero": 3, "card": "qwen-3-30b-a3b"}),
    ("deepspeed", {"zero": 3, "card": "mixtral-8x7b"}),
]


@pytest.mark.parametrize(("target", "plan"), PLANS)
def test_a_plan_comes_back(target: str, plan: dict[str, object], tmp_path: Path) -> None:
    assert both_ways(target, job(**plan), tmp_path)


def test_another_network_comes_back_and_another_node(tmp_path: Path) -> None:
    of = replace(job(tp=4, dp=4), fabric=Fabric(4, 4, 2e11, 12.5e9))
    of = replace(of, decisions=of.decisions.model_copy(update={"nodes": 4}))
    assert both_ways("megatron", of, tmp_path)


def test_a_model_without_mtp_comes_back_without(tmp_path: Path) -> None:
    """torchtitan registers DeepSeek-V3, and trains it without multi-token prediction."""
    from costmodel.cards import load_card

    plain = load_card("deepseek-v3").model_copy(update={"mtp_layers": 0})
    assert both_ways("torchtitan", job(plain, layers=[61], zero=3, ep=8), tmp_path)


def test_what_the_command_line_says_goes_before_the_comment(tmp_path: Path) -> None:
    written_to(tmp_path, LAUNCHERS["megatron"](job(pp=2)))
    (launch,) = read_launches(tmp_path / "launch.sh", Given(gpu="H100"))
    assert launch.written["gpu"] == "H100"
    assert "interconnect" not in launch.written


@pytest.mark.parametrize(
    "comment",
    [
        "# planner: {",
        '# planner: {"gpu": "H800"}',
        '# planner: {"gpu": 3, "gpus_per_node": 0}',
        "# planner: {}",
    ],
)
def test_a_comment_that_is_none_is_passed_over(comment: str, tmp_path: Path) -> None:
    text = LAUNCHERS["torchtitan"](job("llama-3-8b", zero=3))["torchtitan_0.2.toml"]
    lines = [comment if line.startswith("# planner:") else line for line in text.splitlines()]
    (tmp_path / "t.toml").write_text("\n".join(lines))
    with pytest.raises(InvalidInput, match="--gpu"):
        read_launches(tmp_path / "t.toml", Given())


@pytest.mark.parametrize(
    "name", ["70b_3T_60days", "deepseek_v2_8T_1024h800", "llama7b_2T_256h800", "moe_1.8T_15T"]
)
def test_megatrons_command_line_is_predicted_as_the_plan_was(name: str, tmp_path: Path) -> None:
    path = next(path for path in SOLUTIONS if path.stem == name)
    result = CliRunner().invoke(app, ["export", str(path), "--to", "megatron", "-o", str(tmp_path)])
    assert result.exit_code == 0, result.output
    found = report(one(tmp_path / "launch.sh"))
    assert found["step_time_s"] == pytest.approx(read_solution(path).plans[0].estimate.step_time_s, rel=1e-6)
    assert found["fits"]


def one(file: Path) -> Launch:
    (launch,) = read_launches(file, Given())
    return launch


# Runs that people wrote themselves

TRAINER = """
deepspeed --num_nodes 4 --num_gpus 8 train.py --deepspeed ds.json --model_name_or_path model \\
    --per_device_train_batch_size 2 --gradient_accumulation_steps 8 --max_seq_length 2048 \\
    --gradient_checkpointing True --bf16
"""
AUTO = """{"train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto", "bf16": {"enabled": "auto"},
"gradient_accumulation_steps": "auto", "zero_optimization": {"stage": 2}}"""


def test_a_script_with_the_trainer_says_what_the_json_leaves_to_it(tmp_path: Path) -> None:
    config = LAUNCHERS["deepspeed"](job("llama-2-7b", zero=2))["config.json"]
    written_to(tmp_path / "model", {"config.json": config})
    written_to(tmp_path, {"run.sh": TRAINER, "ds.json": AUTO})
    for name in ("run.sh", "ds.json"):
        (launch,) = read_launches(tmp_path / name, Given(gpu="A100"))
        wanted = {"num_gpus": 32, "micro_batch": 2, "global_batch": 512, "seq_len": 2048, "zero_stage": 2}
        assert {key: launch.written[key] for key in wanted} == wanted
        assert launch.written["recompute"] == "full"
        assert launch.written["model"]["hidden"] == 4096
        assert launch.written["framework"] == "DeepSpeed"


MEGATRON_DEEPSPEED = """
deepspeed --num_nodes 2 --num_gpus 8 pretrain_gpt.py --num-layers 32 --hidden-size 4096 --num-attention-heads 32 \\
    --num-key-value-heads 8 --seq-length 4096 --max-position-embeddings 4096 --swiglu --disable-bias-linear \\
    --ffn-hidden-size 14336 --normalization rmsnorm --untie-embeddings-and-output-weights --vocab-size 128256 \\
    --use-rotary-position-embeddings --tensor-model-parallel-size 4 --micro-batch-size 1 --global-batch-size 64 \\
    --bf16 --deepspeed --deepspeed_config ds.json --zero-stage STAGE --no-pipeline-parallel {more}
"""
STAGE_1 = '{"train_batch_size": 64, "train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": true}, ' + (
    '"zero_optimization": {"stage": 1}}'
)


def megatron_deepspeed(folder: Path, stage: int = 1, more: str = "", json: str = STAGE_1) -> Launch:
    text = MEGATRON_DEEPSPEED.replace("STAGE", str(stage)).format(more=more)
    written_to(folder, {"run.sh": text, "ds.json": json})
    (launch,) = read_launches(folder / "run.sh", Given(gpu="A100"))
    return launch


def test_megatron_deepspeed_is_not_taken_for_megatron_core(tmp_path: Path) -> None:
    launch = megatron_deepspeed(tmp_path, more="--use-flash-attn-v2")
    found = describe(launch.written)
    assert isinstance(found, DescribedRun)
    assert (launch.framework, found.run.stack.name) == ("deepspeed", "megatron-deepspeed-flash")
    assert (found.run.architecture.kv_heads, found.run.architecture.norm, found.run.zero) == (8, "rms", 1)
    assert "unknown_option" not in {each.code for each in launch.findings}
    assert megatron_deepspeed(tmp_path).written["flash_attention"] is False


def test_what_its_json_says_otherwise_is_found(tmp_path: Path) -> None:
    launch = megatron_deepspeed(tmp_path, stage=2)
    (found,) = [each for each in launch.findings if each.code == "contradiction"]
    assert found.text == "zero stage is 2 on the command line and 1 in the JSON."
    offloaded = STAGE_1.replace('"stage": 1', '"stage": 1, "offload_optimizer": {"device": "cpu"}')
    assert "offload_optimizer" in megatron_deepspeed(tmp_path, json=offloaded).refused
    assert "experts" in megatron_deepspeed(tmp_path, more="--num-experts 8 --topk 1").refused


@pytest.mark.parametrize("launcher", FILES)
def test_a_slurm_script_is_followed_into_the_script_that_it_starts(launcher: str, tmp_path: Path) -> None:
    of = job("llama-3-8b", zero=3, dp=16)
    written_to(tmp_path, export(of, "slurm", launcher))
    assert given_back(of, tmp_path / "job.slurm") == {}


def test_directives_of_the_outer_script_count_the_gpus(tmp_path: Path) -> None:
    inner = TRAINER.replace("deepspeed --num_nodes 4 --num_gpus 8", "python")
    outer = "#!/bin/bash\n#SBATCH --nodes=4\n#SBATCH --gpus-per-node=8\nsrun bash run.sh\n"
    written_to(tmp_path, {"run.sh": inner, "ds.json": AUTO, "job.slurm": outer})
    (launch,) = read_launches(tmp_path / "job.slurm", Given(gpu="A100", model="llama-2-7b"))
    assert launch.written["num_gpus"] == 32


def test_a_json_that_a_script_names_has_to_be_there(tmp_path: Path) -> None:
    written_to(tmp_path, {"run.sh": TRAINER})
    with pytest.raises(InvalidInput, match=r"ds\.json, which is not there"):
        read_launches(tmp_path / "run.sh", Given(gpu="A100"))


TITAN = """[model]
name = "llama3"
flavor = "8B"
[training]
local_batch_size = 8
seq_len = 8192
[parallelism]
pipeline_parallel_degree = 4
data_parallel_shard_degree = 2
"""


def titan(folder: Path, more: str = "", script: str = "") -> Launch:
    written_to(folder, {"t.toml": TITAN + more, "run.sh": script})
    (launch,) = read_launches(folder / ("run.sh" if script else "t.toml"), Given(gpu="H100"))
    return launch


@pytest.mark.parametrize(
    ("more", "layers"),
    [
        # 32 layers, embedding and head as one each: 34 on 4 stages are 9 + 9 + 8 + 8.
        ("", (8, 9, 8, 7)),
        (
            "pipeline_parallel_first_stage_less_layers = 0\npipeline_parallel_last_stage_less_layers = 0",
            (8,) * 4,
        ),
        ('pipeline_parallel_schedule = "Interleaved1F1B"', (4, 5, 4, 4, 4, 4, 4, 3)),
        (
            'pipeline_parallel_schedule = "Interleaved1F1B"\npipeline_parallel_layers_per_stage = 3',
            (2, 3, 3, 3, 3, 3, 3, 3, 3, 3, 2, 1),
        ),
    ],
)
def test_layers_are_dealt_as_torchtitan_deals_them(
    more: str, layers: tuple[int, ...], tmp_path: Path
) -> None:
    found = describe(titan(tmp_path, more).written)
    assert isinstance(found, DescribedRun)
    assert found.layers == layers


@pytest.mark.parametrize(
    "more",
    [
        "pipeline_parallel_layers_per_stage = 6",
        'module_fqns_per_model_part = [["layers.0"], ["layers.1"], ["layers.2"]]',
        "pipeline_parallel_first_stage_less_layers = 20",
    ],
)
def test_stages_that_torchtitan_stops_at_are_found(more: str, tmp_path: Path) -> None:
    assert "virtual_stages" in {each.code for each in titan(tmp_path, more).findings}


def test_options_of_a_script_go_before_the_toml(tmp_path: Path) -> None:
    script = (
        "CONFIG_FILE=${CONFIG_FILE:-./t.toml}\n"
        "torchrun --nproc_per_node=8 -m torchtitan.train --job.config_file ${CONFIG_FILE} "
        "--training.seq_len 4096 --parallelism.pipeline_parallel_degree=2 --parallelism.data_parallel_shard_degree -1"
    )
    launch = titan(tmp_path, script=script)
    assert {key: launch.written[key] for key in ("num_gpus", "seq_len", "pp")} == {
        "num_gpus": 8,
        "seq_len": 4096,
        "pp": 2,
    }


RECIPE = """
from torchtitan.models.llama3 import model_registry

def mine() -> Trainer.Config:
    return Trainer.Config(
        model_spec=model_registry("8B"),
        training=TrainingConfig({training}),
        parallelism=ParallelismConfig(data_parallel_shard_degree=8, {parallelism}),
    )
"""


def recipe(folder: Path, training: str, parallelism: str = "") -> Launch:
    written_to(folder, {"r.py": RECIPE.format(training=training, parallelism=parallelism)})
    (launch,) = read_launches(folder / "r.py", Given(gpu="H100"))
    return launch


def test_a_recipe_that_counts_tokens_is_read_in_sequences(tmp_path: Path) -> None:
    tokens = "num_tokens_per_microbatch_per_dp_rank=16384, num_tokens_per_train_step=2097152, max_context_length=8192"
    launch = recipe(tmp_path, tokens, "pipeline_parallel_degree=2, num_pp_microbatches=16")
    wanted = {"seq_len": 8192, "micro_batch": 2, "global_batch": 256, "num_gpus": 16, "model": "llama-3-8b"}
    assert {key: launch.written[key] for key in wanted} == wanted
    assert launch.written["recompute_detail"] == "per-op"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x = (", "not valid Python"),
        ("x = 1", "holds no torchtitan recipe"),
        (RECIPE.format(training="seq_len=LENGTH", parallelism=""), "seq_len is computed"),
        (RECIPE.format(training="", parallelism="").replace('"8B"', '"9B"'), "of flavor '9B'"),
        (RECIPE.format(training="quantize=Float8Linear()", parallelism=""), "quantize is computed"),
        (RECIPE.format(training="seq_len='long'", parallelism=""), "training.seq_len"),
        (
            RECIPE.format(training="seq_len=8, num_tokens_per_train_step='x'", parallelism=""),
            "per_train_step",
        ),
        (RECIPE.format(training="max_context_length=0", parallelism=""), "max_context_length"),
        (RECIPE.format(training="", parallelism="tensor_parallel_degree=-1"), "tensor_parallel_degree"),
    ],
)
def test_a_recipe_that_cannot_be_read_is_refused(text: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "r.py").write_text(text)
    result = CliRunner().invoke(app, ["estimate", str(tmp_path / "r.py"), "--gpu", "H100", "--gpus", "8"])
    assert (result.exit_code, result.stdout) == (2, "")
    assert said in result.stderr


SIZES = {"dim": 1024, "n_layers": 4, "n_heads": 16, "vocab_size": 32000, "multiple_of": 256}


@pytest.mark.parametrize(
    ("change", "ffn"),
    [
        ({}, 2816),
        ({"ffn_dim_multiplier": 1.3}, 3584),
        ({"hidden_dim": 3000}, 3000),
        ({"n_heads": 0}, None),
        ({"dim": "x"}, None),
    ],
)
def test_sizes_of_ones_own_are_read_or_refused(
    change: dict[str, object], ffn: int | None, tmp_path: Path
) -> None:
    arguments = ", ".join(f"{name}={value!r}" for name, value in (SIZES | change).items())
    (tmp_path / "mine.py").write_text(f"llama3_args['mine'] = TransformerModelArgs({arguments})")
    text = TITAN.replace('"8B"', '"mine"').replace("pipeline_parallel_degree = 4", "")
    (tmp_path / "t.toml").write_text(text + '[experimental]\ncustom_import = "mine"\n')
    known = Given(gpu="H100", gpus=2)
    if ffn is None:
        with pytest.raises(InvalidInput, match="of flavor 'mine'"):
            read_launches(tmp_path / "t.toml", known)
        return
    (launch,) = read_launches(tmp_path / "t.toml", known)
    assert (launch.written["model"]["ffn"], launch.written["model"]["kv_heads"]) == (ffn, 16)


KEYS = ["local_batch_size", "global_batch_size", "seq_len", "steps"]
SETTINGS = st.dictionaries(
    st.sampled_from(
        [
            *(("training", key) for key in KEYS),
            *(("parallelism", key) for key in sorted(facts()["parallelism"])),
            ("model", "flavor"),
            ("model", "converters"),
            ("compile", "enable"),
            ("compile", "components"),
            ("activation_checkpoint", "mode"),
            ("activation_checkpoint", "selective_ac_option"),
            ("quantize", "linear"),
            ("experimental", "custom_import"),
        ]
    ),
    st.one_of(
        st.integers(-2, 100),
        st.booleans(),
        st.sampled_from(["", "never", "op", "full", "1F1B", "Interleaved1F1B", "70B", "model"]),
        st.lists(st.lists(st.sampled_from(["layers.0", "norm"]), max_size=2), max_size=3),
    ),
    max_size=6,
)


@given(SETTINGS)
def test_any_settings_are_read_or_refused(changes: dict[tuple[str, str], object]) -> None:
    more = [(section, key, value) for (section, key), value in changes.items()]
    with TemporaryDirectory() as folder:
        (Path(folder) / "t.toml").write_text(TITAN)
        try:
            (launch,) = torchtitan.read(Path(folder) / "t.toml", Given(gpu="H100", gpus=64), more)
            report(completed(launch, Given(gpu="H100", gpus=64), "t.toml", Path()))
        except InvalidInput:
            return
