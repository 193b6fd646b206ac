"""Modules of a layer that selective recompute can repeat in the backward pass."""

from __future__ import annotations

MODULES = (
    "act",
    "core_attn",
    "layernorm",
    "mla_up_proj",
    "mlp",
    "mlp_in",
    "moe",
    "moe_act",
    "per_op",
    "shared_experts",
)
"""Megatron-Core's names of what can be recomputed (`--recompute-modules`), and those of others: `act`, the
activation function of dense FFNs (Megatron-Kwai); `mlp_in`, their first linears, gate and up projection
(MaxText's remat policies); `per_op`, torchtitan's per-operator selective checkpointing."""
COVERED = {"moe": frozenset({"moe_act", "shared_experts"}), "mlp": frozenset({"mlp_in", "act"})}
"""Modules that another one repeats as well."""
