"""Runs files: what is read, what is assumed aloud, what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from costmodel.cards import load_card
from costmodel.pipeline import stage_split
from planner.errors import Refused
from planner.runs import DescribedRun, RefusedRun, describe, read_runs
from planner.runs.interconnect import nic_per_gpu
from planner.runs.layout import layers_of_stages, written_layout
from planner.runs.software import rules
from planner.yaml_file import parse

PLAIN: dict[str, Any] = {
    "id": "mine",
    "model": "llama-2-70b",
    "seq_len": 4096,
    "global_batch": 512,
    "micro_batch": 1,
    "gpu": "H100",
    "num_gpus": 128,
    "interconnect": "8x400 Gbit/s",
    "tp": 8,
    "pp": 4,
    "vpp": 1,
    "zero_stage": 1,
    "sequence_parallel": True,
    "recompute": "none",
    "framework": "Megatron-Core 0.15",
}
MOE = PLAIN | {
    "model": "deepseek-v3",
    "framework": "Megatron-Bridge",
    "tp": 1,
    "pp": 16,
    "ep": 8,
    "etp": 1,
    "num_gpus": 256,
}


def run_of(**changes: Any) -> DescribedRun:
    found = describe(PLAIN | changes)
    assert isinstance(found, DescribedRun), found
    return found


def moe_of(**changes: Any) -> DescribedRun:
    found = describe(MOE | changes)
    assert isinstance(found, DescribedRun), found
    return found


def error_of(**changes: Any) -> str:
    found = describe(PLAIN | changes)
    assert isinstance(found, RefusedRun)
    return found.error


def test_a_run_that_says_everything_is_not_warned_about() -> None:
    described = run_of()
    assert described.warnings == ()
    assert described.run.dp == 4
    assert described.run.num_microbatches == 128


@pytest.mark.parametrize(
    "key", ["micro_batch", "vpp", "zero_stage", "sequence_parallel", "recompute", "framework", "interconnect"]
)
def test_what_is_null_or_missing_is_warned_about(key: str) -> None:
    for changed in (PLAIN | {key: None}, {name: value for name, value in PLAIN.items() if name != key}):
        found = describe(changed)
        assert isinstance(found, DescribedRun)
        assert [warning for warning in found.warnings if warning.startswith(f"{key}: not given")]


@pytest.mark.parametrize("key", ["dispatcher", "routing", "etp"])
def test_what_a_mixture_of_experts_leaves_open_is_warned_about(key: str) -> None:
    found = moe_of(**{key: None, "tp": 2})
    assert [warning for warning in found.warnings if warning.startswith(f"{key}: not given")]


def test_unknown_keys_are_ignored_because_files_carry_provenance() -> None:
    assert run_of(source="a table", measured={"mfu": 0.5}, comment=None).run == run_of().run


def test_neither_the_id_nor_the_source_changes_what_is_predicted() -> None:
    named = run_of(id="mlperf-50-h100-001", source="NVIDIA DGX Cloud benchmarking recipes, release v24.11.1")
    assert named.run == run_of().run
    assert named.layers == run_of().layers


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"gpu": "H1000"}, "gpu: found 'H1000'"),
        ({"num_gpus": 100}, "num_gpus: 100 GPUs"),
        ({"model": "lama-2-70b"}, "did you mean 'llama-2-70b'"),
        ({"seq_len": -1}, "seq_len: found -1"),
        ({"seq_len": None}, "seq_len: found nothing"),
        ({"model": {"name": "x", "layers": 4}}, "model.hidden: missing"),
        ({"recompute": "selective", "recompute_detail": "modules: core_atn"}, "found module 'core_atn'"),
        ({"pp_layout": "Et*4|t*4L"}, "pp_layout"),
        ({"pp": 128, "tp": 1}, "pp: 128 virtual stages for 80 layers"),
    ],
)
def test_a_run_that_cannot_be_used_says_why(changes: dict[str, Any], said: str) -> None:
    assert said in error_of(**changes)


def test_one_bad_row_does_not_hide_the_others(tmp_path: Path) -> None:
    file = tmp_path / "runs.yaml"
    file.write_text(
        "runs:\n"
        "- {id: a, model: llama-7b, seq_len: 2048, global_batch: 64, gpu: A100, num_gpus: 8}\n"
        "- {id: b, model: llama-7b, seq_len: 2048, global_batch: 64, gpu: TPU, num_gpus: 8}\n"
        "- nonsense\n"
        "- {model: llama-7b, seq_len: 2048, global_batch: 64, gpu: A100, num_gpus: 8}\n"
    )
    found = read_runs(file)
    assert [type(each).__name__ for each in found] == [
        "DescribedRun",
        "RefusedRun",
        "RefusedRun",
        "DescribedRun",
    ]
    assert [each.id for each in found] == ["a", "b", "run-3", "run-4"]


def test_one_run_may_be_the_whole_file(tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    file.write_text("model: llama-7b\nseq_len: 2048\nglobal_batch: 64\ngpu: A100\nnum_gpus: 8\n")
    (found,) = read_runs(file)
    assert isinstance(found, DescribedRun)


@pytest.mark.parametrize(
    ("text", "gbit"),
    [
        ("8x400 Gbit/s", 400),
        ("4x100Gb/s OPA per node", 50),
        ("4x100Gb RoCE per node", 50),
        ("8x100 Gbps NICs per node", 100),
        ("1600 Gb/s per node RoCE (8x200)", 200),
        ("NVLink + 3200 Gb/s IB per node", 400),
        ("EFA 3200 Gb/s per node (HF cluster)", 400),
        ("400 Gb/s RDMA per GPU", 400),
        ("8x ConnectX-7 IB NDR 400Gb/s + 200Gb/s Ethernet NIC", 400),
        (
            "Storage+Management: 1x NVIDIA BlueField 2 DPU 100Gb/s, Compute: 8x NVIDIA ConnectX-7 IB NDR 400Gb/s",
            400,
        ),
        ("1x Ethernet 100Gb/Sec, 8x NVIDIA Quantum-2 CX7 InfiniBand (400Gb/s)", 400),
    ],
)
def test_a_network_is_read_as_people_write_it(text: str, gbit: float) -> None:
    nic, warnings = nic_per_gpu(text, node=8, usual=1e9, needed=True)
    assert nic * 8 / 1e9 == pytest.approx(gbit)
    assert not warnings


@pytest.mark.parametrize("text", ["RoCE", "InfiniBand; Data bandwidth for GPU-PCIe: 504 GB/s", None])
def test_a_network_without_a_speed_is_the_usual_one_and_said(text: str | None) -> None:
    nic, warnings = nic_per_gpu(text, node=8, usual=50e9, needed=True)
    assert nic == 50e9
    assert warnings


def test_the_variant_decides_where_a_gpu_has_several() -> None:
    assert run_of(gpu_variant="H100 96GB HBM2e 2.4TB/s, 500 W").run.gpu.name == "H100-96"
    assert run_of(gpu="A100", gpu_variant="A100-SXM4-40GB").run.gpu.name == "A100-40"
    assert run_of(gpu="H800", gpu_variant="H800-SXM5-80GB (NVLink 400 GB/s)").run.gpu.name == "H800"


def test_an_nvl72_domain_reaches_beyond_the_node() -> None:
    assert run_of(gpu="GB200", gpus_per_node=4, nvlink_domain=72).run.fabric.domain == 72


def test_layout_strings_parse() -> None:
    assert written_layout("Et*4|(t*4|)*14tmL", 61, 16) == [4] * 15 + [1]
    assert written_layout("Ett|tt|tL", 5, 3) == [2, 2, 1]
    with pytest.raises(Refused, match="lays 4 layers on 2 virtual stages"):
        written_layout("tt|tt", 5, 2)


def test_a_hostile_layout_string_ends_soon() -> None:
    with pytest.raises(Refused):
        written_layout("((((t*999999)*9999)*9999)*9999)*9999", 61, 16)


def test_layers_are_dealt_out_as_the_notes_of_the_field_say() -> None:
    llama, deepseek, qwen = (
        load_card("llama-3.1-405b"),
        load_card("deepseek-v3"),
        load_card("qwen-3-235b-a22b"),
    )
    assert layers_of_stages(llama, 64, None, None) == [1, *[2] * 62, 1]
    assert layers_of_stages(llama, 9, None, None) == [14] * 9
    assert layers_of_stages(qwen, 96, None, None) == [0, *[1] * 94, 0]
    assert layers_of_stages(deepseek, 16, None, None) == [4] * 15 + [1]
    assert sum(layers_of_stages(load_card("llama-7b"), 5, None, None)) == 32


def test_layers_always_add_up() -> None:
    for name in ("llama-7b", "deepseek-v3", "gpt3-175b"):
        card = load_card(name)
        for stages in range(1, card.layers + 1):
            layers = layers_of_stages(card, stages, None, None)
            assert len(layers) == stages
            assert sum(layers) == card.layers
            stage_split(card, stages, 1, 8, layers)


def test_notes_fill_the_keys_that_are_missing_and_never_those_that_are_given() -> None:
    notes = "CUDA graphs: full_iteration/[]; dispatcher hybridep; EP all-to-all overlap on; force-balanced dropless"
    noted = moe_of(notes=notes)
    explicit = moe_of(dispatcher="hybridep", cuda_graphs="full", ep_overlap=True, routing="balanced")
    assert noted.run.stack == explicit.run.stack
    assert moe_of(notes=notes, cuda_graphs="none").run.stack.host.graphs == "none"


@pytest.mark.parametrize(
    ("changes", "profile"),
    [
        ({"framework": "Megatron-Bridge (Megatron-Core)"}, "megatron-bridge"),
        ({"framework": "NeMo (Megatron-Core)"}, "nemo"),
        ({"framework": "NeMo (Megatron-Core)", "software": "NeMo 24.07"}, "nemo-early"),
        ({"framework": "NeMo 24.05"}, "nemo-early"),
        ({"framework": "NeMo/Megatron (MLPerf)"}, "mlperf"),
        ({"framework": "NeMo/Megatron (MLPerf)", "software": "MLPerf Training 3.1"}, "nemo-early"),
        ({"framework": "Megatron-LM 0.14"}, "megatron-lm"),
        ({"framework": "Megatron-LM", "flash_attention": False}, "megatron-lm-2021"),
        ({"framework": "something else"}, "megatron-core"),
    ],
)
def test_the_framework_and_its_age_pick_the_profile(changes: dict[str, Any], profile: str) -> None:
    assert run_of(**changes).run.stack.name == profile


def test_every_rule_names_a_profile_that_exists() -> None:
    from costmodel.stack import stack_names

    assert {rule.profile for rule in rules()} <= set(stack_names())


def test_switches_of_a_run_override_its_profile() -> None:
    assert run_of(tp_overlap=False).run.stack.tensor_parallel.exposed == 1.0
    assert run_of(dp_overlap=False).run.stack.data_parallel.reduce_window == 0.0
    assert run_of(pp_overlap=False).run.stack.pipeline.exposed_interleaved == 1.0
    assert run_of(sequence_parallel=False).run.stack.tensor_parallel.sequence_parallel is False
    assert run_of(flash_attention=False).run.stack.attention.kernel == "unfused"
    assert run_of(schedule="zb-2p").run.stack.pipeline.bubble == 0.0
    assert run_of(fp8_params=True).run.stack.data_parallel.low_precision_parameter_bytes == 1.0
    assert moe_of(dispatcher="alltoall").run.stack.expert_parallel.dispatcher == "alltoall"
    assert moe_of(routing="natural").run.stack.expert_parallel.imbalance > 1
    assert moe_of(routing="capacity").run.stack.expert_parallel.dropped_tokens


def test_recompute_is_read_as_modules_layers_or_everything() -> None:
    assert run_of(recompute="full").recomputed == (20,) * 4
    block = run_of(
        recompute="partial-full", recompute_detail="full recompute (block) of 5 layer(s) per (virtual) stage"
    )
    assert block.recomputed == (5,) * 4
    modules = run_of(
        recompute="selective", recompute_detail="modules: core_attn, layernorm"
    ).run.recompute_modules
    assert modules == {"core_attn", "layernorm"}
    assert run_of(recompute="selective").run.recompute_modules == {"core_attn"}


def test_a_batch_that_does_not_divide_is_rounded_and_said() -> None:
    described = run_of(global_batch=513)
    assert described.run.num_microbatches == 128
    assert any(warning.startswith("global_batch") for warning in described.warnings)


def test_a_card_with_the_same_shapes_adds_what_the_row_leaves_out() -> None:
    card = load_card("gpt-oss-120b").model_dump(exclude_none=True)
    row = {
        key: card[key] for key in ("layers", "hidden", "ffn", "heads", "kv_heads", "head_dim", "vocab", "moe")
    }
    described = describe(MOE | {"model": {"name": "GPT-OSS", **row}, "pp": 4, "num_gpus": 32})
    assert isinstance(described, DescribedRun)
    assert described.run.architecture.mlp_bias == load_card("gpt-oss-120b").mlp_bias


def test_the_fast_yaml_loader_reads_what_the_slow_one_does() -> None:
    text = "a: 1e9\nb: on\nc: 010\nd: 60:00\ne: [1, 2.5, null, ~, true]\nf: 2020-01-01\n"
    with_alias_like_text = text + "g: 'a *b'\n"
    fast, slow = parse(text, "x"), parse(with_alias_like_text, "x")
    assert slow.pop("g") == "a *b"
    assert (
        fast
        == slow
        == {"a": 1e9, "b": "on", "c": 10, "d": "60:00", "e": [1, 2.5, None, None, True], "f": "2020-01-01"}
    )
