"""Claims about peak memory: states, activations, transients, overhead and what fits a GPU."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from costmodel.architecture import Architecture
from costmodel.cards import load_card
from costmodel.closed_form.activations import (
    full_recompute_bytes,
    gpt_layer_bytes_sequence_parallel,
    llama_layer_bytes,
)
from costmodel.memory.activations import checkpoint_bytes, kept_bytes
from costmodel.memory.breakdown import peak_by_category
from costmodel.memory.layer_memory import layer_memory, on_stages
from costmodel.memory.overhead import fixed_bytes, memory_limit
from costmodel.memory.shape import per_layer, scaled
from costmodel.memory.states import state_bytes, states
from costmodel.memory.transients import loss_bytes, rebuilt_bytes, working_bytes
from costmodel.modules import MODULES
from costmodel.parameters import total_parameters
from costmodel.pipeline import plain_layers, stage_split
from costmodel.rates import stage_rates
from costmodel.run import Fabric, Run
from costmodel.stack import Stack, load_stack
from costmodel.stage import Array, PerLayer, StageSplit, stage_memory, stage_sum
from hardware.catalogue import load_accelerator

GIB = 2**30
COLUMNS = ("tp", "cp", "pp", "vpp", "dp", "ep", "etp", "micro_batch", "num_microbatches", "zero")


def megatron(**memory: Any) -> Stack:
    """Today's Megatron-Core with some memory habits changed."""
    stack = load_stack("megatron-core")
    return stack.model_copy(update={"memory": stack.memory.model_copy(update=memory)})


def a_run(model: str | Architecture = "llama-7b", gpu: str = "h800", **choices: Any) -> Run:
    accelerator = load_accelerator(gpu)
    fixed = {
        "architecture": load_card(model) if isinstance(model, str) else model,
        "stack": choices.pop("stack", None) or megatron(),
        "seq_len": choices.pop("seq_len", 4096),
        "precision": choices.pop("precision", "bf16"),
        "recompute_modules": frozenset(choices.pop("modules", ())),
    }
    columns = {name: choices.pop(name, 1) for name in COLUMNS}
    columns |= {name: choices.pop(name) for name in ("shard_ranks", "offload") if name in choices}
    assert not choices, choices
    return Run(gpu=accelerator, fabric=Fabric.of(accelerator), **fixed, **columns)


def split_of(run: Run, recomputed: bool = False) -> StageSplit:
    layers = plain_layers(run.architecture.layers, int(run.pp * run.vpp))
    return stage_split(
        run.architecture, run.pp, run.vpp, run.num_microbatches, layers, layers if recomputed else None
    )


def peak(run: Run, recomputed: bool = False) -> float:
    return float(stage_memory(stage_rates(run), split_of(run, recomputed)).max())


def whole_model(quantity: PerLayer, architecture: Architecture) -> float:
    """The quantity summed over a model on one stage."""
    count = [architecture.pattern().count(kind) for kind in architecture.kinds]
    return float((quantity.kinds * count).sum() + quantity.first + quantity.last)


# states


def test_llama_7b_costs_16_bytes_a_parameter_with_16_bit_gradients() -> None:
    run = a_run(stack=megatron(gradient_bytes=2))
    assert whole_model(state_bytes(run), run.architecture) == 16 * total_parameters(run.architecture)


def test_fp32_main_gradients_cost_2_bytes_more() -> None:
    run = a_run()
    assert whole_model(state_bytes(run), run.architecture) == 18 * total_parameters(run.architecture)


@pytest.mark.parametrize(("zero", "gigabytes"), [(0, 107.8), (1, 37.1), (2, 25.3), (3, 13.5)])
def test_zero_stages_of_llama_7b_on_8_gpus(zero: int, gigabytes: float) -> None:
    run = a_run(dp=8, zero=zero, stack=megatron(gradient_bytes=2))
    assert whole_model(state_bytes(run), run.architecture) / 1e9 == pytest.approx(gigabytes, abs=0.05)


