"""Launch files say what the plan says, or are refused: read back, every number is the plan's."""

from __future__ import annotations

import ast
import json
import shutil
import subprocess
import tomllib
from dataclasses import replace
from functools import cache
from math import ceil
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from launch_files import OPTIONS, READERS, arrays, megatron_options, run_recipe, unrolled
from typer.testing import CliRunner

from costmodel.architecture import Architecture
from costmodel.cards import card_names, load_card
from costmodel.run import Fabric
from costmodel.stack import load_stack
from planner.cli.app import app
from planner.export import LAUNCHERS, TARGETS, CannotExport, able, export, job_of
from planner.export.job import Job
from planner.export.layout import pipeline_layout
from planner.export.undecided import ROTARY, UNDECIDED
from planner.listing import listed, records
from planner.problem import parse_problem
from planner.resolve import instance_of
from planner.solution import Decisions, Estimate, MemoryParts, Stage, read_solution
from planner.switches import SWITCHES, overlaps_of

ROOT = Path(__file__).parent.parent
SOLUTIONS = sorted((ROOT / "solutions").glob("*.yaml"))
BASH = shutil.which("bash")
SIZES = ("tp", "cp", "pp", "vpp", "dp", "ep", "etp")
ESTIMATE = Estimate(
    step_time_s=1.5,
    days=3.0,
    dollars=1e5,
    mfu=0.4,
    hfu=0.4,
    tokens_per_s_per_gpu=1000.0,
    memory_gib=MemoryParts(total=60.0),
    breakdown_s={"gemm": 1.5},
)


def stages(layers, pp, vpp, recomputed):
    """What each rank holds of a list of virtual stages."""
    return tuple(
        Stage(
            layers=sum(layers[rank::pp]),
            recomputed_layers=sum(recomputed[rank::pp]),
            chunks=tuple(layers[rank::pp]) if vpp > 1 else (),
            recomputed_chunks=tuple(recomputed[rank::pp]) if vpp > 1 else (),
        )
        for rank in range(pp)
    )


