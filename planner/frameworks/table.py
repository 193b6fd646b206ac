"""The rules of each framework: what its launcher can do with a plan."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from hardware import yaml_text

FILE = Path(__file__).parent / "table.yaml"
FRAMEWORKS = ("megatron", "torchtitan", "deepspeed", "nanotron")
Switch = Literal["tp_overlap", "dp_overlap", "pp_overlap"]
"""Traffic that can be hidden behind compute: tensor-parallel, gradients and weights, interleaved stages."""
MOST_MTP = 1
"""Multi-token-prediction layers with which Megatron-Core hides the experts' traffic (TransformerConfig)."""
ANY = "any"
"""No framework in particular: nothing is removed."""


class Rule(BaseModel):
    """Frozen, and closed: an unknown key in the table is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Sharding(Rule):
    """ZeRO stages that a framework has where all that is said holds; what is not said may be either."""

    zero: tuple[int, ...]
    split: bool | None = None
    """tp*cp > 1."""
    pipeline: bool | None = None
    """pp > 1."""
    replicas: bool | None = None
    """dp*cp > 1: there are ranks to shard over."""
    experts: bool | None = None
    """The model has experts."""
    fp8_weights: bool | None = None
    """FP8 training with weights that are kept and gathered in FP8."""
    expert_overlap: bool | None = None
    """The experts' all-to-all is hidden behind compute."""

    def holds(self, **facts: bool) -> bool:
        """Whether it speaks of such plans."""
        return all(getattr(self, name) in (None, fact) for name, fact in facts.items())


class Framework(Rule):
    """What a framework can launch. What is not restricted here is what the decision space has."""

    title: str
    profile: str
    """The software profile (`costmodel/stacks`) that predicts it, unless the problem names one."""
    split_profile: str | None = None
    """The same of plans that split the model (tp*cp*pp > 1), where other code runs those."""
    models: tuple[str, ...]
    """Models it trains (`models.yaml`)."""
    split_models: tuple[str, ...] | None = None
    """Models it trains when it splits them (tp*cp*pp > 1); the same if none are named."""
    cp_models: tuple[str, ...] | None = None
    """Models it trains with cp > 1; the same if none are named, none of them if the list is empty."""
    precisions: tuple[str, ...]
    sequence_parallel: Literal["free", "experts", "always"] = "free"
    """Whether tp > 1 goes without sequence parallelism: always, not with experts, never."""
    splits_sequence: bool = False
    """Whether tp (with cp > 1: tp*2*cp) has to divide the sequence."""
    ep: bool = True
    """Whether ep > 1."""
    etp: bool = True
    """Whether etp > 1."""
    ep_takes_tp: bool = False
    """Whether tp has to divide ep."""
    virtual_stages: bool = True
    """Whether vpp > 1."""
    even_stages: bool = False
    """Whether all stages have to hold the same number of layers."""
    recompute: Literal["stage", "uniform", "all"]
    """Full recompute of any number of layers by stage, of one number for all stages, or of every layer."""
    selective: Literal["modules", "operations", "none"]
    """What selective recompute can name: modules, its own choice by operation, nothing."""
    expert_overlap: bool = False
    """Whether it can hide the experts' all-to-all behind the compute of another micro-batch."""
    switches: tuple[Switch, ...] = ("tp_overlap", "dp_overlap", "pp_overlap")
    """Traffic whose overlap its launcher can switch on and off."""
    always: tuple[Switch, ...] = ()
    """Traffic that it overlaps whatever a launch file says; the rest it never does."""
    exposed_chunks: int = 2
    """Fewest stages of a pipeline with virtual stages whose transfers are waited for."""
    overlapped_gradients: tuple[Sharding, ...] = (Sharding(zero=(0, 1, 2, 3)),)
    """Where the reduction of gradients can run behind compute."""
    exposed_gradients: tuple[Sharding, ...] = (Sharding(zero=(0, 1, 2, 3)),)
    """Where it can wait for the backward pass."""
    sharding: tuple[Sharding, ...] = (
        Sharding(zero=(0,)),
        Sharding(zero=(1, 2, 3), replicas=True),
    )
    """ZeRO stages of plans, by what they split."""
    node_scope: tuple[int, ...] = ()
    """ZeRO stages whose states it can shard within a node and replicate over nodes."""
    sources: tuple[str, ...] = Field(min_length=1)

    def overlaps(self, zero: int, **facts: bool) -> bool:
        """Whether it can hide the reduction of gradients of a ZeRO stage."""
        return any(zero in rule.zero and rule.holds(**facts) for rule in self.overlapped_gradients)

    def exposes(self, zero: int, **facts: bool) -> bool:
        """Whether it can leave the reduction of gradients of a ZeRO stage in the open."""
        return any(zero in rule.zero and rule.holds(**facts) for rule in self.exposed_gradients)


@cache
def table() -> dict[str, Framework]:
    """Every framework by its name."""
    tree = yaml_text.load(FILE.read_text(encoding="utf-8"))
    return {name: Framework.model_validate(tree[name]) for name in FRAMEWORKS}


def framework_of(name: str) -> Framework | None:
    """The rules of a framework; None for `any`."""
    return None if name == ANY else table()[name]


def profile_of(name: str, usual: str) -> str:
    """The software profile of a framework, or the usual one for `any`."""
    rules = framework_of(name)
    return usual if rules is None else rules.profile