def test_context_parallel_ranks_share_the_optimizer_states() -> None:
    by_dp, by_both = (states(a_run(zero=1, dp=dp, cp=cp)).optimizer.kinds for dp, cp in ((8, 1), (4, 2)))
    assert by_dp == pytest.approx(by_both)


def test_optimizer_states_of_experts_are_sharded_over_their_own_replicas() -> None:
    """With ep = dp an expert has one replica, so ZeRO-1 saves nothing on it."""
    whole, alone = (
        states(a_run("mixtral-8x7b", dp=8, ep=ep, zero=zero)).optimizer.kinds.sum()
        for ep, zero in ((8, 0), (8, 1))
    )
    twice = states(a_run("mixtral-8x7b", dp=16, ep=8, zero=1)).optimizer.kinds.sum()
    experts = 12 * 3 * 4096 * 14336
    assert whole > alone > experts
    assert alone > 1.9 * twice


def test_tied_embeddings_are_stored_twice_on_a_pipeline_and_once_without() -> None:
    tied = load_card("gemma-2-9b")
    assert tied.tied_embeddings
    one, two = states(a_run(tied)).weights, states(a_run(tied, pp=2)).weights
    table = 2 * tied.vocab * tied.hidden
    assert two.last - one.last == table
    assert one.first == two.first == table


def test_vocabulary_is_padded_for_tensor_parallelism() -> None:
    odd = load_card("llama-7b").model_copy(update={"vocab": 32001})
    assert states(a_run(odd, tp=8)).weights.first == 2 * 32768 / 8 * odd.hidden


def test_prediction_modules_lie_on_the_last_stage_and_bring_the_embedding() -> None:
    model = load_card("deepseek-v3")
    with_mtp, without = (
        states(a_run(model.model_copy(update={"mtp_layers": n}), pp=16, ep=64, dp=64)).weights for n in (1, 0)
    )
    assert with_mtp.first == without.first
    assert with_mtp.last - without.last > 2 * model.vocab * model.hidden + with_mtp.kinds[-1]


def test_fp8_keeps_the_16_bit_weights_beside_the_quantised_ones() -> None:
    bf16, fp8 = (states(a_run(precision=precision)).weights for precision in ("bf16", "fp8"))
    assert (fp8.kinds == 2 * bf16.kinds).all()
    assert fp8.first == bf16.first


@pytest.mark.parametrize(("gpu", "together"), [("h100", 4), ("b200", 3)])
def test_performance_recipes_keep_fp8_parameters_and_bf16_gradients(gpu: str, together: int) -> None:
    run = a_run("llama-3.1-405b", gpu, tp=8, precision="fp8", stack=load_stack("megatron-bridge"))
    parts = states(run)
    assert parts.weights.kinds + parts.gradients.kinds == pytest.approx(together / 2 * parts.gradients.kinds)


sizes = st.sampled_from([1, 2, 4, 8])


@given(model=st.sampled_from(["llama-2-70b", "mixtral-8x7b", "gemma-2-9b", "deepseek-v3"]), tp=sizes, pp=sizes, ep=sizes,
       zero=st.integers(0, 3), axis=st.sampled_from(["tp", "pp", "ep"]))  # fmt: skip
def test_splitting_more_never_puts_more_weights_on_a_gpu(
    model: str, tp: int, pp: int, ep: int, zero: int, axis: str
) -> None:
    choices = {"tp": tp, "pp": pp, "ep": ep}
    before, after = (
        a_run(model, dp=64, zero=zero, **split) for split in (choices, choices | {axis: 2 * choices[axis]})
    )
    fullest = [stage_sum(states(run).weights, split_of(run)).max() for run in (before, after)]
    assert fullest[1] <= fullest[0]


# activations


def test_a_llama_layer_keeps_what_the_closed_form_says() -> None:
    model = load_card("llama-3-8b")
    run = a_run(model, tp=4, micro_batch=2, cp=2)
    shape = (model.hidden, model.ffn, model.heads, model.q_width, model.kv_width)
    assert kept_bytes(run).kinds == pytest.approx([llama_layer_bytes(2 * 4096 / 2, *shape, tp=4)])


