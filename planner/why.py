"""Questions asked in words: `tp=4`, `gpu=H20`, `gpus=512`, `recompute=full`, several at once `tp=4,pp=8`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from itertools import combinations, pairwise
from typing import Any

from planner.account import Account
from planner.alone import CHANGED, alone, changed
from planner.asking import Asking
from planner.difference import Difference
from planner.errors import InvalidInput, nearest
from planner.explanation import Alone, Answer
from planner.instance import Instance, Pool
from planner.mixing import FORMS
from planner.narrowed import why_no_layout
from planner.narrowing import RECOMPUTE, ZERO_SCOPES, set_name
from planner.other_frameworks import unlaunchable
from planner.reason_words import label
from planner.relaxed import optimum
from planner.search import Effort, Plan, Table, goal_of
from planner.shortfall import why_none
from planner.space.layouts import chunk_counts
from planner.space.recompute import module_sets, recompute_families
from planner.space.values import context_parallel_sizes, divisors, tensor_parallel_sizes
from planner.switches import ON, TRAFFIC, spoken, word
from planner.switches import WORDS as SWITCHED
from planner.variants import decided, fixed, overlap_words
from planner.ways_out import of_one_pool
from planner.why_overlap import best_asked, unswitchable

OTHER_NAMES = {
    "gpus": "num_gpus",
    "nodes": "nodes",
    "mbs": "micro_batch",
    "ga": "num_microbatches",
    "gbs": "global_batch",
    "batch": "global_batch",
}
NAMES = (
    "gpu", "num_gpus", "nodes", "tp", "cp", "pp", "vpp", "dp", "ep", "etp", "micro_batch", "num_microbatches",
    "global_batch", "zero", "zero_scope", "recompute", "recompute_modules",
    "precision", *TRAFFIC, "mixed",
)  # fmt: skip
WORDS = {"recompute": RECOMPUTE, "zero_scope": ZERO_SCOPES} | dict.fromkeys(TRAFFIC, tuple(ON))
THAT = "the best plan that decides so"
"""The question, as it is told of where the time was out before it was answered."""
SHOWN = 24
"""Accepted values that a message lists."""


def parse_question(text: str, instance: Instance) -> dict[str, Any]:
    """`tp=4,pp=8` as decisions. Raises InvalidInput with what is accepted."""
    found: dict[str, Any] = {}
    names = NAMES if instance.mixing is not None else tuple(name for name in NAMES if name != "mixed")
    for part in text.split(","):
        name, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals or not name or not value:
            accepted = "NAME=VALUE, several with commas: tp=4, gpu=H20, gpus=512, recompute=full"
            raise InvalidInput(file="--why", found=f"found {part.strip()!r}", accepted=accepted)
        key = OTHER_NAMES.get(name.lower(), name.lower())
        if key not in names:
            hint = nearest(name, (*names, *OTHER_NAMES))
            raise InvalidInput(
                file="--why", path=name, found="no such decision", accepted=", ".join(names), suggestion=hint
            )
        if key in found:
            raise InvalidInput(file="--why", path=name, found="is asked twice", accepted="each decision once")
        found[key] = read_value(instance, key, value)
    if "nodes" in found:
        found = in_gpus(instance, found)
    return found


def read_value(instance: Instance, name: str, text: str) -> Any:
    """A value of a decision. Raises InvalidInput."""
    known = accepted_values(instance, name)
    if name == "recompute_modules":
        text = "+".join(sorted(part.strip() for part in text.split("+")))
    if name in TRAFFIC and text.lower() in SWITCHED:
        text = word(SWITCHED[text.lower()])
    if name in ("gpu", "recompute_modules", "precision", "mixed", *WORDS):
        by_lower = {str(each).lower(): each for each in known}
        if text.lower() in by_lower:
            return by_lower[text.lower()]
        hint = nearest(text, map(str, known))
    else:
        if text.isdecimal() and int(text) in known:
            return int(text)
        hint = ""
    raise InvalidInput(
        file="--why", path=name, found=f"found {text!r}", accepted=listed(known), suggestion=hint
    )


def accepted_values(instance: Instance, name: str) -> Any:
    """Values that a decision can have at all in this problem, whatever its `search` leaves out."""
    a, pools = instance.architecture, instance.pools
    moe = a.moe
    if name == "gpu":
        return list(dict.fromkeys(pool.gpu.name for pool in pools))
    if name in WORDS:
        return list(WORDS[name])
    if name == "precision":
        return list(instance.precisions)
    if name == "recompute_modules":
        return [set_name(modules) for modules in module_sets(instance.framework)]
    if name == "mixed":
        return ["none", *(FORMS if instance.mixing is None else instance.mixing.forms)]
    if name in ("num_gpus", "nodes"):
        each = [
            {n * (p.fabric.gpus_per_node if name == "num_gpus" else 1) for n in whole_nodes(p)} for p in pools
        ]
        both = [] if instance.mixing is None else combinations(each, 2)
        return sorted(set().union(*each, *({n + m for n in one for m in other} for one, other in both)))
    tps = sorted({tp for pool in pools for tp in tensor_parallel_sizes(a, pool.fabric.domain)})
    gpus = max(pool.max_nodes * pool.fabric.gpus_per_node for pool in pools)
    free = replace(instance, narrowing=type(instance.narrowing)())
    return {
        "tp": lambda: tps,
        "cp": lambda: context_parallel_sizes(instance.seq_len),
        "pp": lambda: range(1, a.layers + 1),
        "vpp": lambda: sorted({v for pp in range(1, a.layers + 1) for v in chunk_counts(free, pp)}),
        "dp": lambda: range(1, gpus + 1),
        "ep": lambda: divisors(moe.experts) if moe else [1],
        "etp": lambda: sorted({1, *(tp for tp in tps if moe.moe_ffn % tp == 0)}) if moe else [1],
        "micro_batch": lambda: range(1, instance.max_batch + 1),
        "num_microbatches": lambda: range(1, instance.max_batch + 1),
        "global_batch": lambda: range(instance.min_batch, instance.max_batch + 1),
        "zero": lambda: range(4),
    }[name]()


def whole_nodes(pool: Pool) -> range:
    """Numbers of nodes that a pool lets train."""
    return range(pool.min_nodes, pool.max_nodes + 1)


def listed(values: Any) -> str:
    """Accepted values in short: 1, 2, 4, 8, or 1 to 80."""
    values = list(values)
    if len(values) <= 2 or isinstance(values[0], str):
        return ", ".join(map(str, values))
    steps = {b - a for a, b in pairwise(values)}
    if len(steps) == 1 and len(values) > 4:
        (step,) = steps
        return f"{values[0]} to {values[-1]}" + (f" in steps of {step}" if step > 1 else "")
    return ", ".join(map(str, values[:SHOWN])) + (", ..." if len(values) > SHOWN else "")


def in_gpus(instance: Instance, found: dict[str, Any]) -> dict[str, Any]:
    """`nodes=64` as GPUs of the pools that are asked for. Raises InvalidInput where pools differ."""
    pools = [pool for pool in instance.pools if found.get("gpu", pool.gpu.name) == pool.gpu.name]
    sizes = {pool.fabric.gpus_per_node for pool in pools}
    if len(sizes) > 1 or "num_gpus" in found:
        why = "pools have nodes of different sizes" if len(sizes) > 1 else "both nodes and gpus are asked"
        raise InvalidInput(file="--why", path="nodes", found=why, accepted="gpus=, or gpu= as well")
    rest = {name: value for name, value in found.items() if name != "nodes"}
    return rest | {"num_gpus": found["nodes"] * sizes.pop()}


def answered(
    instance: Instance, plan: Plan, question: Mapping[str, Any], name: str, asking: Asking | None = None
) -> Answer:
    """The best plan that decides as asked, or why there is none; in time, or that it is not known."""
    asking = asking or Asking()
    mine = decided(instance, plan) | overlap_words(instance, plan)
    common: dict[str, Any] = {
        "name": name,
        "question": dict(question),
        "chosen": {each: mine[each] for each in question},
        "notes": let_in(instance, question),
    }
    found = asking.ask(THAT, lambda: answer_in_time(instance, plan, question, mine, common, asking))
    return found or not_known(question, common)


def answer_in_time(
    instance: Instance,
    plan: Plan,
    question: Mapping[str, Any],
    mine: Mapping[str, Any],
    common: dict[str, Any],
    asking: Asking,
) -> Answer:
    """The answer. Raises OutOfTime where it is not proved in time."""
    asking.check()
    asked, until = question_words(question), asking.until
    if all(mine[each] == value for each, value in question.items()):
        return Answer(**common, because="chosen", text=f"The plan has {asked} already.")
    narrow = fixed(instance, question)
    if why := unswitchable(narrow, question):
        return Answer(**common, because="software", text=f"No plan with {asked}: {why}.")
    other = best_asked(narrow, question, until) if narrow.pools else None
    account = Account.within(instance, plan)
    just = just_that(instance, account, question, until)
    if other is None:
        because, text = no_plan(narrow, question, until)
        return Answer(**common, because=because, alone=just, text=f"No plan with {asked}: {text}.")
    return with_plan(instance, narrow, account, other, question, common, just)


def not_known(question: Mapping[str, Any], common: dict[str, Any]) -> Answer:
    """The time was out before there was an answer: nothing is proved either way."""
    plan = f"a plan with {question_words(question)}"
    text = f"Whether {plan} is within the limits, and what it takes, is not known: the time was out."
    return Answer(**common, because="time limit", text=text)


def with_plan(
    instance: Instance,
    narrow: Instance,
    mine: Account,
    other: Plan,
    question: Mapping[str, Any],
    common: dict[str, Any],
    just: Alone | None,
) -> Answer:
    """What the best plan that decides as asked would change."""
    from planner.answer import reported

    theirs = Account.within(narrow, other)
    of = Difference.of(instance, mine, theirs)
    here, there = decided(instance, mine.plan), decided(narrow, other)
    rest = [f"{label(k)} {v}" for k, v in there.items() if v not in ("", here[k]) and k not in question]
    also = f" (and {', '.join(rest)})" if rest else ""
    same = just is not None and not rest_of(just, there)
    return Answer(
        **common,
        plan=reported(narrow, other),
        effect=of.effect,
        because=of.because,
        alone=None if same else just,
        text=f"Best plan with {question_words(question)}{also}: {of.words}.",
    )


def rest_of(just: Alone, there: dict[str, Any]) -> bool:
    """Whether the layout with just that change is another plan than the best one."""
    return any(there.get(name, value) != value for name, value in just.change.items()) or bool(just.breaks)


def just_that(
    instance: Instance, mine: Account, question: Mapping[str, Any], until: float | None
) -> Alone | None:
    """The plan's own layout with the decisions changed, where that is a layout."""
    known = (*CHANGED, "dp", "num_microbatches", "etp", "precision")
    named = {name: value for name, value in question.items() if name in known}
    if len(named) < len(question) or changed(instance, mine.plan, named) is None:
        return None
    return alone(instance, mine, named, until)


