"""Why a framework's code trains no such model, in words."""

from __future__ import annotations

from typing import Any

from costmodel.architecture import Architecture
from planner.frameworks.models import features, names_of, shapes
from planner.frameworks.table import framework_of

COUNTS = {1: "one", 2: "two", 3: "three", 4: "four"}
PLAIN = {
    ("experts", "none"): "the model has no experts",
    ("experts", "every_layer"): "the model has experts",
    ("experts", "some_layers"): "the model has experts",
    ("shared_experts", True): "the model has experts that all tokens share",
    ("mla", True): "the model has latent attention",
    ("qk_norm", True): "the model norms queries and keys",
    ("qk_norm", False): "the model does not norm queries and keys",
    ("attention_sinks", True): "the model has attention sinks",
    ("window", "none"): "the model's attention has no window",
    ("window", "idle"): "the model names a window that no layer has",
    ("window", "unset"): "the model's sliding layers have no width",
    ("window", "chunked"): "the model's attention is in chunks",
    ("window", "all"): "every layer of the model has a sliding window",
    ("window", "every_nth"): "layers of the model have a sliding window",
    ("window", "some"): "the model's layers with a sliding window are not all but every n-th",
    ("positions", "learned"): "the model's positions are learned",
    ("positions", "rotary"): "the model's positions are rotary",
    ("norm", "layer"): "the model has LayerNorm, not RMSNorm",
    ("gated_mlp", False): "the model's MLP has no gate",
    ("mtp", True): "the model predicts several tokens at once",
    ("biases", "none"): "the model has no biases on queries, keys and values",
    ("biases", "qkv"): "the model has biases on queries, keys and values",
    ("biases", "all"): "the model has biases on all linear layers",
    ("biases", "other"): "the model has biases on some of its linear layers",
    ("tied", True): "the model's output is tied to its embedding",
    ("usual_heads", False): "the model's heads are not hidden/heads wide",
}
"""What a model is, by a feature (`models.features`) and its value, where a framework's is not so."""
REGISTERED = "it registers no such model, and in other sizes has only Llama's block"
"""Said first of a framework some of whose models are whole ones."""


def why_not(a: Architecture, seq_len: int, framework: str) -> str:
    """What the nearest model that a framework trains has otherwise; empty if it trains this one."""
    rules = framework_of(framework)
    if rules is None:
        return ""
    names = (*rules.models, *(rules.split_models or ()))
    if names_of(a, seq_len, names):
        return ""
    mine = features(a, seq_len)
    wrong = [
        [feature for feature, allowed in shapes()[name].items() if mine[feature] not in allowed]
        for name in names
        if name in shapes()
    ]
    said = "; ".join(words(a, seq_len, feature, mine[feature]) for feature in min(wrong, key=len))
    return said if all(name in shapes() for name in names) else f"{REGISTERED}: {said}"


def words(a: Architecture, seq_len: int, feature: str, value: Any) -> str:
    """One feature that differs."""
    if (feature, value) == ("positions", "too_short"):
        rows = f"{a.learned_positions:,}"
        return f"the model's table of learned positions has {rows} rows, a sequence {seq_len:,} tokens"
    if feature == "norms_per_layer":
        return f"its layers have two norms, the model's {COUNTS.get(value, value)}"
    return PLAIN[feature, value]