def test_without_sequence_parallelism_norms_and_residuals_are_whole_on_every_rank() -> None:
    model, stack = load_card("llama-3-8b"), megatron()
    parallel = stack.tensor_parallel.model_copy(update={"sequence_parallel": False})
    run = a_run(model, tp=8, stack=stack.model_copy(update={"tensor_parallel": parallel}))
    shape = (model.hidden, model.ffn, model.heads, model.q_width, model.kv_width)
    expected = llama_layer_bytes(4096, *shape, tp=8, sequence_parallel=False)
    assert kept_bytes(run).kinds == pytest.approx([expected])


def test_a_gpt_layer_with_dropout_and_unfused_attention_keeps_34_and_5as_over_d() -> None:
    model, stack = load_card("gpt3-175b"), megatron(dropout=True)
    unfused = stack.model_copy(update={"attention": stack.attention.model_copy(update={"kernel": "unfused"})})
    run = a_run(model, tp=8, seq_len=2048, stack=unfused)
    expected = gpt_layer_bytes_sequence_parallel(2048, 2048, model.hidden, model.heads, 8)
    assert kept_bytes(run).kinds == pytest.approx([expected])


@pytest.mark.parametrize("model", ["llama-2-70b", "deepseek-v3"])
def test_tensor_and_sequence_parallelism_divide_activations(model: str) -> None:
    one, eight = (kept_bytes(a_run(model, tp=tp, dp=8, ep=8)) for tp in (1, 8))
    assert eight.kinds == pytest.approx(one.kinds / 8)


def test_full_recompute_keeps_the_input_of_each_layer() -> None:
    run = a_run("llama-7b", micro_batch=2)
    assert checkpoint_bytes(run) == full_recompute_bytes(2 * 4096, 4096)
    assert rebuilt_bytes(run) == kept_bytes(run).kinds.max()


def test_32_layers_of_llama_7b_keep_17_gigabytes_or_1_with_full_recompute() -> None:
    run = a_run("llama-7b")
    assert 32 * kept_bytes(run).kinds.sum() / 1e9 == pytest.approx(17.3, abs=0.1)
    assert 32 * checkpoint_bytes(run).sum() / 1e9 == pytest.approx(1.07, abs=0.01)


@given(
    modules=st.sets(st.sampled_from(sorted(MODULES))),
    more=st.sampled_from(sorted(MODULES)),
    precision=st.sampled_from(["bf16", "fp8"]),
)
def test_recomputing_a_module_never_keeps_more(modules: set[str], more: str, precision: str) -> None:
    fewer, kept = (
        kept_bytes(a_run("deepseek-v3", ep=8, dp=8, modules=names, precision=precision)).kinds
        for names in (modules | {more}, modules)
    )
    assert (fewer <= kept).all()
    assert (fewer > 0).all()


def test_every_recompute_module_of_a_latent_attention_moe_saves_memory() -> None:
    plain = kept_bytes(a_run("deepseek-v3", ep=8, dp=8)).kinds.sum()
    for module in MODULES:
        assert kept_bytes(a_run("deepseek-v3", ep=8, dp=8, modules=[module])).kinds.sum() < plain, module


def test_imbalance_and_expert_tensor_parallelism_bring_more_tokens_to_a_rank() -> None:
    def experts(**choices: Any) -> float:
        return float(kept_bytes(a_run("mixtral-8x7b", tp=2, dp=4, **choices)).kinds[-1])

    balanced = experts(ep=8)
    assert experts(ep=8, stack=megatron(expert_imbalance=1.5)) > balanced
    assert experts(ep=4, etp=2) > balanced