def no_plan(narrow: Instance, question: Mapping[str, Any], until: float | None = None) -> tuple[str, str]:
    """The limit that leaves no plan, and how near the nearest comes. Raises OutOfTime as `why_none` does."""
    if not narrow.pools:
        trained = " that train in that precision" if "precision" in question else ""
        return "hardware", f"no pool has so many GPUs of that type{trained}"
    table = Table.of(narrow, goal_of(narrow), recompute_families(narrow), Effort(until=until).check)
    asked = {*question, "recompute"} if "recompute_modules" in question else question
    if not len(table.book.keys):
        no_key = "the model's sizes do not divide so"
        return unlaunchable(narrow) or (
            "search",
            why_no_layout(narrow, of_one_pool(partial(optimum, until=until)), asked, no_key),
        )
    return why_none(table, lambda rows: True, asked, until)


def let_in(instance: Instance, question: Mapping[str, Any]) -> tuple[str, ...]:
    """Values that the problem's own `search` leaves out."""
    allowed = instance.narrowing.allowed | {name: (on,) for name, on in instance.switches.items()}
    values = {name: ON[value] if name in TRAFFIC else value for name, value in question.items()}
    return tuple(
        f"{label(name)} {question[name]} is not among what the problem's search allows "
        f"({listed(spoken(each) for each in allowed[name])})."
        for name, value in values.items()
        if name in allowed and value not in allowed[name]
    ) + tuple(
        f"{label(name)} {question[name]} is not what limits.require asks for ({of.text})."
        for name, value in values.items()
        for of in instance.narrowing.required
        if of.decision == name and not of.holds(value)
    )


def question_words(question: Mapping[str, Any]) -> str:
    """TP 4 and PP 8."""
    alone = {("mixed", "none"): "one pool only"}
    return " and ".join(
        alone.get((name, value), f"{label(name)} {value}") for name, value in question.items()
    )
