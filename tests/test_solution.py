from __future__ import annotations

import json

import pytest
from handmade import feasible, infeasible
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.solution import Relaxation, Solution


@pytest.mark.parametrize("solution", [feasible(), infeasible()], ids=["feasible", "infeasible"])
def test_a_solution_survives_json_and_yaml_exactly(solution):
    assert Solution.from_text(solution.to_json()) == solution
    assert Solution.from_text(solution.to_yaml()) == solution
    assert Solution.from_text(solution.to_yaml()).to_json() == solution.to_json()


@settings(deadline=None, max_examples=50)
@given(st.floats(1e-300, 1e300), st.text(max_size=30), st.integers(0, 10**18))
def test_no_number_or_text_changes_on_the_way_through_a_file(number, text, count):
    base = feasible()
    plan = base.plans[0]
    estimate = plan.estimate.model_copy(update={"dollars": number, "breakdown_s": {text: -number}})
    solution = base.model_copy(
        update={
            "plans": (plan.model_copy(update={"estimate": estimate}),),
            "proof": base.proof.model_copy(update={"lattice": count}),
            "notes": (text,),
        }
    )
    assert Solution.from_text(solution.to_json()) == solution
    assert Solution.from_text(solution.to_yaml()) == solution


def test_the_keys_other_programs_read_are_there():
    data = json.loads(feasible().to_json())
    assert {"schema_version", "status", "problem", "provenance", "plans", "proof", "conflict"} <= set(data)
    plan = data["plans"][0]
    assert {"decisions", "estimate", "slack", "reasons"} <= set(plan)
    wanted = (
        "gpu num_gpus nodes tp cp pp vpp dp ep etp micro_batch num_microbatches global_batch zero recompute"
    )
    assert {*wanted.split(), "precision", "sequence_parallel", "stages"} <= set(plan["decisions"])
    assert {"layers", "recomputed_layers"} <= set(plan["decisions"]["stages"][0])
    wanted = "step_time_s days dollars mfu hfu tokens_per_s_per_gpu memory_gib breakdown_s interval_80_days"
    assert set(wanted.split()) <= set(plan["estimate"])
    wanted = "decision chosen alternative effect because text"
    assert set(wanted.split()) <= set(plan["reasons"][0])
    assert {"lattice", "valid", "feasible", "screened", "bounded", "solved", "gap", "seconds"} <= set(
        data["proof"]
    )


def test_a_relaxation_says_from_and_to():
    data = json.loads(infeasible().to_json())["conflict"]
    assert data["limits"] == ["deadline", "budget"]
    assert {"limit", "from", "to", "proved", "text"} == set(data["relaxations"][0])
    assert Relaxation.model_validate(data["relaxations"][0]).from_ == "2000000 USD"


def test_numbers_that_json_cannot_hold_are_refused():
    data = json.loads(feasible().to_json())
    data["plans"][0]["estimate"]["days"] = float("nan")
    with pytest.raises(ValueError, match="finite"):
        Solution.model_validate(data)


def test_an_unknown_key_is_refused():
    with pytest.raises(ValueError, match="extra"):
        Solution.model_validate(json.loads(feasible().to_json()) | {"statsu": "optimal"})