def test_a_stage_that_recomputes_rebuilds_one_layer_at_a_time() -> None:
    run = a_run("llama-7b", pp=2, num_microbatches=4)
    rates, layers = stage_rates(run), np.array([16, 16])
    none, some = (
        stage_memory(
            replace(rates, loss=0 * rates.loss), stage_split(run.architecture, 2, 1, 4, layers, again)
        )
        for again in (None, np.array([0, 1]))
    )
    saved = rates.kept.kinds[0] - rates.checkpoint[0] - rates.rebuilt
    assert none[0] == some[0]
    assert none[1] - some[1] == pytest.approx(saved * (1 + rates.overhead))


def test_the_loss_and_the_rebuilt_layer_are_not_in_memory_together() -> None:
    run = a_run("llama-3-8b", micro_batch=8)
    rates, split = stage_rates(run), split_of(run, recomputed=True)
    assert rates.loss > rates.working + rates.rebuilt
    assert stage_memory(rates, split) == stage_memory(replace(rates, rebuilt=0 * rates.rebuilt), split)


def test_offload_leaves_the_rest_and_one_virtual_stage_on_the_gpu() -> None:
    """The first of 8 stages keeps 8 micro-batches; all offloaded, one of them is back at a time."""
    run = a_run("llama-2-70b", tp=8, pp=8, num_microbatches=64, zero=1, dp=8)
    first = [stage_memory(stage_rates(replace(run, offload=x)), split_of(run))[0] for x in (0.0, 0.5, 1.0)]
    chunk = 10 * stage_rates(run).kept.kinds[0] * (1 + run.stack.memory.fragmentation)
    assert first[0] - first[1] == pytest.approx(3.5 * chunk)
    assert first[1] - first[2] == pytest.approx(3.5 * chunk)


@pytest.mark.parametrize("recomputed", [False, True])
@pytest.mark.parametrize(
    "layout", [{"pp": 8, "num_microbatches": 64}, {"pp": 4, "vpp": 5, "num_microbatches": 64}, {}]
)
def test_the_more_is_offloaded_the_less_is_on_the_gpu(layout: dict[str, int], recomputed: bool) -> None:
    """Checkpoints go to the host as well: full recompute with offload is not dearer than without."""
    run = a_run("llama-2-70b", tp=8, zero=1, dp=8, **layout)
    split = split_of(run, recomputed=recomputed)
    peaks = [stage_memory(stage_rates(replace(run, offload=x)), split) for x in (0.0, 0.25, 0.5, 1.0)]
    for more, less in pairwise(peaks):
        # The last of the stages keeps one micro-batch, which is back as a whole: nothing is saved there.
        assert (less <= more).all()
        assert less[0] < more[0]


def test_without_a_pipeline_two_layers_are_back_at_a_time() -> None:
    run = a_run("llama-3-8b", zero=3, dp=8)
    rates = stage_rates(run)
    split = split_of(run, recomputed=True)
    none, whole = (stage_memory(stage_rates(replace(run, offload=x)), split)[0] for x in (0.0, 1.0))
    assert none - whole == pytest.approx(30 * rates.checkpoint[0] * (1 + rates.overhead))


def test_gathered_keys_and_values_take_memory_by_the_whole_sequence() -> None:
    """A million tokens of 8 key heads on 8 context ranks: 16 bytes an element, whatever the queries."""
    base = a_run("llama-3-8b", stack=load_stack("fsdp"), seq_len=1_000_000)
    split, whole = replace(base, cp=8), 16 * 1_000_000 * 1024
    quiet = replace(split, stack=megatron(**split.stack.memory.model_dump() | {"context_gather_bytes": 0.0}))
    assert working_bytes(split) - working_bytes(quiet) == pytest.approx(whole)
    assert working_bytes(replace(split, tp=2)) < working_bytes(split)
    none = replace(base, stack=quiet.stack)
    assert working_bytes(base) == working_bytes(none)


def test_states_sharded_within_a_node_shrink_only_as_far_as_the_node() -> None:
    node = a_run("llama-7b", dp=64, zero=3, shard_ranks=8)
    assert state_bytes(node).kinds == pytest.approx(state_bytes(replace(node, dp=8)).kinds)
    assert state_bytes(node).kinds > 7 * state_bytes(replace(node, shard_ranks=np.inf)).kinds


