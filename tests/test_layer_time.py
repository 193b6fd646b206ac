"""Claims about the time of layers and stages, and the traffic between GPUs."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from time_runs import some_run

from costmodel.layer import layer_cost
from costmodel.memory.states import local_parameters
from costmodel.pipeline import plain_layers, stage_split
from costmodel.rates import stage_rates
from costmodel.records import gather
from costmodel.run import Run
from costmodel.sharding import data_parallel_traffic
from costmodel.stack import UnknownStackError, load_stack, overlay, stack_names
from costmodel.step import step_time

MODELS = ["llama-2-70b", "deepseek-v3", "gpt-oss-120b"]


def seconds(run: Run) -> float:
    """Step time with the plain split."""
    split = stage_split(
        run.architecture, run.pp, run.vpp, run.num_microbatches, plain_layers(run.architecture.layers, run.pp)
    )
    return float(
        step_time(stage_rates(run, memory=False), split, run.num_microbatches, run.pp, run.vpp).total
    )


def with_stack(run: Run, part: str, **changes: Any) -> Run:
    group = getattr(run.stack, part).model_copy(update=changes)
    return replace(run, stack=run.stack.model_copy(update={part: group}))


def test_h800_pays_about_twice_for_tp_what_h100_does() -> None:
    h800, h100 = some_run("H800", micro_batch=16), some_run("H100", micro_batch=16)
    ratio = layer_cost(h800).tp / layer_cost(h100).tp
    assert 1.9 < ratio[0] <= h100.gpu.link.bandwidth_scale / h800.gpu.link.bandwidth_scale


def test_h800_computes_as_fast_as_h100() -> None:
    h800, h100 = layer_cost(some_run("H800")), layer_cost(some_run("H100"))
    assert h800.gemm == pytest.approx(h100.gemm)
    assert h800.attention == pytest.approx(h100.attention)


def test_h20_computes_six_times_slower_than_h800() -> None:
    ratio = layer_cost(some_run("H20")).gemm / layer_cost(some_run("H800")).gemm
    assert 5 < ratio[0] < 7.5


def test_a_70b_layer_runs_at_a_plausible_share_of_peak() -> None:
    run = some_run()
    cost = layer_cost(run)
    parameters = 2 * 8192 * (8192 + 1024) + 3 * 8192 * 28672
    busy = 6.0 * parameters / run.tp * run.tokens / 989e12
    assert 0.65 < busy / cost.gemm[0] < 0.85
    assert 0.35 < busy / cost.total[0] < 0.75


def test_a_step_of_70b_on_512_h100_has_a_published_mfu() -> None:
    run = some_run(dp=32, pp=2, num_microbatches=32)
    flops = 6 * 69e9 * run.tokens_per_step / run.num_gpus / 989e12
    assert 0.38 < flops / seconds(run) < 0.58


@pytest.mark.parametrize("model", MODELS)
def test_the_costs_of_a_column_are_those_of_its_rows(model: str) -> None:
    columns = {"tp": [1, 2, 8], "cp": [1, 2, 1], "dp": [16, 8, 4], "ep": [1, 4, 8], "micro_batch": [1, 2, 4]}
    if model == "llama-2-70b":
        columns["ep"] = [1, 1, 1]
    many = stage_rates(some_run(model=model, **{k: np.array(v) for k, v in columns.items()}))
    for i in range(3):
        one = stage_rates(some_run(model=model, **{k: v[i] for k, v in columns.items()}))
        assert many.work.kinds[i] == pytest.approx(one.work.kinds)
        assert many.work.last[i] == pytest.approx(one.work.last)
        assert many.reduce.kinds[i] == pytest.approx(one.reduce.kinds)
        assert many.recompute[i] == pytest.approx(one.recompute)
        assert many.states.kinds[i] == pytest.approx(one.states.kinds)
        assert many.scale[i] == pytest.approx(one.scale)


def test_gathered_layer_costs_give_the_same_rates() -> None:
    run = some_run(tp=np.array([1, 8, 1]), micro_batch=np.array([1, 2, 1]))
    keys = layer_cost(some_run(tp=np.array([1, 8]), micro_batch=np.array([1, 2])))
    gathered = stage_rates(run, gather(keys, np.array([0, 1, 0])))
    assert gathered.work.kinds == pytest.approx(stage_rates(run).work.kinds)


def test_the_parts_of_a_layer_sum_to_its_total() -> None:
    cost = layer_cost(some_run(model="deepseek-v3", ep=8, recompute_modules=frozenset({"core_attn"})))
    parts = [f.name for f in fields(cost) if f.name not in ("forward", "first", "last")]
    assert sum(getattr(cost, p) for p in parts) == pytest.approx(cost.total)


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from(["H100", "H800", "GB200", "A100-80"]),
    st.sampled_from(MODELS),
    st.sampled_from([1, 2, 8]),
    st.sampled_from([1, 8]),
    st.sampled_from([0, 1, 2, 3]),
    st.floats(1.0, 3.0),
)
def test_more_bandwidth_is_never_slower(
    gpu: str, model: str, tp: int, ep: int, zero: int, factor: float
) -> None:
    run = some_run(gpu, model, tp=tp, ep=ep, pp=1, dp=32, zero=zero)
    fabric = replace(run.fabric, nvlink=run.fabric.nvlink * factor, nic=run.fabric.nic * factor)
    assert seconds(replace(run, fabric=fabric)) <= seconds(run) * (1 + 1e-9)


@settings(max_examples=25, deadline=None)
@given(st.sampled_from(MODELS), st.sampled_from([1, 2, 4, 8]), st.sampled_from([1, 2, 4]))
def test_no_cost_is_negative_and_recompute_is_less_than_half_a_layer(model: str, tp: int, cp: int) -> None:
    cost = layer_cost(some_run(model=model, tp=tp, cp=cp))
    for field in fields(cost):
        assert np.all(getattr(cost, field.name) >= -1e-12), field.name
    assert np.all(cost.forward < 0.5 * cost.total)


def test_full_recompute_adds_about_a_third() -> None:
    cost = layer_cost(some_run())
    assert 0.28 < cost.forward[0] / cost.total[0] < 0.42


def test_each_recomputed_module_costs_less_than_the_whole_layer() -> None:
    names = ("core_attn", "layernorm", "mla_up_proj", "moe_act", "shared_experts", "moe", "mlp")
    for name in names:
        cost = layer_cost(some_run(model="deepseek-v3", ep=8, recompute_modules=frozenset({name})))
        assert np.any(cost.selective > 0), name
        assert np.all(cost.selective < cost.forward), name


def test_moe_covers_its_activation_and_its_shared_experts() -> None:
    def moe_layer(*names: str) -> float:
        run = some_run(model="deepseek-v3", ep=8, recompute_modules=frozenset(names))
        return float(layer_cost(run).selective[-1])

    assert moe_layer("moe", "moe_act", "shared_experts") == moe_layer("moe")


def test_twice_the_tokens_cost_at_most_twice_the_time() -> None:
    cost = layer_cost(some_run(micro_batch=np.array([1, 2])))
    assert cost.total[0, 0] < cost.total[1, 0] < 2 * cost.total[0, 0]


def test_more_experts_on_a_rank_never_make_weight_traffic_smaller() -> None:
    run = some_run(model="deepseek-v3", tp=1, dp=64, ep=np.array([32, 16, 8, 4, 1]))
    layer = layer_cost(run).elementwise[:, -1]
    assert np.all(np.diff(layer) > 0)


def test_tokens_of_an_expert_do_not_depend_on_where_it_lies() -> None:
    run = some_run(model="deepseek-v3", tp=1, dp=64, ep=np.array([1, 8, 64]), micro_batch=8)
    gemm = layer_cost(with_stack(run, "expert_parallel", imbalance=1.0)).gemm[:, -1]
    assert gemm.max() < 1.05 * gemm.min()


def test_hiding_the_dispatch_behind_compute_helps_but_is_not_free() -> None:
    run = some_run(model="deepseek-v3", tp=1, dp=64, ep=16, micro_batch=4)
    shown, hidden = (
        layer_cost(run).ep[-1],
        layer_cost(with_stack(run, "expert_parallel", overlap=True)).ep[-1],
    )
    assert 0 < hidden < shown


def test_a_host_that_is_slow_sets_the_pace_of_small_layers() -> None:
    run = some_run(model="qwen-3-30b-a3b", tp=1, dp=64, ep=8)
    eager = layer_cost(run)
    graphs = layer_cost(with_stack(run, "host", graphs="full"))
    assert eager.total[0] > 1.05 * graphs.total[0]


def test_zero_moves_what_the_paper_says() -> None:
    run = some_run(
        dp=np.full(4, 8), zero=np.array([0, 1, 2, 3]), tp=1, pp=1, stack=load_stack("megatron-bridge")
    )
    traffic = data_parallel_traffic(run, local_parameters(run))
    step, each = traffic.reduce.kinds[:, 0] + traffic.gather.kinds[:, 0], traffic.micro_batch.kinds[:, 0]
    assert step[0] == pytest.approx(step[1])
    assert each[:2].tolist() == [0, 0]
    assert each[3] == pytest.approx(3 * each[2])
    assert each[3] == pytest.approx(1.5 * step[1])


def test_experts_are_reduced_over_their_replicas_only() -> None:
    run = some_run(model="deepseek-v3", tp=1, dp=64, ep=64)
    one_copy = data_parallel_traffic(run, local_parameters(run)).reduce.kinds[-1]
    copies = data_parallel_traffic(replace(run, ep=8), local_parameters(replace(run, ep=8))).reduce.kinds[-1]
    assert run.expert_dp == 1
    assert one_copy < copies / 20


def test_a_pipeline_of_one_stage_transfers_nothing() -> None:
    rates = stage_rates(some_run(pp=np.array([1, 2]), vpp=1), memory=False)
    assert rates.p2p_fill[0] == 0.0 < rates.p2p_fill[1]


def test_interleaving_transfers_more_often() -> None:
    rates = stage_rates(some_run(pp=4, vpp=np.array([2, 4])), memory=False)
    assert rates.p2p_steady[1] == pytest.approx(2 * rates.p2p_steady[0])


def test_stragglers_cost_a_little_more_with_every_doubling() -> None:
    scale = stage_rates(some_run(dp=np.array([1, 8, 64, 512])), memory=False).scale
    assert np.all(np.diff(scale) > 0)
    assert scale[-1] < 1.06


def test_a_bigger_optimizer_shard_group_is_never_slower() -> None:
    rates = stage_rates(some_run(dp=np.array([1, 2, 8, 64])), memory=False)
    assert np.all(np.diff(rates.optimizer.kinds[:, 0]) < 0)


def test_without_memory_the_byte_fields_are_zero() -> None:
    rates = stage_rates(some_run(), memory=False)
    assert rates.states.kinds.sum() == rates.working == 0.0


def test_every_profile_loads_and_names_its_sources() -> None:
    for name in stack_names():
        assert load_stack(name).sources, name


def test_a_mistyped_profile_names_the_nearest() -> None:
    with pytest.raises(UnknownStackError, match="did you mean 'megatron-core'"):
        load_stack("megatron-cor")


def test_an_overlay_changes_a_leaf_and_keeps_its_neighbours() -> None:
    assert overlay({"a": {"b": 1, "c": 2}, "d": 3}, {"a": {"b": 9}}) == {"a": {"b": 9, "c": 2}, "d": 3}


def test_a_profile_that_extends_another_keeps_what_it_does_not_name() -> None:
    today, early = load_stack("megatron-core"), load_stack("nemo-early")
    assert early.elementwise == today.elementwise
    assert early.gemm.factor.hopper < today.gemm.factor.hopper


@pytest.mark.parametrize(("name", "today"), [("nemo-early", "nemo"), ("megatron-lm", "megatron-core")])
@pytest.mark.parametrize("gpu", ["H100", "B200"])
def test_older_and_stock_software_is_never_faster(name: str, today: str, gpu: str) -> None:
    run = some_run(gpu)
    assert seconds(replace(run, stack=load_stack(name))) >= seconds(replace(run, stack=load_stack(today)))
