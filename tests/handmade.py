"""Solutions written out by hand, for tests of what is done with one."""

from __future__ import annotations

from typing import Any

from planner.solution import Solution

PROOF = {
    "lattice": 2_500_000,
    "valid": 41_200,
    "feasible": 812,
    "screened": 700,
    "bounded": 100,
    "solved": 12,
}

DECISIONS: dict[str, Any] = {
    "gpu": "H800", "num_gpus": 640, "nodes": 80, "tp": 8, "cp": 1, "pp": 4, "vpp": 1, "dp": 20, "ep": 1, "etp": 1,
    "micro_batch": 1, "num_microbatches": 32, "global_batch": 640, "zero": 1, "recompute": "selective",
    "recompute_modules": ["core_attn"], "precision": "bf16", "sequence_parallel": True,
    "stages": [{"layers": 19, "recomputed_layers": 3}, {"layers": 21}, {"layers": 21}, {"layers": 19}],
}  # fmt: skip

ESTIMATE: dict[str, Any] = {
    "step_time_s": 4.652, "days": 57.61, "dollars": 1769761.4, "mfu": 0.4012, "hfu": 0.4188,
    "tokens_per_s_per_gpu": 880.4,
    "memory_gib": {"weights": 4.1, "gradients": 8.2, "optimizer": 1.3, "activations": 41.0, "buffers": 2.5,
                   "overhead": 4.9, "total": 62.0},
    "breakdown_s": {"compute": 4.0, "bubble": 0.42, "p2p": 0.032, "data_parallel": 0.15, "optimizer": 0.05},
    "interval_80_days": [54.2, 61.3],
}  # fmt: skip

PLAN: dict[str, Any] = {
    "decisions": DECISIONS,
    "estimate": ESTIMATE,
    "slack": {
        "deadline": {"limit": 60.0, "used": 57.61, "left": 2.39, "unit": "days"},
        "budget": {"limit": 2e6, "used": 1769761.4, "left": 230238.6, "unit": "USD"},
        "memory": {"limit": 75.2, "used": 62.0, "left": 13.2, "unit": "GiB"},
    },
    "reasons": [
        {
            "decision": "tp", "chosen": 8, "alternative": 4, "effect": {"step_time_s": 0.31, "dollars": 118000.0},
            "because": "memory",
            "text": "TP 8: with TP 4 the first stage needs 91.2 GiB of 75.2 GiB unless every layer is recomputed, "
                    "which costs 0.31 s a step.",
        },
    ],
}  # fmt: skip


def feasible() -> Solution:
    """An optimal solution with a runner-up and a note."""
    return Solution.model_validate(
        {
            "status": "optimal",
            "problem": {"name": "70b_3T_60days", "model": "llama-2-70b", "training": {"seq_len": 4096}},
            "provenance": {"planner": "0.1.0", "problem_hash": "0" * 64, "versions": {"numpy": "2.0.0"}},
            "plans": [PLAN],
            "runner_ups": [
                {"gpu": "H20", "text": "No plan: 2048 H20 need 71.3 days, 11.3 days past the deadline."}
            ],
            "proof": PROOF | {"gap": 0.0, "seconds": 3.2, "rejected": {"deadline": 20000, "memory": 1300}},
            "notes": ["H800 is priced at 2.00 USD/gpu-hour, typical of reserved GPUs."],
        }
    )


def infeasible() -> Solution:
    """Deadline and budget in conflict."""
    moves = [
        ("budget", "2000000 USD", "2130000 USD", "budget to 2.13M USD (6.5 % more)"),
        ("deadline", "60 days", "66.4 days", "deadline to 66.4 days (6.4 days more)"),
    ]
    relaxations = [{"limit": a, "from": b, "to": c, "text": d} for a, b, c, d in moves]
    return Solution.model_validate(
        {
            "status": "infeasible",
            "problem": {"name": "too_tight"},
            "provenance": {"planner": "0.1.0", "problem_hash": "1" * 64},
            "proof": PROOF
            | {"feasible": 0, "screened": 0, "bounded": 0, "solved": 0, "gap": 0.0, "seconds": 0.4},
            "conflict": {"limits": ["deadline", "budget"], "relaxations": relaxations},
        }
    )