# transients and overhead


def test_the_last_stage_pays_for_logits_by_vocabulary() -> None:
    model = load_card("llama-3-8b")
    run = a_run(model, micro_batch=4, pp=4)
    logits = 4 * 4096 * model.vocab * run.stack.memory.logit_bytes
    assert loss_bytes(run) > logits > working_bytes(run)
    assert loss_bytes(replace(run, cp=4)) < loss_bytes(run) / 2


def test_zero_3_gathers_layers_that_the_other_stages_hold() -> None:
    two, three = (a_run("llama-2-70b", dp=64, zero=zero) for zero in (2, 3))
    layer = states(two).weights.kinds.max()
    assert stage_rates(three).working - stage_rates(two).working == pytest.approx(2 * layer)


def test_each_communicator_costs_memory() -> None:
    alone, all_five = a_run("mixtral-8x7b"), a_run("mixtral-8x7b", tp=2, cp=2, pp=2, dp=4, ep=2)
    profile = alone.stack.memory
    assert fixed_bytes(alone) == profile.fixed_bytes
    assert fixed_bytes(all_five) == profile.fixed_bytes + 5 * profile.group_bytes


@pytest.mark.parametrize(
    ("habit", "value", "choices"),
    [
        ("gradient_bytes_fp16", 8, {"precision": "fp16"}),
        ("gradient_bytes_one_replica", 8, {"dp": 1}),
        ("partition_gradient_bytes", 4, {}),
        ("pipeline_gathered_bytes", 6, {"zero": 3}),
        ("norm_output_bytes", 8, {}),
        ("gathered_inputs", True, {}),
        ("dropout", True, {}),
        ("unfused_glu", True, {}),
        ("extra_bytes_sharded", 10, {}),
        ("extra_bytes_tp", 6, {}),
        ("moe_copies", 2, {}),
        ("stage_output_kept", True, {}),
        ("logit_bytes", 14, {}),
        ("logit_bytes_tp", 20, {}),
        ("fp8_gather_bytes", 4, {"zero": 3, "precision": "fp8"}),
        ("fp8_input_bytes", 2, {"precision": "fp8"}),
        ("fragmentation", 0.1, {}),
    ],
)
def test_each_habit_of_other_stacks_costs_memory(habit: str, value: float, choices: dict[str, Any]) -> None:
    choices = {"tp": 2, "pp": 2, "dp": 8, "ep": 2, "zero": 1, "micro_batch": 4} | choices
    usual, other = (
        a_run("mixtral-8x7b", stack=stack, **choices) for stack in (megatron(), megatron(**{habit: value}))
    )
    before, after = (stage_memory(stage_rates(run), split_of(run)) for run in (usual, other))
    assert (after >= before).all()
    assert after.sum() > before.sum()


def test_unsharded_checkpoints_cost_tp_times_as_much() -> None:
    sharded, whole = (
        a_run("llama-2-70b", tp=8, stack=megatron(checkpoint_sharded=on)) for on in (True, False)
    )
    assert checkpoint_bytes(whole) == 8 * checkpoint_bytes(sharded)


# what fits


def test_llama_70b_on_tp8_pp2_dp40_fits_an_h800() -> None:
    run = a_run("llama-2-70b", tp=8, pp=2, dp=40, num_microbatches=16, zero=1)
    assert 0.4 < peak(run) / memory_limit(run.gpu, run.stack.memory) < 1


def test_llama_70b_does_not_fit_without_tensor_or_pipeline_parallelism() -> None:
    run = a_run("llama-2-70b", dp=640, zero=1)
    assert peak(run, recomputed=True) > memory_limit(run.gpu, run.stack.memory)


def test_deepseek_v2_at_ep8_zero_1_does_not_fit_64_gpus() -> None:
    run = a_run("deepseek-v2", dp=64, ep=8, zero=1)
    assert peak(run, recomputed=True) > 2 * memory_limit(run.gpu, run.stack.memory)


