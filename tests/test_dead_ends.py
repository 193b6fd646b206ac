"""What is said where the problem's own `search`, or its framework, leaves no plan: why, and what would do."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
import yaml

from costmodel.cards import card_names, load_card
from planner import ways_out
from planner.errors import InvalidInput
from planner.frameworks.lacking import PLAIN, why_not, words
from planner.frameworks.models import names_of, shapes
from planner.frameworks.table import FRAMEWORKS, table
from planner.mixed.layouts import any_layout
from planner.mixing import FORMS, Form
from planner.narrowed import keys_of, valid, without_keys
from planner.other_frameworks import others, with_framework
from planner.problem import Problem, parse_problem
from planner.resolve import instance_of
from planner.solution import Conflict, Solution
from planner.solve import solve
from planner.variants import fixed
from planner.why import no_plan

SMALL = """
name: small
model: llama-2-7b
training: {tokens: 10B, seq_len: 4096, global_batch: 64 sequences}
hardware: [{gpu: H800, nodes: {max: 4}, price: 2 USD/gpu-hour}]
"""


def solved(search: dict[str, Any], **changes: Any) -> Solution:
    return solve(parse_problem(yaml.safe_load(SMALL) | {"search": search} | changes))


def conflict(search: dict[str, Any], **changes: Any) -> Conflict:
    found = solved(search, **changes)
    assert found.status == "infeasible"
    assert found.conflict is not None
    return found.conflict


CASES: list[tuple[dict[str, Any], tuple[str, ...], dict[str, str]]] = [
    ({"tp": 16}, ("search.tp",), {"search.tp": "1, 2, 4 or 8"}),
    ({"ep": 4}, ("search.ep",), {"search.ep": "1"}),
    ({"tp": [1, 2], "pp": 33}, ("search.pp",), {"search.pp": "pp 1"}),
    ({"pp": 4, "vpp": 9}, ("search.pp", "search.vpp"), {"search.pp": "pp 2", "search.vpp": "vpp 1"}),
    ({"tp": 2, "zero": 3, "pp": 4}, ("search.pp", "search.zero"), {"search.zero": "0 or 1"}),
    ({"zero_scope": "node", "zero": 0}, ("search.zero", "search.zero_scope"), {"search.zero_scope": "full"}),
    ({"micro_batch": 100}, ("search.micro_batch",), {}),
    ({"framework": "nanotron", "vpp": 2}, ("search.vpp", "search.framework"), {"search.framework": "megatron"}),
]  # fmt: skip


@pytest.mark.parametrize(("search", "limits", "moves"), CASES)
def test_keys_of_search_that_leave_no_layout_are_named_with_what_would_do(
    search: dict[str, Any], limits: tuple[str, ...], moves: dict[str, str]
) -> None:
    said = conflict(search)
    assert said.limits == limits
    to = {move.limit: str(move.to) for move in said.relaxations}
    assert to.keys() == set(limits)
    for limit, value in moves.items():
        # Which of several plans is the fastest is the cost model's business.
        assert to[limit] == value or to[limit].split()[0] == value.split()[0] == limit.removeprefix("search.")


@pytest.mark.parametrize("search", [search for search, _, _ in CASES])
def test_a_conflict_of_keys_is_minimal_and_each_way_out_leads_out(search: dict[str, Any]) -> None:
    said = conflict(search)
    instance = instance_of(parse_problem(yaml.safe_load(SMALL) | {"search": search}))
    keys = [key for key in keys_of(instance) if key in said.limits]
    others = [key for key in keys_of(instance) if key not in keys]
    alone = without_keys(instance, others)
    assert not valid(alone)
    assert all(valid(without_keys(alone, [key])) for key in keys)
    for move in said.relaxations:
        name = move.limit.removeprefix("search.")
        for value in str(move.to).replace(" or ", ", ").split(", "):
            changed = {**search, name: yaml.safe_load(value.removeprefix(f"{name} "))}
            assert solved(changed).status == "optimal", changed


TWO_POOLS: dict[str, Any] = {
    "hardware": [
        {"gpu": "H800", "nodes": {"max": 2}, "price": "2 USD/gpu-hour"},
        {"gpu": "A100-80", "nodes": {"max": 2}, "price": "1 USD/gpu-hour"},
    ],
    "mixing": {"network": "25 GB/s"},
}


@pytest.mark.parametrize(
    ("search", "limits", "moves"),
    [
        ({"tp": 16}, ("search.tp",), {"search.tp": "1, 2, 4 or 8"}),
        ({"pp": 4, "vpp": 9}, ("search.pp", "search.vpp"), {"search.pp": "pp", "search.vpp": "vpp"}),
        ({"zero": 3, "pp": 4}, ("search.pp", "search.zero"), {"search.pp": "pp", "search.zero": "0 or 1"}),
        ({"tp": 16, "pp": 4, "vpp": 9}, ("search.pp", "search.vpp"), {"search.tp and search.vpp": "tp"}),
    ],
)
def test_keys_that_leave_no_layout_on_two_pools_either_are_named_with_what_would_do(
    search: dict[str, Any], limits: tuple[str, ...], moves: dict[str, str]
) -> None:
    said = conflict(search, **TWO_POOLS)
    assert said.limits == limits
    to = {move.limit: str(move.to) for move in said.relaxations}
    assert to.keys() == moves.keys()
    assert all(to[limit].startswith(value) for limit, value in moves.items())


def test_a_framework_that_has_no_plan_on_two_pools_either_is_told_with_what_moves() -> None:
    (move,) = conflict({}, model="gemma-2-9b", **TWO_POOLS).relaxations
    assert (move.limit, move.to) == ("search.framework", "any")
    late = {"training": {"tokens": "10B", "seq_len": 4096, "global_batch": "64 sequences"}}
    (move,) = conflict({}, model="gemma-2-9b", limits={"deadline": "1 h"}, **late, **TWO_POOLS).relaxations
    assert move.limit == "search.framework and deadline"


PHASES: dict[str, Any] = {
    "phases": [
        {"name": "short", "tokens": "8B", "seq_len": 4096},
        {"name": "long", "tokens": "2B", "seq_len": 8192},
    ]
}


@pytest.mark.parametrize(("search", "limits", "moves"), [CASES[0], CASES[4], CASES[7]])
def test_keys_that_leave_no_run_in_phases_are_named_with_what_would_do(
    search: dict[str, Any], limits: tuple[str, ...], moves: dict[str, str]
) -> None:
    said = conflict(search, **PHASES)
    assert said.limits == limits
    to = {move.limit: str(move.to) for move in said.relaxations}
    assert to.keys() == set(limits)
    assert {limit: to[limit] for limit in moves} == moves


def test_keys_of_a_run_in_phases_that_only_together_are_in_the_way() -> None:
    (move,) = conflict({"tp": 16, "pp": 4, "vpp": 9}, **PHASES).relaxations
    assert move.limit == "search.tp and search.vpp"
    late = {"training": {"tokens": "10B", "seq_len": 4096, "global_batch": "64 sequences"}}
    (move,) = conflict({}, model="gemma-2-9b", limits={"deadline": "1 h"}, **late, **PHASES).relaxations
    assert move.limit == "search.framework and deadline"


def test_two_conflicts_of_keys_are_left_together() -> None:
    said = conflict({"tp": 16, "pp": 4, "vpp": 9})
    (move,) = said.relaxations
    assert move.limit == "search.tp and search.vpp"
    assert move.from_ == "16 and 9"
    assert move.text.startswith("without search.tp and search.vpp a plan is possible: the fastest has tp ")
    assert solved({"pp": 4}).status == "optimal"


def test_no_key_is_offered_where_the_limits_have_no_plan_without_it() -> None:
    said = conflict({"tp": 16}, limits={"deadline": "1 minutes"})
    assert said.limits == ("search.tp",)
    assert said.relaxations == ()


def test_what_memory_or_the_batch_forbids_is_not_blamed_on_keys() -> None:
    assert conflict({"tp": 1, "pp": 1, "zero": 0}, model="llama-2-70b").limits == ("memory",)


def test_switches_are_keys_of_search() -> None:
    instance = instance_of(parse_problem(yaml.safe_load(SMALL) | {"search": {"tp": 2, "dp_overlap": False}}))
    assert keys_of(instance) == ["search.tp", "search.dp_overlap"]
    free = without_keys(instance, ["search.dp_overlap"])
    plain = instance_of(parse_problem(yaml.safe_load(SMALL) | {"search": {"tp": 2}}))
    assert (free.stack, free.switches, free.narrowing) == (plain.stack, plain.switches, plain.narrowing)


def test_a_requirement_that_nothing_meets_is_told_with_what_would_do() -> None:
    said = conflict({}, limits={"require": ["tp == 16"]})
    assert said.limits == ("tp == 16",)
    assert said.relaxations[-1].text.startswith("without tp == 16 a plan is possible")


def test_a_framework_that_cannot_launch_a_model_says_why() -> None:
    said = conflict({}, model="gemma-2-9b")
    assert said.limits == ("search.framework",)
    (move,) = said.relaxations
    assert move.to == "any"
    assert move.text == (
        "megatron cannot launch gemma-2-9b: its layers have two norms, the model's four; "
        "search.framework from megatron to any makes a plan possible, which no framework in the table can launch"
    )


def test_a_framework_that_can_launch_it_is_named_before_any() -> None:
    (move,) = conflict({"framework": "nanotron"}, model="qwen-2.5-7b").relaxations
    assert move.to == "megatron"
    assert move.text.startswith(
        "nanotron cannot launch qwen-2.5-7b: the model has biases on queries, keys and values; search.fr"
    )


def test_a_table_of_positions_that_is_too_short_is_told_by_its_size() -> None:
    assert why_not(load_card("gpt3-175b"), 4096, "megatron") == (
        "the model's table of learned positions has 2,048 rows, a sequence 4,096 tokens"
    )
    assert why_not(load_card("gpt3-175b"), 2048, "megatron") == ""


def test_limits_that_have_to_move_beside_the_framework_are_told() -> None:
    many = {"training": {"tokens": "10B", "seq_len": 4096, "global_batch": "64 sequences"}}
    late = conflict({}, model="gemma-2-9b", limits={"deadline": "1 h"}, **many)
    (move,) = late.relaxations
    assert move.limit == "search.framework and deadline"
    assert move.text.startswith("megatron cannot launch gemma-2-9b: its layers have two norms")
    both = conflict({}, model="gemma-2-9b", limits={"deadline": "1 h", "budget": "1 USD"}, **many)
    (move,) = both.relaxations
    assert move.limit == "search.framework and deadline and budget"
    never = conflict({}, limits={"deadline": "1 h", "budget": "1 USD"}, **many)
    assert never.relaxations == ()


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_every_model_that_a_framework_does_not_train_has_a_reason(framework: str) -> None:
    rules = table()[framework]
    models = (*rules.models, *(rules.split_models or ()))
    for name, seq_len in product(card_names(), (2048, 8192)):
        trained = bool(names_of(load_card(name), seq_len, models))
        assert (why_not(load_card(name), seq_len, framework) == "") == trained, name


def test_every_feature_that_a_framework_can_lack_has_words() -> None:
    told: dict[str, set[Any]] = {}
    for feature, value in PLAIN:
        told.setdefault(feature, set()).add(value)
    for name, rules in shapes().items():
        for feature, allowed in rules.items():
            if feature == "norms_per_layer":
                assert words(load_card("gemma-2-9b"), 4096, feature, 4).endswith("the model's four"), name
                continue
            known = set().union(*(of[feature] for of in shapes().values() if feature in of))
            assert known - set(allowed) <= told[feature] | {"rotary"}, (name, feature)


def test_the_problems_own_search_is_among_what_leaves_no_other_value() -> None:
    fixed = {"tp": 2, "pp": 2, "cp": 1, "micro_batch": [1, 2], "zero": 1, "vpp": 1}
    pool = [{"gpu": "H800", "nodes": {"min": 4, "max": 4}, "price": "2 USD/gpu-hour"}]
    reasons = {of.decision: of.text for of in solved(fixed, hardware=pool).plans[0].reasons}
    keys = "search.tp, search.cp, search.pp, search.vpp, search.micro_batch and search.zero"
    assert f"the batch, the layers, the pools, {keys} leave no other value" in reasons["dp"]
    free = {of.decision: of.text for of in solved({}, hardware=pool).plans[0].reasons}
    assert "the batch, the layers and the pools leave no other value" in free["num_gpus"]


def test_a_question_that_search_leaves_no_layout_for_names_the_key_and_what_would_do() -> None:
    """On 32 GPUs no DP of 32 goes with a pipeline, and DP 5 with nothing."""
    pool = [{"gpu": "H800", "nodes": {"min": 4, "max": 4}, "price": "2 USD/gpu-hour"}]
    problem = yaml.safe_load(SMALL) | {"search": {"tp": [1, 2, 4], "pp": [2, 4]}, "hardware": pool}
    instance = instance_of(parse_problem(problem))
    because, said = no_plan(fixed(instance, {"dp": 32}), {"dp": 32})
    assert because == "search"
    assert said.startswith("search.pp leaves no such layout; without search.pp a plan is possible")
    because, said = no_plan(fixed(instance, {"dp": 5}), {"dp": 5})
    assert (because, said) == ("search", "the batch, the layers and the pools leave no such layout")


SWITCHED: list[dict[str, Any]] = [
    *({f"{name}_overlap": on} for name, on in product(("tp", "dp", "pp", "ep"), (True, False))),
    {"tp_overlap": True, "pp_overlap": False}, {"dp_overlap": False, "zero": [2, 3]}, {"dp_overlap": False, "zero": 1},
    {"stack": "megatron-core", "pp_overlap": True}, {"stack": "nanotron", "tp_overlap": True}, {},
]  # fmt: skip


@pytest.mark.parametrize("model", ["llama-2-7b", "deepseek-v2", "deepseek-v3"])
def test_only_frameworks_that_take_the_whole_problem_are_suggested(model: str) -> None:
    """Switches of overlap: what is offered instead is read without a complaint, and what is not is refused."""

    def problem(framework: str, search: dict[str, Any]) -> Problem | None:
        try:
            whole = {"model": model, "search": search | {"framework": framework}}
            return parse_problem(yaml.safe_load(SMALL) | whole)
        except InvalidInput:
            return None

    tried = 0
    for framework, search in product(FRAMEWORKS, SWITCHED):
        own = problem(framework, search)
        if own is None:
            continue
        rest = (name for name in (*FRAMEWORKS, "any") if name != framework)
        assert others(instance_of(own)) == tuple(name for name in rest if problem(name, search)), search
        tried += 1
    assert tried > len(FRAMEWORKS)


def test_stages_that_are_asked_to_be_alike_stay_so_on_any_framework() -> None:
    asked = [{"per_stage_recompute": False}, {}]
    instances = [instance_of(parse_problem(yaml.safe_load(SMALL) | {"search": search})) for search in asked]
    assert [with_framework(of, "any").per_stage_recompute for of in instances] == [False, True]


@pytest.mark.parametrize("pools", [{}, TWO_POOLS], ids=["one", "two"])
def test_more_nodes_are_not_searched_where_no_number_of_them_has_a_layout(
    pools: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: Any) -> None:
        raise AssertionError("no number of nodes has a layout")

    monkeypatch.setattr(ways_out, "fewest_beyond", never)
    assert conflict({"pp": 4, "vpp": 9}, **pools).limits == ("search.pp", "search.vpp")
    with pytest.raises(AssertionError):
        # Eight nodes have one: 2 x 32 GPUs.
        conflict({"tp": 2, "pp": 32, "dp": 1}, **pools)


@pytest.mark.parametrize("form", FORMS)
def test_two_pools_are_only_given_up_where_no_number_of_nodes_has_a_layout(form: Form) -> None:
    def layout(**changes: Any) -> bool:
        changes = {"search": changes.pop("search", {})} | changes
        return any_layout(instance_of(parse_problem(yaml.safe_load(SMALL) | TWO_POOLS | changes)), form)

    assert layout()
    assert layout(search={"pp": 32, "dp": 2})
    assert not layout(search={"pp": 4, "vpp": 9})
    assert not layout(search={"zero": 3})
    assert not layout(search={"dp": 65})
    odd = {"tokens": "10B", "seq_len": 4096, "global_batch": "63 sequences"}
    assert layout(training=odd, search={"micro_batch": [1, 2]})
    assert not layout(training=odd, search={"micro_batch": [2]})