def job(
    card="llama-2-70b",
    *,
    stack="megatron-core",
    framework="megatron",
    seq_len=4096,
    layers=None,
    recomputed=None,
    **given,
):
    """A plan by hand; what is not given is 1, layers are even, and overlap is as the software has it."""
    model = card if isinstance(card, Architecture) else load_card(card)
    sizes = dict.fromkeys(("tp", "cp", "pp", "vpp", "ep", "etp", "micro_batch"), 1)
    sizes |= {"dp": 8, "num_microbatches": 4, "zero": 1} | given
    parts = sizes["pp"] * sizes["vpp"]
    layers = layers or [model.layers // parts] * parts
    again = recomputed or [0] * parts
    gpus = sizes["tp"] * sizes["cp"] * sizes["pp"] * sizes["dp"]
    switched = {name: sizes.pop(name) for name in (*SWITCHES, "ep_overlap") if name in sizes}
    switches = overlaps_of(model, load_stack(stack), framework, sizes)
    switches["tp_overlap"] &= given.get("sequence_parallel", True)
    modules = tuple(sizes.pop("modules", ()))
    decisions = Decisions(
        gpu="H800",
        num_gpus=gpus,
        nodes=max(gpus // 8, 1),
        global_batch=sizes["micro_batch"] * sizes["num_microbatches"] * sizes["dp"],
        recompute="selective" if modules else "full" if any(again) else "none",
        recompute_modules=modules,
        precision=sizes.pop("precision", "bf16"),
        sequence_parallel=sizes.pop("sequence_parallel", sizes["tp"] > 1),
        stages=stages(layers, sizes["pp"], sizes["vpp"], again),
        **switches | switched,
        **sizes,
    )
    return Job(
        name="by_hand",
        architecture=model,
        decisions=decisions,
        estimate=ESTIMATE,
        tokens=10**12,
        seq_len=seq_len,
        stack=load_stack(stack),
        fabric=Fabric(8, 8, 2e11, 5e10),
        source="planner, by hand",
    )


def for_target(target, of):
    """The plan with the overlap that the target's framework has as well."""
    framework = target if target in ("torchtitan", "deepspeed", "nanotron") else "megatron"
    sizes = {name: getattr(of.decisions, name) for name in (*SIZES, "zero")}
    switches = overlaps_of(of.architecture, of.stack, framework, sizes)
    both = {name: on and getattr(of.decisions, name) for name, on in switches.items()}
    return replace(of, decisions=of.decisions.model_copy(update=both))


def expected(of):
    """The plan's numbers as a reader of launch files finds them."""
    d = of.decisions
    names = (*SIZES, "micro_batch", "num_microbatches", "global_batch", "zero", "zero_scope", "nodes")
    names = (*names, *SWITCHES, "ep_overlap")
    return {name: getattr(d, name) for name in names} | {
        "world": d.num_gpus,
        "seq_len": of.seq_len,
        "steps": ceil(of.tokens / (d.global_batch * of.seq_len)),
        "sequence_parallel": d.sequence_parallel,
        "precision": d.precision,
        "layers": of.layers if d.pp > 1 else None,
        "recomputed": of.recomputed,
        "modules": sorted(d.recompute_modules),
        "whole": d.recompute == "full",
    }


def check(target, of):
    """Exports, reads back, compares; returns whether it was not refused."""
    of = for_target(target, of)
    try:
        files = LAUNCHERS[target](of)
    except CannotExport:
        return False
    if target == "bridge":
        ast.parse(files["recipe.py"])
        return True
    found, wanted = READERS[target](files), expected(of)
    if found.get("layers") is not None and wanted["layers"] is None:
        wanted["layers"] = of.layers
    assert found == {name: wanted[name] for name in found}
    return True


# Every combination of decisions of a few problems, each with the plainest stages.

PROBLEMS = {
    "dense": {
        "model": "llama-3-8b",
        "training": {"tokens": "1T", "seq_len": 8192, "global_batch": "256 sequences"},
        "hardware": [{"gpu": "H100", "nodes": {"min": 2, "max": 4}}],
        "search": {"micro_batch": [1, 2], "framework": "any", "vpp": [1, 3]},
    },
    "llama-2": {
        "model": "llama-2-13b",
        "training": {"tokens": "1T", "seq_len": 4096, "global_batch": "128 sequences", "precision": "fp8"},
        "hardware": [{"gpu": "H100", "nodes": {"min": 4, "max": 4}}],
        "search": {"micro_batch": [1], "vpp": [1, 2]},
    },
    "moe": {
        "model": "qwen-3-30b-a3b",
        "training": {"tokens": "1T", "seq_len": 4096, "global_batch": "512 sequences"},
        "hardware": [{"gpu": "H800", "nodes": {"min": 4, "max": 8}}],
        "search": {
            "micro_batch": [1],
            "ep": [1, 8],
            "vpp": [1, 2],
            "pp": [1, 4],
            "framework": "any",
        },
    },
    "mla": {
        "model": "deepseek-v2-lite",
        "training": {"tokens": "1T", "seq_len": 4096, "global_batch": "512 sequences"},
        "hardware": [{"gpu": "H800", "nodes": {"min": 2, "max": 4}}],
        "search": {"micro_batch": [1], "ep": [1, 4], "vpp": [1, 2], "pp": [1, 3], "framework": "any"},
    },
}
ONE_EACH = ("tp", "cp", "pp", "vpp", "ep", "etp", "zero", "zero_scope", "recompute")
"""Decisions of which each combination is exported once, however many plans have it."""


@cache
def candidates(name):
    """A candidate for each combination of decisions, as jobs."""
    problem = parse_problem(PROBLEMS[name] | {"name": name})
    instance = instance_of(problem)
    found = {}
    for block in listed(instance):
        for record in records(instance, block):
            d = record["decisions"]
            key = tuple(d[each] for each in ONE_EACH)
            if key not in found:
                found[key] = job(problem.model.architecture, seq_len=problem.training.seq_len)
                found[key] = replace(found[key], decisions=Decisions.model_validate(d))
    return tuple(found.values())


@pytest.mark.parametrize("name", PROBLEMS)
def test_candidates_are_varied(name):
    sizes = {each: {getattr(of.decisions, each) for of in candidates(name)} for each in ONE_EACH}
    assert len(candidates(name)) > 30
    assert {"none", "selective", "full"} == sizes["recompute"]
    assert sizes["zero_scope"] == {"full", "node"} if name != "llama-2" else True
    assert len(sizes["tp"]) > 1
    assert len(sizes["pp"]) > 1


@pytest.mark.parametrize("target", LAUNCHERS)
def test_every_candidate_is_written_as_it_is_or_refused(target):
    # Bridge's recipe is written from Megatron-LM's settings, and slowest to check: some are enough.
    step = 4 if target == "bridge" else 1
    some = {name: candidates(name)[::step] for name in PROBLEMS}
    written = {name: sum(check(target, of) for of in jobs) for name, jobs in some.items()}
    assert sum(written.values()) > 0
    if target in ("megatron", "bridge"):
        # The plain split recomputes all layers or none, which Megatron can always say.
        assert written == {name: len(jobs) for name, jobs in some.items()}


# Megatron-LM


def test_the_copy_of_megatrons_options_is_whole():
    assert len(OPTIONS) == 878
    assert OPTIONS["--sequence-parallel"] == "flag"


@pytest.mark.parametrize("path", SOLUTIONS, ids=lambda path: path.stem)
@pytest.mark.parametrize("target", LAUNCHERS)
def test_kept_solutions_are_written_as_they_are_or_refused(target, path):
    of = job_of(read_solution(path), 1, path)
    written = check(target, of)
    assert written or target not in ("megatron", "bridge")


@pytest.mark.parametrize("card", card_names())
def test_every_model_card_is_written_with_its_own_shapes_or_refused(card):
    a = load_card(card)
    of = job(a, seq_len=2048)
    if a.norms_per_layer != 2:
        with pytest.raises(CannotExport, match="norms per layer"):
            LAUNCHERS["megatron"](of)
        return
    o = megatron_options(LAUNCHERS["megatron"](of)["launch.sh"])
    assert (int(o.num_layers), int(o.hidden_size), int(o.ffn_hidden_size)) == (a.layers, a.hidden, a.ffn)
    assert int(o.num_attention_heads) == a.heads
    assert int(o.num_query_groups or a.heads) == (a.kv_heads if a.mla is None else a.heads)
    assert bool(o.group_query_attention) == (a.mla is None and a.kv_heads != a.heads)
    assert bool(o.untie_embeddings_and_output_weights) != a.tied_embeddings
    assert bool(o.swiglu) == a.gated_mlp
    assert (o.normalization == "RMSNorm") == (a.norm == "rms")
    assert bool(o.multi_latent_attention) == (a.mla is not None)
    assert (o.position_embedding_type == "learned_absolute") == bool(a.learned_positions)
    assert bool(o.disable_bias_linear) != (a.mlp_bias and a.output_bias)
    if a.mla:
        widths = (o.kv_lora_rank, o.qk_head_dim, o.qk_pos_emb_head_dim, o.v_head_dim)
        assert tuple(map(int, widths)) == (a.mla.kv_lora, a.mla.qk_nope, a.mla.qk_rope, a.mla.v_dim)
    if a.moe:
        assert (int(o.num_experts), int(o.moe_router_topk)) == (a.moe.experts, a.moe.top_k)
        pattern = [1] * a.layers if o.moe_layer_freq == "1" else eval(o.moe_layer_freq)
        assert ["moe" if on else "dense" for on in pattern] == list(a.pattern())


def test_alternating_moe_layers_are_listed_one_by_one():
    moe = {"experts": 8, "top_k": 2, "moe_ffn": 512, "moe_every_n_layers": 2}
    a = Architecture(
        name="x", layers=4, hidden=512, ffn=1024, heads=8, kv_heads=8, head_dim=64, vocab=1000, moe=moe
    )
    o = megatron_options(LAUNCHERS["megatron"](job(a))["launch.sh"])
    assert eval(o.moe_layer_freq) == [0, 1, 0, 1]


def test_windows_in_every_other_layer_leave_the_others_whole():
    o = megatron_options(LAUNCHERS["megatron"](job("gpt-oss-20b"))["launch.sh"])
    assert (o.window_size, o.window_attn_skip_freq, o.softmax_type) == ("127,0", "2", "learnable")
    whole = [i for i in range(1, 25) if i % int(o.window_attn_skip_freq) == 0]
    assert len(whole) == 24 - load_card("gpt-oss-20b").sliding_layers


@given(
    layers=st.lists(st.integers(1, 5), min_size=2, max_size=40),
    mtp=st.integers(0, 2),
)
def test_layouts_unroll_to_the_stages_they_were_written_from(layers, mtp):
    stages = unrolled(pipeline_layout(layers, mtp))
    assert [stage.count("t") for stage in stages] == layers
    assert stages[0].startswith("E")
    assert stages[-1].endswith("m" * mtp + "L")
    assert "".join(stages).count("E") == "".join(stages).count("L") == 1
    assert "".join(stages).count("m") == mtp


def test_a_layout_repeats_equal_stages():
    assert pipeline_layout([1, 2, 2, 2, 3], 1) == "Et|(tt|)*3t*3mL"


def test_uneven_virtual_stages_and_block_recompute_are_read_back():
    of = job(layers=[11, 10, 10, 9, 10, 10, 10, 10], recomputed=[3] * 8, pp=4, vpp=2)
    assert check("megatron", of)


def test_recompute_flags_are_right_for_each_mode():
    def flags(of):
        o = megatron_options(LAUNCHERS["megatron"](of)["launch.sh"])
        return o.recompute_granularity, o.recompute_method, o.recompute_num_layers, o.recompute_modules

    assert flags(job()) == (None, None, None, None)
    assert flags(job(pp=4, recomputed=[20] * 4)) == ("full", "uniform", "1", None)
    assert flags(job(pp=4, recomputed=[7] * 4)) == ("full", "block", "7", None)
    assert flags(job(modules=("layernorm", "mlp"))) == ("selective", None, None, ["layernorm", "mlp"])


def test_overlap_flags_come_with_what_they_need():
    def options(**given):
        return megatron_options(LAUNCHERS["megatron"](job(**given))["launch.sh"])

    o = options(tp=8)
    assert (o.tp_comm_overlap, o.sequence_parallel) == (True, True)
    assert (o.overlap_param_gather, o.overlap_grad_reduce, o.use_distributed_optimizer) == (True, True, True)
    o = options(zero=0)
    assert (o.overlap_param_gather, o.overlap_grad_reduce, o.use_distributed_optimizer) == (
        False,
        True,
        False,
    )
    o = options(tp=8, sequence_parallel=False)
    assert not o.tp_comm_overlap
    o = options(dp=1, tp=8, zero=0)
    assert not o.overlap_grad_reduce


def test_switches_that_are_off_are_off_in_the_launch_file():
    def options(**given):
        return megatron_options(LAUNCHERS["megatron"](job(**given))["launch.sh"])

    plan = {"tp": 4, "pp": 4, "vpp": 5, "dp": 4}
    o = options(**plan)
    assert (o.tp_comm_overlap, o.overlap_grad_reduce, o.no_overlap_p2p_communication) == (True, True, False)
    o = options(**plan, tp_overlap=False, dp_overlap=False, pp_overlap=False)
    assert (o.tp_comm_overlap, o.overlap_grad_reduce, o.overlap_param_gather) == (False, False, False)
    assert o.no_overlap_p2p_communication
    # Latent attention: Transformer Engine switches user buffers off.
    latent = {"card": "deepseek-v3", "layers": [15, 16, 15, 15], "pp": 4, "tp": 2}
    assert not options(**latent).tp_comm_overlap


SWITCHED = [
    ("megatron", {"zero": 3, "dp_overlap": False}, "no overlap of data-parallel"),
    ("megatron", {"pp": 2, "vpp": 2, "pp_overlap": False}, "no overlap of transfers"),
    ("megatron", {"tp": 16, "tp_overlap": True}, "overlap of tensor-parallel .* NVLink"),
    ("megatron", {"card": "deepseek-v2", "tp": 2, "layers": [60], "tp_overlap": True}, "latent attention"),
    ("megatron", {"tp": 2, "sequence_parallel": False, "tp_overlap": True}, "sequence parallelism"),
    ("torchtitan", {"pp": 4, "vpp": 2, "pp_overlap": True}, "overlap of transfers"),
    ("torchtitan", {"zero": 3, "dp_overlap": False}, "no overlap of data-parallel"),
    ("deepspeed", {"tp": 2, "tp_overlap": True}, "overlap of tensor-parallel"),
    ("deepspeed", {"zero": 0, "dp_overlap": True}, "overlap of data-parallel"),
    ("deepspeed", {"pp": 2, "dp_overlap": True}, "overlap of data-parallel"),
    ("nanotron", {"dp_overlap": False}, "no overlap of data-parallel"),
    ("nanotron", {"tp": 2, "sequence_parallel": False, "tp_overlap": True}, "overlap of tensor-parallel"),
    ("accelerate", {"zero": 3, "dp_overlap": False}, "no overlap of data-parallel"),
]


@pytest.mark.parametrize(("target", "plan", "said"), SWITCHED)
def test_overlap_that_a_target_cannot_say_is_refused(target, plan, said):
    with pytest.raises(CannotExport, match=said):
        LAUNCHERS[target](job(**plan))


def test_other_targets_switch_what_they_can():
    of = job("llama-3-8b", zero=3, dp_overlap=False)
    assert (
        json.loads(LAUNCHERS["deepspeed"](of)["ds_config.json"])["zero_optimization"]["overlap_comm"] is False
    )
    for on in (True, False):
        of = job(tp=4, tp_overlap=on)
        config = yaml.safe_load(LAUNCHERS["nanotron"](of)["nanotron.yaml"])
        assert config["parallelism"]["tp_linear_async_communication"] is on
        of = job(tp=4, zero=3, tp_overlap=on)
        data = tomllib.loads(LAUNCHERS["torchtitan"](of)["torchtitan_0.2.toml"])
        assert data["parallelism"]["enable_async_tensor_parallel"] is on


def test_recompute_of_modules_that_the_model_lacks_is_refused():
    for module in ("mla_up_proj", "moe_act"):
        with pytest.raises(CannotExport, match=f"recompute of {module}"):
            LAUNCHERS["megatron"](job(modules=(module,)))


@pytest.mark.parametrize(("zero", "strategy"), [(2, "optim_grads"), (3, "optim_grads_params")])
def test_sharded_gradients_are_megatron_fsdp_with_several_queues(zero, strategy):
    script = LAUNCHERS["megatron"](job(zero=zero))["launch.sh"]
    o = megatron_options(script)
    assert (o.use_megatron_fsdp, o.data_parallel_sharding_strategy) == (True, strategy)
    assert (o.no_gradient_accumulation_fusion, o.ckpt_format) == (True, "fsdp_dtensor")
    assert "unset CUDA_DEVICE_MAX_CONNECTIONS" in script
    assert "export CUDA_DEVICE_MAX_CONNECTIONS=1" in LAUNCHERS["megatron"](job(zero=1))["launch.sh"]


@pytest.mark.parametrize("target", ["megatron", "bridge", "torchtitan", "deepspeed", "nanotron"])
def test_no_target_shards_gradients_beside_a_pipeline(target):
    with pytest.raises(CannotExport, match="ZeRO"):
        LAUNCHERS[target](job(stack="llama-3", pp=2, zero=2))


def test_gradients_dispatcher_and_fp8_follow_the_profile_that_priced_the_plan():
    def options(stack):
        of = job("qwen-3-30b-a3b", stack=stack, precision="fp8", ep=8)
        return megatron_options(LAUNCHERS["megatron"](of)["launch.sh"])

    core, bridge = options("megatron-core"), options("megatron-bridge")
    assert (core.moe_token_dispatcher_type, bridge.moe_token_dispatcher_type) == ("alltoall", "flex")
    assert (core.grad_reduce_in_bf16, bridge.grad_reduce_in_bf16) == (False, True)
    assert (core.fp8_param_gather, bridge.fp8_param_gather) == (False, True)
    assert core.fp8_format == bridge.fp8_format == "hybrid"


def test_overlapped_expert_traffic_has_its_flag_its_queues_and_its_limits():
    hidden = {"card": "qwen-3-30b-a3b", "ep": 8, "ep_overlap": True}
    for more in ({}, {"pp": 2, "vpp": 2}, {"modules": ("moe_act", "layernorm")}):
        script = LAUNCHERS["megatron"](job(**hidden | more))["launch.sh"]
        o = megatron_options(script)
        assert o.overlap_moe_expert_parallel_comm
        assert o.moe_token_dispatcher_type in ("alltoall", "flex")
        assert not o.moe_shared_expert_overlap
        assert "export CUDA_DEVICE_MAX_CONNECTIONS=32" in script
    for plan in ({"pp": 2}, {"recomputed": [48]}, {"modules": ("moe",)}, {"ep": 1}):
        with pytest.raises(CannotExport, match="overlap of the experts' traffic"):
            LAUNCHERS["megatron"](job(**hidden | plan))
    two = load_card("deepseek-v3").model_copy(update={"mtp_layers": 2})
    with pytest.raises(CannotExport, match="2 layers of multi-token prediction"):
        LAUNCHERS["megatron"](job(two, layers=[61], ep=8, ep_overlap=True))


def test_what_the_plan_does_not_decide_stops_the_script_until_it_is_set():
    script = LAUNCHERS["megatron"](job())["launch.sh"]
    for name in ("LR", "MIN_LR", "DATA_PATH", "TOKENIZER_MODEL", "CHECKPOINT_DIR", "ROTARY_BASE"):
        assert f'"${{{name}:?' in script
    if BASH:
        result = subprocess.run([BASH, "-c", script], capture_output=True, text=True, env={}, check=False)
        assert result.returncode != 0
        assert "MEGATRON_PATH" in result.stderr


# Megatron-Bridge


SAME = (
    "num_layers",
    "hidden_size",
    "ffn_hidden_size",
    "num_attention_heads",
    "seq_length",
    "vocab_size",
    "num_query_groups",
    "kv_channels",
    "kv_lora_rank",
    "q_lora_rank",
    "tensor_model_parallel_size",
    "pipeline_model_parallel_size",
    "context_parallel_size",
    "expert_model_parallel_size",
    "expert_tensor_parallel_size",
    "pipeline_model_parallel_layout",
    "mtp_num_layers",
    "recompute_granularity",
    "recompute_method",
    "recompute_num_layers",
    "moe_router_topk",
    "moe_ffn_hidden_size",
    "moe_token_dispatcher_type",
    "softmax_type",
    "position_embedding_type",
)
"""Arguments of the same name in both."""


@pytest.mark.parametrize(
    "of",
    [
        job(pp=4, vpp=2, tp=8),
        job(layers=[19, 21, 21, 19], recomputed=[4] * 4, pp=4),
        job("deepseek-v3", layers=[15, 16, 15, 15], pp=4, ep=8, modules=("mla_up_proj", "moe_act")),
        job("qwen-3-30b-a3b", stack="megatron-bridge", precision="fp8", ep=8, tp=2, zero=3),
        job("gpt-oss-20b", ep=4),
        job("gpt3-175b", tp=8, seq_len=2048),
        job(pp=4, vpp=2, tp=8, tp_overlap=False, dp_overlap=False, pp_overlap=False),
        job("qwen-3-30b-a3b", ep=8, pp=2, vpp=2, ep_overlap=True),
    ],
    ids=["dense", "block", "mla", "fp8", "gpt-oss", "gpt3", "exposed", "hidden"],
)
def test_the_bridge_recipe_says_what_the_command_line_says(of, monkeypatch):
    for name in UNDECIDED | ROTARY:
        monkeypatch.setenv(name, "1")
    config = run_recipe(LAUNCHERS["bridge"](of)["recipe.py"], monkeypatch)
    o = megatron_options(LAUNCHERS["megatron"](of)["launch.sh"])
    kind, model = config.model
    d = of.decisions
    flag = {name: None if getattr(o, name) is None else str(getattr(o, name)) for name in SAME}
    assert {name: None if model.get(name) is None else str(model[name]) for name in SAME} == flag
    assert kind == ("MLA" if of.architecture.mla else "GPT")
    assert model.get("recompute_modules") == o.recompute_modules
    assert model.get("sequence_parallel", False) == d.sequence_parallel
    assert model.get("virtual_pipeline_model_parallel_size", 1) == d.vpp
    assert model.get("gated_linear_unit", False) == o.swiglu
    assert model.get("add_bias_linear", True) != o.disable_bias_linear
    train = config.train
    assert (train.micro_batch_size, train.global_batch_size) == (d.micro_batch, d.global_batch)
    assert train.train_iters == int(o.train_iters)
    assert config.ddp.use_distributed_optimizer == o.use_distributed_optimizer
    assert config.ddp.overlap_param_gather == o.overlap_param_gather
    assert config.comm_overlap["tp_comm_overlap"] == o.tp_comm_overlap
    assert config.comm_overlap.get("overlap_p2p_comm", True) != o.no_overlap_p2p_communication
    assert config.comm_overlap.get("batch_p2p_comm", False) == o.no_overlap_p2p_communication
    hidden = config.comm_overlap.get("overlap_moe_expert_parallel_comm", False)
    assert hidden == o.overlap_moe_expert_parallel_comm
    assert config.mixed_precision.grad_reduce_in_fp32 != o.grad_reduce_in_bf16
    assert ("fp8" in config.mixed_precision.name) == (d.precision == "fp8")
    pattern = model.get("moe_layer_freq")
    assert pattern is None or pattern == (1 if o.moe_layer_freq == "1" else eval(o.moe_layer_freq))


# What is refused

REFUSED = [
    ("megatron", {"layers": [20] * 4, "recomputed": [6, 3, 0, 0], "pp": 4}, "full recompute"),
    ("megatron", {"card": "gemma-2-9b"}, "norms per layer"),
    ("megatron", {"modules": ("mlp_in",)}, "recompute of"),
    ("megatron", {"card": "qwen-3-30b-a3b", "tp": 2, "sequence_parallel": False}, "experts"),
    ("megatron", {"card": "gpt3-175b", "seq_len": 4096}, "sequences of"),
    ("megatron", {"precision": "fp8", "stack": "megatron-bridge", "zero": 0}, "FP8"),
    ("bridge", {"layers": [20] * 4, "recomputed": [6, 3, 0, 0], "pp": 4}, "full recompute"),
    ("torchtitan", {"modules": ("layernorm", "mlp"), "pp": 4}, "recompute of"),
    ("torchtitan", {"recomputed": [3] * 4, "pp": 4}, "full recompute"),
    ("torchtitan", {"zero": 1, "tp": 2}, "ZeRO"),
    ("torchtitan", {"zero": 1, "num_microbatches": 1}, "ZeRO"),
    ("torchtitan", {"zero": 2, "pp": 4}, "a pipeline with ZeRO"),
    ("torchtitan", {"zero": 0, "tp": 2}, "ZeRO 0"),
    ("torchtitan", {"precision": "fp8", "pp": 4}, "precision"),
    ("torchtitan", {"card": "qwen-3-30b-a3b", "tp": 2, "etp": 2, "ep": 2, "zero": 3}, "etp"),
    ("torchtitan", {"card": "qwen-3-30b-a3b", "tp": 2, "zero": 3}, "ep"),
    ("torchtitan", {"card": "deepseek-v3", "pp": 1, "zero": 3, "layers": [61]}, "the model"),
    ("torchtitan", {"card": "deepseek-v2-lite", "cp": 2, "zero": 3, "layers": [27]}, "cp"),
    ("torchtitan", {"card": "gpt-oss-20b", "zero": 3}, "the model"),
    ("deepspeed", {"pp": 4, "vpp": 2}, "vpp"),
    ("deepspeed", {"pp": 3, "layers": [27, 27, 26]}, "stages of"),
    ("deepspeed", {"pp": 4, "zero": 2}, "a pipeline with ZeRO"),
    ("deepspeed", {"cp": 2}, "cp"),
    ("deepspeed", {"cp": 2, "tp": 2}, "cp"),
    ("deepspeed", {"card": "qwen-3-30b-a3b", "ep": 2}, "ep"),
    ("deepspeed", {"card": "qwen-3-30b-a3b", "tp": 2}, "the model"),
    ("deepspeed", {"precision": "fp8"}, "precision"),
    ("deepspeed", {"modules": ("layernorm",)}, "recompute of"),
    ("deepspeed", {"modules": ("layernorm",), "tp": 2}, "recompute of"),
    ("accelerate", {"pp": 4}, "pp"),
    ("accelerate", {"card": "qwen-3-30b-a3b", "ep": 2}, "ep"),
    ("accelerate", {"zero": 1}, "ZeRO"),
    ("accelerate", {"zero": 3, "zero_scope": "node", "dp": 16}, "ZeRO scope"),
    ("deepspeed", {"zero": 3, "zero_scope": "node", "dp": 16}, "ZeRO scope"),
    ("nanotron", {"zero_scope": "node", "dp": 16}, "ZeRO scope"),
    ("accelerate", {"zero": 3, "tp": 2}, "sequence parallelism"),
    ("accelerate", {"zero": 3, "modules": ("layernorm",)}, "recompute of"),
    ("accelerate", {"zero": 3, "card": "deepseek-v2", "layers": [60]}, "the model"),
    ("nanotron", {"zero": 2}, "ZeRO"),
    ("nanotron", {"pp": 4, "vpp": 2}, "vpp"),
    ("nanotron", {"pp": 3, "layers": [27, 27, 26]}, "stages of"),
    ("nanotron", {"cp": 2}, "cp"),
    ("nanotron", {"card": "qwen-3-30b-a3b"}, "the model"),
    ("nanotron", {"recomputed": [40], "layers": [80]}, "recompute of"),
]


@pytest.mark.parametrize(("target", "plan", "feature"), REFUSED)
def test_a_feature_that_a_target_lacks_is_refused_by_name_with_the_targets_that_have_it(
    target, plan, feature
):
    of = job(**plan)
    with pytest.raises(CannotExport) as caught:
        export(of, target)
    refusal = caught.value
    assert refusal.exit_code == 2
    assert (refusal.target, refusal.feature.split(" =")[0].startswith(feature)) == (target, True)
    assert str(refusal).startswith(f"{target} cannot launch this plan: {refusal.feature} {refusal.value}")
    assert refusal.able == able(of)
    assert target not in refusal.able
    for other in refusal.able:
        export(of, other)


def test_slurm_refuses_what_its_launcher_refuses():
    with pytest.raises(CannotExport, match="nanotron cannot launch"):
        export(job(zero=3), "slurm", "nanotron")


# Other targets


@pytest.mark.parametrize(
    ("target", "plan"),
    [
        ("torchtitan", {"pp": 4, "vpp": 2, "tp": 8}),
        ("torchtitan", {"pp": 3, "layers": [26, 28, 26], "recomputed": [26, 28, 26]}),
        ("torchtitan", {"zero": 3, "cp": 2, "tp": 4}),
        ("torchtitan", {"zero": 2, "card": "llama-3-8b"}),
        ("torchtitan", {"zero": 0}),
        ("torchtitan", {"zero": 3, "card": "deepseek-v2", "ep": 8, "layers": [60]}),
        ("deepspeed", {"zero": 3, "recomputed": [80]}),
        ("deepspeed", {"zero": 1, "tp": 4, "pp": 2, "recomputed": [40, 40]}),
        ("deepspeed", {"zero": 2, "tp": 8, "modules": ("core_attn",)}),
        ("deepspeed", {"zero": 3, "card": "qwen-3-30b-a3b"}),
        ("accelerate", {"zero": 3, "cp": 4, "recomputed": [80]}),
        ("accelerate", {"zero": 2}),
        ("accelerate", {"zero": 0, "recomputed": [80]}),
        ("nanotron", {"zero": 1, "tp": 8, "pp": 2, "recomputed": [40, 40]}),
        ("nanotron", {"zero": 0, "tp": 2, "sequence_parallel": False}),
    ],
)
def test_what_a_target_can_do_it_is_told_exactly(target, plan):
    assert check(target, job(**plan))


def test_sizes_that_torchtitan_does_not_register_come_in_a_file_of_their_own():
    assert "planner_flavor.py" in LAUNCHERS["torchtitan"](job(pp=4))
    files = LAUNCHERS["torchtitan"](job("llama-3-70b", pp=4))
    assert "planner_flavor.py" not in files
    assert 'flavor = "70B"' in files["torchtitan_0.2.toml"]
    assert "ROTARY_BASE" not in files["launch.sh"]


@pytest.mark.parametrize(
    ("stack", "tp", "parts", "asynchronous"),
    [
        ("torchtitan", 2, ["model"], True),
        ("torchtitan-2025", 1, ["model", "loss"], False),
        ("megatron-lm", 2, ["model", "loss"], False),
    ],
)
def test_torchtitan_compiles_and_overlaps_what_the_profile_counts_on(stack, tp, parts, asynchronous):
    files = LAUNCHERS["torchtitan"](job("llama-3-8b", zero=3, tp=tp, stack=stack))
    data = tomllib.loads(files["torchtitan_0.2.toml"])
    assert data["compile"] == {"enable": True, "components": parts}
    assert data["parallelism"]["enable_async_tensor_parallel"] == asynchronous
    assert f"enable_async_tensor_parallel={asynchronous}," in files["recipe.py"]
    assert ("'loss'," in files["recipe.py"]) == ("loss" in parts)


@pytest.mark.parametrize(
    ("hidden", "ffn"), [(8192, 28672), (4096, 11008), (5120, 8192), (1024, 1024), (4096, 10922)]
)
def test_the_ffn_width_of_torchtitans_formula_is_the_models(hidden, ffn):
    card = load_card("llama-2-7b").model_copy(
        update={"hidden": hidden, "ffn": ffn, "heads": hidden // 128, "kv_heads": hidden // 128, "name": "x"}
    )
    text = LAUNCHERS["torchtitan"](job(card, zero=3))["planner_flavor.py"]
    (call,) = [
        n
        for n in ast.walk(ast.parse(text))
        if isinstance(n, ast.Call) and getattr(n.func, "id", "") != "float"
    ]
    given = {k.arg: ast.literal_eval(k.value) for k in call.keywords if k.arg != "rope_theta"}
    width = int(2 * 4 * given["dim"] / 3)
    width = int(given.get("ffn_dim_multiplier", 1) * width)
    multiple = given["multiple_of"]
    assert multiple * -(-width // multiple) == ffn


def test_deepspeed_keeps_gradients_in_the_bytes_that_were_priced():
    config = json.loads(LAUNCHERS["deepspeed"](job(zero=2))["ds_config.json"])
    assert (config["data_types"]["grad_accum_dtype"], config["communication_data_type"]) == ("fp32", "fp32")
    config = json.loads(LAUNCHERS["deepspeed"](job(zero=2, stack="megatron-bridge"))["ds_config.json"])
    assert config["data_types"]["grad_accum_dtype"] == "bf16"


def test_nanotron_marks_what_is_left_to_the_user():
    text = LAUNCHERS["nanotron"](job(zero=1))["nanotron.yaml"]
    config = yaml.safe_load(text)
    assert config["optimizer"]["learning_rate_scheduler"]["learning_rate"] == "SET_ME"
    assert config["tokenizer"]["tokenizer_name_or_path"] == "SET_ME"


def test_slurm_asks_for_the_nodes_and_gpus_of_the_plan():
    of = job(tp=8, pp=4, dp=6)
    files = export(of, "slurm")
    text = files["job.slurm"]
    asked = dict(
        line.removeprefix("#SBATCH --").split("=", 1)
        for line in text.splitlines()
        if line.startswith("#SBATCH --") and "=" in line
    )
    assert (asked["nodes"], asked["gpus-per-node"], asked["ntasks-per-node"]) == ("24", "8", "1")
    assert "#SBATCH --requeue" in text
    assert "scontrol requeue" in text
    assert set(files) == {"launch.sh", "job.slurm"}
    assert arrays(files["launch.sh"])["TORCHRUN_ARGS"][:4] == ["--nnodes", "24", "--nproc-per-node", "8"]
    assert "--segment" not in text


def test_slurm_keeps_nvlink_domains_of_several_nodes_together():
    of = replace(job(tp=8, dp=36), fabric=Fabric(4, 72, 9e11, 5e10))
    of = replace(of, decisions=of.decisions.model_copy(update={"nodes": 72}))
    assert "#SBATCH --segment=18\n" in export(of, "slurm")["job.slurm"]


@pytest.mark.skipif(BASH is None, reason="no bash")
@pytest.mark.parametrize("target", LAUNCHERS)
def test_scripts_are_valid_bash(target):
    plans = [job(zero=3), job(zero=1, pp=4), job(zero=0), job("qwen-3-30b-a3b", ep=8, zero=3)]
    texts = set()
    for of in plans:
        if target in able(of):
            files = export(of, "slurm", target)
            texts |= {text for name, text in files.items() if name.endswith((".sh", ".slurm"))}
    assert texts
    for text in texts:
        result = subprocess.run([str(BASH), "-n"], input=text, capture_output=True, text=True, check=False)
        assert (result.returncode, result.stderr) == (0, "")


def test_names_cannot_break_a_script():
    of = replace(job(), name="a b'; rm -rf $HOME #")
    text = export(of, "slurm")["job.slurm"]
    assert "#SBATCH --job-name=a_b___rm_-rf__HOME__\n" in text
    code = [
        line
        for line in text.splitlines() + export(of, "megatron")["launch.sh"].splitlines()
        if not line.startswith("#")
    ]
    assert not any("rm -rf" in line for line in code)


def test_every_file_says_for_which_version_it_is_and_whose_plan():
    of = job("llama-3-8b", zero=3)
    for target in able(of):
        for name, text in export(of, target).items():
            if name.endswith((".sh", ".py", ".toml", ".yaml")):
                assert "by_hand: llama-3-8b on 8 x H800" in text
                assert "\nFor " in text.replace("# ", "")


# The command line

RUN = CliRunner()


def invoke(*arguments):
    return RUN.invoke(app, ["export", *map(str, arguments)])


@pytest.mark.parametrize("target", TARGETS)
def test_the_verb_writes_the_files_and_prints_their_paths(target, tmp_path):
    solution = ROOT / "solutions" / "llama7b_2T_256h800.yaml"
    result = invoke(solution, "--to", target, "--output", tmp_path / "out")
    if target == "nanotron":
        assert result.exit_code == 2
        assert "nanotron cannot launch this plan: ZeRO 2" in result.stderr
        assert "targets that can: megatron, bridge, torchtitan, deepspeed, accelerate" in result.stderr
        assert not (tmp_path / "out").exists()
        return
    assert result.exit_code == 0, result.stderr
    written = sorted(str(path) for path in (tmp_path / "out").iterdir())
    assert sorted(result.stdout.split()) == written
    assert len(written) >= 1


def test_json_and_yaml_solutions_give_the_same_files(tmp_path):
    solution = read_solution(SOLUTIONS[0])
    (tmp_path / "s.json").write_text(solution.to_json())
    for path, folder in ((tmp_path / "s.json", "a"), (SOLUTIONS[0], "b")):
        assert invoke(path, "--to", "megatron", "-o", tmp_path / folder).exit_code == 0
    assert (tmp_path / "a" / "launch.sh").read_text() == (tmp_path / "b" / "launch.sh").read_text()


def test_files_that_are_there_are_kept_unless_forced(tmp_path):
    (tmp_path / "launch.sh").write_text("mine")
    result = invoke(SOLUTIONS[0], "--to", "slurm", "-o", tmp_path)
    assert result.exit_code == 2
    assert "exists already" in result.stderr
    assert "--force" in result.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["launch.sh"]
    assert (tmp_path / "launch.sh").read_text() == "mine"
    assert invoke(SOLUTIONS[0], "--to", "slurm", "-o", tmp_path, "--force").exit_code == 0
    assert "torchrun" in (tmp_path / "launch.sh").read_text()


def test_a_launcher_without_slurm_is_refused(tmp_path):
    result = invoke(SOLUTIONS[0], "--to", "megatron", "--launcher", "bridge", "-o", tmp_path)
    assert (result.exit_code, "only with --to slurm" in result.stderr) == (2, True)


def test_slurm_wraps_the_launcher_that_is_named(tmp_path):
    result = invoke(SOLUTIONS[0], "--to", "slurm", "--launcher", "bridge", "-o", tmp_path)
    assert result.exit_code == 0
    assert {path.name for path in tmp_path.iterdir()} == {"job.slurm", "launch.sh", "recipe.py"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda data: data["plans"][0]["decisions"].update(dp=7), "GPUs are tp*cp*pp*dp"),
        (lambda data: data["plans"][0]["decisions"].update(gpu="B200"), "B200"),
        (lambda data: data["plans"][0]["decisions"]["stages"].pop(), "layers on the stages"),
        (lambda data: data["plans"][0]["decisions"].pop("tp"), "tp: missing"),
        (lambda data: data.update(plans=[], status="infeasible"), "no plan: infeasible"),
        (lambda data: data["problem"]["training"].update(seq_len="x"), "training.seq_len"),
    ],
)
def test_a_solution_that_is_not_one_is_refused(change, message, tmp_path):
    data = yaml.safe_load(SOLUTIONS[0].read_text())
    change(data)
    (tmp_path / "s.yaml").write_text(yaml.safe_dump(data))
    result = invoke(tmp_path / "s.yaml", "--to", "megatron", "-o", tmp_path / "out")
    assert result.exit_code == 2, result.output
    assert message in result.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("text", ["", "{", "a: [", "- 1", "null", "{}"])
def test_a_file_that_is_no_solution_is_refused(text, tmp_path):
    (tmp_path / "s.yaml").write_text(text)
    result = invoke(tmp_path / "s.yaml", "--to", "megatron", "-o", tmp_path / "out")
    assert result.exit_code == 2, result.output
    assert "unexpected" not in result.stderr


def test_a_plan_that_is_not_there_is_refused(tmp_path):
    for number in (0, 2):
        result = invoke(SOLUTIONS[0], "--to", "megatron", "--plan", number, "-o", tmp_path)
        assert (result.exit_code, "--plan" in result.stderr) == (2, True)


def test_a_plan_priced_for_another_framework_is_said_to_be(tmp_path):
    solution = ROOT / "solutions" / "llama7b_2T_256h800.yaml"
    result = invoke(solution, "--to", "deepspeed", "-o", tmp_path / "a")
    assert "priced with the profile megatron-core" in result.stderr
    assert result.exit_code == 0
    assert invoke(solution, "--to", "bridge", "-o", tmp_path / "b").stderr == ""