@pytest.mark.parametrize(("tp", "dp", "gib"), [(2, 4, 60.68), (4, 2, 39.07), (8, 1, 28.29)])
def test_measured_peaks_of_12_layers_of_llama_3_70b_are_met_within_1_percent(
    tp: int, dp: int, gib: float
) -> None:
    """Allocated peaks of Megatron-LM 0.14 on 8 B200, public SimuMax B200 release v1.2 (measured columns)."""
    model = load_card("llama-3-70b").model_copy(update={"layers": 12})
    allocated = megatron(fragmentation=0, fixed_bytes=0, group_bytes=0)
    run = a_run(model, "b200", tp=tp, dp=dp, num_microbatches=4, zero=1, stack=allocated)
    assert peak(run) / GIB == pytest.approx(gib, rel=0.01)


# the contract


def test_the_categories_sum_to_the_peak_of_the_fullest_rank() -> None:
    run = a_run("deepseek-v3", tp=2, pp=4, vpp=2, dp=64, ep=32, num_microbatches=16, zero=1)
    rates, split = stage_rates(run), split_of(run)
    found = peak_by_category(run, rates, split)
    parts = (
        found.weights,
        found.gradients,
        found.optimizer,
        found.activations,
        found.buffers,
        found.overhead,
    )
    assert found.total == stage_memory(rates, split).max()
    assert sum(parts) == pytest.approx(found.total)
    assert all(part > 0 for part in parts)
    allocated = float(found.total - found.overhead)
    expected = run.stack.memory.fragmentation * allocated + float(fixed_bytes(run))
    assert found.overhead == pytest.approx(expected)


@pytest.mark.parametrize("model", ["llama-3-8b", "gemma-2-9b", "mixtral-8x7b", "deepseek-v3"])
@pytest.mark.parametrize("precision", ["bf16", "fp8"])
def test_a_column_of_candidates_costs_what_each_costs_alone(model: str, precision: str) -> None:
    columns = {
        "tp": np.array([1, 2, 8, 4]),
        "cp": np.array([1, 2, 1, 2]),
        "pp": np.array([1, 4, 2, 1]),
        "vpp": np.array([1, 2, 1, 1]),
        "dp": np.array([64, 8, 16, 32]),
        "ep": np.array([8, 4, 2, 8]),
        "etp": np.array([1, 1, 2, 4]),
        "micro_batch": np.array([1, 2, 4, 1]),
        "num_microbatches": np.array([8, 16, 8, 4]),
        "zero": np.array([0, 1, 2, 3]),
    }
    many = a_run(model, precision=precision, **columns)
    for i in range(4):
        one = a_run(model, precision=precision, **{name: int(column[i]) for name, column in columns.items()})
        for quantity in (state_bytes, kept_bytes):
            row, alone = quantity(many), quantity(one)
            assert row.kinds[i] == pytest.approx(alone.kinds)
            assert (row.first if row.first.ndim == 0 else row.first[i]) == pytest.approx(alone.first)
            assert row.last[i] == pytest.approx(alone.last)
        for number in (checkpoint_bytes, working_bytes, loss_bytes, rebuilt_bytes, fixed_bytes):
            value: Array = number(many)
            assert value[i] == pytest.approx(number(one)), number.__name__
        of, only = on_stages(many, layer_memory(many)), on_stages(one, layer_memory(one))
        for name in ("checkpoint", "working", "loss", "rebuilt"):
            assert getattr(of, name)[i] == pytest.approx(getattr(only, name)), name


def test_scaling_and_stacking_keep_shapes() -> None:
    columns = per_layer([1.0, np.array([2.0, 3.0])], 0.0, np.array([4.0, 5.0]))
    assert columns.kinds.tolist() == [[1.0, 2.0], [1.0, 3.0]]
    assert scaled(columns, np.array([1, 10])).kinds.tolist() == [[1.0, 2.0], [10.0, 30.0]]
