"""Claims about software profiles: what they say, and what the physics behind their numbers does."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from time_runs import some_run

from costmodel.attention import attention_time
from costmodel.cards import load_card
from costmodel.collectives import tensor_parallel_time
from costmodel.host import host_time
from costmodel.layer import layer_cost
from costmodel.memory.activations import layer_bytes
from costmodel.memory.states import local_parameters, state_bytes, states
from costmodel.modules import MODULES
from costmodel.pipeline import plain_layers, stage_split
from costmodel.rates import stage_rates
from costmodel.run import Run
from costmodel.sharding import data_parallel_traffic
from costmodel.stack import load_stack, stack_names
from costmodel.step import StepTime, pipeline_time, step_time
from costmodel.transfer import hop_time
from hardware.catalogue import load_accelerator
from planner.runs.facts import RunFacts
from planner.runs.software import profile_of

UNFUSED = ("megatron-lm-2021", "megatron-deepspeed", "megatron-deepspeed-omnipath", "zero-bubble")
OPEN_STACKS = ("internevo", "kwai", "llm-foundry", "mcore-06", "nanotron", "paddlenlp", "torchtitan")


def step(run: Run, full: bool = False) -> StepTime:
    """Step time with the plain split; with `full`, every layer recomputed."""
    layers = plain_layers(run.architecture.layers, run.pp * run.vpp)
    split = stage_split(
        run.architecture, run.pp, run.vpp, run.num_microbatches, layers, layers if full else None
    )
    return step_time(stage_rates(run, memory=False), split, run.num_microbatches, run.pp, run.vpp)


def seconds(run: Run, full: bool = False) -> float:
    return float(step(run, full).total)


def on(name: str, gpu: str = "A100-80", **changes: Any) -> Run:
    return some_run(gpu, stack=load_stack(name), **changes)


def with_stack(run: Run, part: str, **changes: Any) -> Run:
    group = getattr(run.stack, part).model_copy(update=changes)
    return replace(run, stack=run.stack.model_copy(update={part: group}))


def tiny(run: Run) -> Run:
    """The same run of a model with hidden size 1024."""
    small = run.architecture.model_copy(
        update={"hidden": 1024, "heads": 16, "kv_heads": 16, "head_dim": 64, "ffn": 4096, "layers": 24}
    )
    return replace(run, architecture=small)


@pytest.mark.parametrize("name", stack_names())
def test_a_profile_says_where_its_numbers_come_from(name: str) -> None:
    stack = load_stack(name)
    assert stack.name == name
    assert all(len(source.split()) >= 3 for source in stack.sources)
    assert "?" not in " ".join(stack.sources)


@pytest.mark.parametrize("name", stack_names())
def test_a_profile_prices_a_plain_run(name: str) -> None:
    total = seconds(on(name, "H100"))
    assert np.isfinite(total)
    assert total > 0


@pytest.mark.parametrize("name", OPEN_STACKS)
def test_open_stacks_of_2023_are_slower_than_todays_megatron(name: str) -> None:
    assert seconds(on(name, "H100", tp=2, dp=32)) > seconds(on("megatron-core", "H100", tp=2, dp=32))


@pytest.mark.parametrize("name", UNFUSED)
def test_older_stacks_do_not_fuse_attention(name: str) -> None:
    assert load_stack(name).attention.kernel == "unfused"


def test_unfused_attention_is_several_times_slower_than_flash_at_8k_tokens() -> None:
    unfused, flash = (
        sum(attention_time(on(name, seq_len=8192))) for name in ("megatron-deepspeed", "megatron-core")
    )
    assert unfused > 3 * flash


def test_a_head_size_that_is_no_multiple_of_8_slows_unfused_attention() -> None:
    run = on("megatron-deepspeed")
    odd = run.architecture.model_copy(update={"head_dim": 108})
    even = run.architecture.model_copy(update={"head_dim": 112})
    assert sum(attention_time(replace(run, architecture=odd))) > 1.3 * sum(
        attention_time(replace(run, architecture=even))
    )


def test_the_cpu_sets_the_pace_of_tiny_layers_of_2022() -> None:
    run = tiny(on("megatron-deepspeed", tp=1, dp=16, pp=1, micro_batch=1, seq_len=1024))
    busy = float(layer_cost(run).total[0])
    launch = float(host_time(run, "dense"))
    assert busy == pytest.approx(launch, rel=0.1)
    wide = replace(run, architecture=some_run("A100-80").architecture)
    assert float(layer_cost(wide).host[0]) < 0.1 * float(layer_cost(wide).total[0])


def test_tensor_parallel_groups_of_8_cost_the_launching_cpu_more() -> None:
    run = on("megatron-deepspeed")
    at = [float(host_time(replace(run, tp=tp), "dense")) for tp in (1, 2, 4, 8)]
    assert at[0] < at[1] == at[2] < at[3]


def test_tensor_parallelism_across_nodes_takes_the_slower_of_nvlink_and_the_nics() -> None:
    run = on("megatron-deepspeed")
    slow = replace(run, tp=16, fabric=replace(run.fabric, nic=run.fabric.nic / 4))
    inside, across, slower = (
        float(tensor_parallel_time(each, "all_reduce", 1e9)) for each in (run, replace(run, tp=16), slow)
    )
    assert inside < across < slower
    endless = replace(run, tp=16, fabric=replace(run.fabric, nic=1e15))
    assert float(tensor_parallel_time(endless, "all_reduce", 1e9)) >= inside


def test_scatter_and_gather_sends_less_between_stages_without_sequence_parallelism() -> None:
    run = with_stack(on("megatron-lm-2021"), "pipeline", scattered=False)
    scattered = with_stack(run, "pipeline", scattered=True)
    assert float(hop_time(scattered)) < float(hop_time(run)) / 4
    both = with_stack(run, "tensor_parallel", sequence_parallel=True)
    assert float(hop_time(both)) == float(hop_time(scattered))


def test_fully_sharded_training_suffers_from_a_slow_network_only_where_it_does_not_overlap() -> None:
    layout: dict[str, Any] = {"tp": 1, "pp": 1, "dp": 64, "zero": 3, "num_microbatches": 1, "micro_batch": 2}
    slow_down = {}
    for name in ("llm-foundry", "torchtitan"):
        run = on(name, "H100", **layout)
        slow = replace(run, fabric=replace(run.fabric, nic=run.fabric.nic / 2))
        slow_down[name] = seconds(slow) / seconds(run)
    assert slow_down["llm-foundry"] > slow_down["torchtitan"] > 1.0


def test_fsdp_1_adds_its_traffic_to_compute() -> None:
    run = on("llm-foundry", "H100", tp=1, pp=1, dp=64, zero=3, num_microbatches=1)
    whole = seconds(run) - seconds(replace(run, fabric=replace(run.fabric, nic=1e15, nvlink=1e15)))
    layers = run.architecture.layers
    moved = float(data_parallel_traffic(run, local_parameters(run)).micro_batch.kinds[0]) * layers
    assert whole > 0.8 * moved


def test_hybrid_sharding_keeps_weight_gathers_inside_the_node() -> None:
    run = on("llm-foundry", tp=1, pp=1, dp=64, zero=3)
    run = replace(run, fabric=replace(run.fabric, nic=run.fabric.nic / 4))
    hybrid = replace(run, shard_ranks=8)
    local = local_parameters(run)
    full_traffic, hybrid_traffic = (data_parallel_traffic(each, local) for each in (run, hybrid))
    assert (hybrid_traffic.micro_batch.kinds < full_traffic.micro_batch.kinds / 2).all()
    assert (hybrid_traffic.reduce.kinds > 0).all()
    assert (full_traffic.reduce.kinds == 0).all()


def test_sharding_over_all_ranks_is_the_same_whether_it_is_said_or_not() -> None:
    run = on("internevo", tp=1, pp=1, dp=64)
    assert seconds(run) == pytest.approx(seconds(replace(run, shard_ranks=64)))


@given(shard=st.sampled_from([1, 2, 4, 8, 16, 32, 64]), zero=st.integers(1, 3))
def test_runs_sharded_in_columns_cost_what_they_cost_alone(shard: int, zero: int) -> None:
    run = on("plain-pytorch", tp=1, pp=1, dp=64, zero=zero)
    alone = stage_rates(replace(run, shard_ranks=shard), memory=False)
    columns = stage_rates(replace(run, shard_ranks=np.array([shard, np.inf])), memory=False)
    for part in ("reduce", "gather", "work", "optimizer"):
        np.testing.assert_allclose(getattr(columns, part).kinds[0], getattr(alone, part).kinds)


def test_weights_that_ranks_broadcast_one_by_one_cost_more_on_more_ranks() -> None:
    many = on("internevo", tp=1, pp=1, dp=512)
    spread, near = seconds(many), seconds(replace(many, shard_ranks=8))
    assert spread - near > 0.5


def test_zero_2_of_paddle_reduces_gradients_every_micro_batch() -> None:
    run = on("paddlenlp", tp=1, pp=1, dp=8, zero=1, num_microbatches=1)
    few, many = (
        seconds(replace(run, zero=2, num_microbatches=m)) - seconds(replace(run, num_microbatches=m))
        for m in (1, 16)
    )
    assert many > 8 * max(few, 0.0)
    assert many > 0


def test_gradients_sharded_by_rounds_show_in_each_round_as_those_of_zero_1_in_the_one_there_is() -> None:
    """A round is pp micro-batches of a chunk: m = pp is one round, m = 3*pp are three."""
    run = on("llama-3", "H100", tp=8, pp=4, vpp=5, dp=16, zero=2, num_microbatches=4)
    whole, gather = step(replace(run, zero=1)), float(step(run).data_parallel)

    def reduces(m: int) -> float:
        usual, sharded = (step(replace(run, zero=zero, num_microbatches=m)) for zero in (1, 2))
        return float(sharded.compute - usual.compute)

    assert reduces(4) == pytest.approx(float(whole.data_parallel) - gather, rel=0.05)
    assert reduces(12) == pytest.approx(3 * reduces(4))
    assert reduces(4) > 0


def test_one_chunk_a_rank_is_one_round_a_step_and_no_memory_is_saved() -> None:
    run = on("llama-3", "H100", tp=8, pp=4, vpp=1, dp=16, zero=1, num_microbatches=12)
    assert seconds(replace(run, zero=2)) == pytest.approx(seconds(run))
    one, two = (state_bytes(replace(run, zero=zero)) for zero in (1, 2))
    np.testing.assert_allclose(two.kinds, one.kinds)


@pytest.mark.parametrize("vpp", [2, 4, 8])
def test_two_chunks_of_gradients_are_whole_where_they_are_sharded_by_rounds(vpp: int) -> None:
    run = on("llama-3", "H100", tp=8, pp=4, vpp=vpp, dp=16, zero=2)
    local = local_parameters(run).layers.kinds
    expected = 4 * local * (1 / 16 + (1 - 1 / 16) * 2 / vpp)
    np.testing.assert_allclose(states(run).gradients.kinds, expected)


def test_norms_that_work_from_their_outputs_keep_no_inputs_but_for_recompute_of_the_outputs() -> None:
    run = on("megatron-core", "H100")
    lean = with_stack(run, "memory", norm_inputs=False)
    saved = float(layer_bytes(run, "dense") - layer_bytes(lean, "dense"))
    assert saved == 2 * 2 * run.architecture.hidden * float(run.tokens) / float(run.tp)
    again = [replace(each, recompute_modules=frozenset({"layernorm"})) for each in (run, lean)]
    assert layer_bytes(again[0], "dense") == layer_bytes(again[1], "dense")


def test_a_checkpoint_that_stops_early_saves_the_last_linear() -> None:
    newer, older = (
        seconds(on(name, tp=1, pp=1, zero=3), full=True) for name in ("llm-foundry", "llm-foundry-pure")
    )
    assert newer < older
    plain = (seconds(on(name, tp=1, pp=1, zero=3)) for name in ("llm-foundry", "llm-foundry-pure"))
    assert len(set(plain)) == 1


def test_zero_bubble_schedules_leave_a_third_of_the_bubble_or_none() -> None:
    run = on("zero-bubble", tp=1, pp=8, dp=1, zero=0)
    bubbles = [float(step(with_stack(run, "pipeline", bubble=share)).bubble) for share in (1.0, 1 / 3, 0.0)]
    assert bubbles[0] == pytest.approx(3 * bubbles[1])
    assert bubbles[2] == 0.0


@given(
    slowest=st.floats(0.01, 10),
    others=st.floats(0, 100),
    microbatches=st.integers(1, 512),
    vpp=st.integers(1, 8),
    bubble=st.floats(0, 1),
)
def test_a_pipeline_is_never_faster_than_its_slowest_stage(
    slowest: float, others: float, microbatches: int, vpp: int, bubble: float
) -> None:
    busy = pipeline_time(slowest, slowest + others, microbatches, vpp, bubble)
    assert microbatches * slowest <= busy <= pipeline_time(slowest, slowest + others, microbatches, vpp)


def test_offloading_activations_costs_little_and_more_the_more_is_offloaded() -> None:
    run = on("kwai", "H800")
    none, half, whole = (seconds(replace(run, offload=share)) for share in (0.0, 0.5, 1.0))
    assert none < half < whole < 1.1 * none


@pytest.mark.parametrize("module", ["act", "mlp_in", "layernorm", "core_attn", "mlp", "per_op"])
def test_recomputing_a_module_of_a_dense_layer_costs_less_than_recomputing_all_of_it(module: str) -> None:
    assert module in MODULES
    run = on("plain-pytorch", "H100")
    plain = seconds(run)
    some = seconds(replace(run, recompute_modules=frozenset({module})))
    assert plain < some < seconds(run, full=True)


def test_recomputing_the_mlp_costs_more_than_its_activation_or_its_first_linear() -> None:
    run = on("plain-pytorch", "H100")
    act, first, whole = (
        seconds(replace(run, recompute_modules=frozenset({module}))) for module in ("act", "mlp_in", "mlp")
    )
    assert act < first < whole


def test_h800_loses_more_to_exposed_tensor_parallelism_than_h100() -> None:
    lost = {}
    for gpu in ("H100", "H800"):
        run = on("mcore-06", gpu)
        lost[gpu] = seconds(run) / seconds(with_stack(run, "tensor_parallel", exposed=0.0))
    assert lost["H800"] > 1.05 * lost["H100"]


def test_a100_with_40_gb_is_slower_only_by_its_memory_bandwidth() -> None:
    large, small = (seconds(on("llm-foundry", gpu)) for gpu in ("A100-80", "A100-40"))
    assert large < small < 2039 / 1555 * large


def test_omni_path_is_slower_than_infiniband_for_the_same_layout() -> None:
    run = on("megatron-deepspeed")
    assert seconds(replace(run, stack=load_stack("megatron-deepspeed-omnipath"))) > seconds(run)


def test_deepspeeds_first_pipeline_engine_is_slower_than_the_later_one_on_the_same_network() -> None:
    early, later = (on(name, tp=8, pp=8, dp=4) for name in ("megatron-deepspeed-early", "megatron-deepspeed"))
    assert 1.05 * seconds(later) < seconds(early) < 2 * seconds(later)


@pytest.mark.parametrize(
    ("framework", "network", "profile"),
    [
        ("Megatron-DeepSpeed", "4x100Gb/s OPA per node", "megatron-deepspeed-omnipath"),
        ("Megatron-DeepSpeed", "8x200 Gbit/s", "megatron-deepspeed-early"),
        ("Megatron-DeepSpeed (2022-23)", "4x200G HDR per node", "megatron-deepspeed"),
        ("GPT-NeoX", None, "megatron-deepspeed-early"),
    ],
)
def test_the_age_of_deepspeed_and_the_network_choose_its_profile(
    framework: str, network: str | None, profile: str
) -> None:
    facts = RunFacts(
        model="gpt3-175b",
        seq_len=2048,
        global_batch=1536,
        gpu="A100",
        num_gpus=512,
        framework=framework,
        interconnect=network,
        flash_attention=False,
    )
    assert profile_of(facts, load_card("gpt3-175b"), load_accelerator("A100"))[0] == profile
