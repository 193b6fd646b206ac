"""The table asked about an instance: which values and combinations its framework can launch."""

from __future__ import annotations

from dataclasses import dataclass

from costmodel.memory.profile import is_low_precision
from planner.frameworks.models import names_of
from planner.frameworks.table import Framework, framework_of
from planner.instance import Instance
from planner.switches import hides


@dataclass(frozen=True, slots=True)
class Trains:
    """Whether an instance's framework trains its model, by what a plan does with it."""

    whole: bool
    """On every GPU as a whole (tp*cp*pp = 1)."""
    split: bool
    cp: bool
    """With cp > 1."""


EVERYTHING = Trains(True, True, True)


def trains(instance: Instance) -> Trains:
    """What the framework does with the instance's model and profile; computed once."""
    if "trains" not in instance.derived:
        rules = framework_of(instance.framework)
        instance.derived["trains"] = EVERYTHING if rules is None else _trains(instance, rules)
    return instance.derived["trains"]


def _trains(instance: Instance, rules: Framework) -> Trains:
    def has(models: tuple[str, ...]) -> bool:
        return bool(names_of(instance.architecture, instance.seq_len, models))

    whole = has(rules.models)
    split = whole if rules.split_models is None else has(rules.split_models)
    return Trains(whole, split, split if rules.cp_models is None else split and has(rules.cp_models))


def launches_precision(instance: Instance, precision: str) -> bool:
    """Whether the framework trains in a precision."""
    rules = framework_of(instance.framework)
    return rules is None or precision in rules.precisions


def launches_ranks(instance: Instance, tp: int, cp: int, ep: int, etp: int) -> bool:
    """Whether the framework has such sizes, whatever the pipeline and the replicas."""
    rules, of = framework_of(instance.framework), trains(instance)
    if rules is None:
        return True
    if not (of.split if tp * cp > 1 else of.whole or of.split) or (cp > 1 and not of.cp):
        return False
    if tp > 1 and not splits_activations(instance, rules):
        return False
    if rules.splits_sequence and instance.seq_len % (tp * (2 * cp if cp > 1 else 1)):
        return False
    return _launches_experts(instance, rules, tp, ep, etp)


def splits_activations(instance: Instance, rules: Framework) -> bool:
    """Whether the profile has the sequence parallelism that the framework's tensor parallelism asks for."""
    needed = {"free": False, "experts": instance.architecture.moe is not None, "always": True}
    return instance.stack.tensor_parallel.sequence_parallel or not needed[rules.sequence_parallel]


def _launches_experts(instance: Instance, rules: Framework, tp: int, ep: int, etp: int) -> bool:
    if instance.architecture.moe is None:
        return True
    return (rules.ep or ep == 1) and (rules.etp or etp == 1) and not (rules.ep_takes_tp and ep % tp)


def launches_pipeline(instance: Instance, ranks: int, pp: int) -> bool:
    """Whether the framework has pipelines of pp stages of `ranks` = tp*cp ranks each."""
    rules, of = framework_of(instance.framework), trains(instance)
    if rules is None:
        return True
    if rules.even_stages and instance.architecture.layers % pp:
        return False
    return of.split if ranks * pp > 1 else of.whole


def launches_chunks(instance: Instance, pp: int, vpp: int) -> bool:
    """Whether the framework has so many virtual stages a rank; transfers in the open may need more ranks."""
    rules = framework_of(instance.framework)
    if rules is None or vpp == 1:
        return True
    return rules.virtual_stages and (pp >= rules.exposed_chunks or hides(instance.stack, "pp_overlap"))


def even_stages(instance: Instance) -> bool:
    """Whether every stage has to hold the same number of layers."""
    rules = framework_of(instance.framework)
    return rules is not None and rules.even_stages


def launches_zero(
    instance: Instance,
    precision: str,
    zero: int,
    *,
    split: bool,
    pipeline: bool,
    replicas: bool,
    hidden: bool = False,
) -> bool:
    """Whether the framework has a ZeRO stage in a precision, by tp*cp > 1, pp > 1 and dp*cp > 1.

    `hidden`: the experts' traffic overlaps with compute.
    """
    rules = framework_of(instance.framework)
    if rules is None:
        return True
    facts = {
        "split": split,
        "pipeline": pipeline,
        "replicas": replicas,
        "experts": instance.architecture.moe is not None,
        "fp8_weights": fp8_weights(instance, precision),
        "expert_overlap": hidden,
    }
    exposed = replicas and instance.switches.get("dp_overlap") is False
    if exposed and not rules.exposes(zero, pipeline=pipeline):
        return False
    return any(zero in rule.zero and rule.holds(**facts) for rule in rules.sharding)


def node_scoped(instance: Instance, zero: int) -> bool:
    """Whether the framework can shard a ZeRO stage's states within nodes and replicate them over nodes."""
    rules = framework_of(instance.framework)
    return zero > 0 and (rules is None or zero in rules.node_scope)


def fp8_weights(instance: Instance, precision: str) -> bool:
    """Whether weights are kept and gathered in FP8."""
    gathered = instance.stack.data_parallel.low_precision_parameter_bytes
    return is_low_precision(precision) and gathered == 1


def recomputes_all_or_none(instance: Instance) -> bool:
    """Whether full recompute is of every layer."""
    rules = framework_of(instance.framework)
    return rules is not None and rules.recompute == "all"


def overlaps_experts(framework: str) -> bool:
    """Whether the framework can hide the experts' all-to-all behind the compute of another micro-batch."""
    rules = framework_of(framework)
    return rules is None or rules.expert_overlap


def selective_by(framework: str) -> str:
    """What selective recompute names: modules, operations, or none where there is no such mode."""
    rules = framework_of(framework)
    return "modules" if rules is None else rules.selective
