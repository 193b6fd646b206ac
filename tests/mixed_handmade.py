"""Plans on two pools written out by hand, with figures from the cost model and the tests' own arithmetic."""

from __future__ import annotations

from typing import Any

from mixed_lasting import Share, mixed_lasting

from costmodel.mixed import Mixed, Part
from costmodel.mixed_estimate import MixedEstimate, estimate_mixed
from costmodel.run import Run
from planner.overrides import apply
from planner.problem import Problem, parse_problem
from planner.resolve import instance_of
from planner.solution import Plan, Solution

GIB, DAY = 2**30, 86400.0

JOB: dict[str, Any] = {
    "name": "mixed",
    "model": "llama-2-13b",
    "training": {"tokens": "1T", "seq_len": 4096, "global_batch": {"min": "1Mi tokens", "max": "4Mi tokens"}},
    "hardware": [
        {"gpu": "H800", "nodes": {"max": 12}, "price": "2.00 USD/gpu-hour"},
        {"gpu": "H20", "nodes": {"max": 16}, "price": "0.80 USD/gpu-hour"},
    ],
    "mixing": {"network": "25 GB/s"},
    "search": {"framework": "any"},
}

SHAPES: dict[str, dict[str, Any]] = {
    "stages": {
        "tp": 4, "pp": 4, "layers": (14, 14, 6, 6), "recomputed": (2, 0, 0, 0), "micro_batch": 1,
        "dp": (8, 8), "num_microbatches": (40, 40), "ranks": (range(2), range(2, 4)), "zero": 1,
    },
    "replicas": {
        "tp": 4, "pp": 2, "layers": (20, 20), "recomputed": (0, 0), "micro_batch": 1,
        "dp": (6, 10), "num_microbatches": (40, 8), "ranks": (range(2), range(2)), "zero": 1,
    },
}  # fmt: skip


def job(*changes: tuple[str, Any]) -> Problem:
    """The job with some values changed by dotted path."""
    return parse_problem(apply(JOB, changes), file="job")


def mixed_plan(problem: Problem, form: str, **changes: Any) -> Plan:
    """A plan of one form on the first two pools."""
    of = SHAPES[form] | changes
    instance = instance_of(problem)
    assert instance.mixing is not None
    parts = []
    for index, ranks in enumerate(of["ranks"]):
        pool = instance.pools[index]
        run = Run(
            architecture=instance.architecture,
            gpu=pool.gpu,
            fabric=pool.fabric,
            stack=instance.stack,
            seq_len=instance.seq_len,
            precision="bf16",
            recompute_modules=frozenset(),
            tp=of["tp"],
            cp=1,
            pp=of["pp"],
            vpp=1,
            dp=of["dp"][index],
            ep=1,
            etp=1,
            micro_batch=of["micro_batch"],
            num_microbatches=of["num_microbatches"][index],
            zero=of["zero"],
        )
        parts.append(Part(run, ranks))
    mixed = Mixed((parts[0], parts[1]), instance.mixing.link)
    estimate = estimate_mixed(mixed, of["layers"], of["recomputed"])
    return Plan.model_validate(
        {"decisions": decisions(instance, mixed, estimate, form, of)}
        | {"estimate": figures(instance, mixed, estimate), "slack": {}}
    )


def decisions(
    instance: Any, mixed: Mixed, of: MixedEstimate, form: str, shape: dict[str, Any]
) -> dict[str, Any]:
    """What the plan decides, the parts included."""
    lines = list(zip(shape["dp"], shape["num_microbatches"], strict=True))[: 1 if form == "stages" else 2]
    memory, seconds = [0.0] * shape["pp"], [0.0] * shape["pp"]
    for part, full, busy in zip(mixed.parts, of.rank_memory, of.rank_seconds, strict=True):
        for rank, used, time in zip(part.ranks, full.tolist(), busy.tolist(), strict=True):
            memory[rank], seconds[rank] = max(memory[rank], used / GIB), max(seconds[rank], time)
    parts = [
        {
            "gpu": part.run.gpu.name,
            "num_gpus": part.num_gpus,
            "nodes": part.num_gpus // part.run.fabric.gpus_per_node,
            "dp": part.run.dp,
            "num_microbatches": part.run.num_microbatches,
            "first_rank": part.ranks[0],
            "last_rank": part.ranks[-1],
            "memory_gib": float(peak.total) / GIB,
            "memory_limit_gib": part.run.gpu.memory.driver * (1 - instance.limits.memory_headroom) / GIB,
        }
        for part, peak in zip(mixed.parts, of.memory, strict=True)
    ]
    return {
        "gpu": " + ".join(part["gpu"] for part in parts),
        "num_gpus": mixed.num_gpus,
        "nodes": sum(part["nodes"] for part in parts),
        **{name: shape[name] for name in ("tp", "pp", "micro_batch", "zero")},
        **dict.fromkeys(("cp", "vpp", "ep", "etp"), 1),
        "dp": shape["dp"][0] if form == "stages" else sum(shape["dp"]),
        "num_microbatches": shape["num_microbatches"][0],
        "global_batch": shape["micro_batch"] * sum(dp * m for dp, m in lines),
        "recompute": "full" if any(shape["recomputed"]) else "none",
        "precision": "bf16",
        "sequence_parallel": shape["tp"] > 1,
        "tp_overlap": shape["tp"] > 1,
        "dp_overlap": (shape["dp"][0] if form == "stages" else sum(shape["dp"])) > 1,
        "stages": [
            {"layers": n, "recomputed_layers": again, "memory_gib": used, "micro_batch_time_s": time}
            for n, again, used, time in zip(
                shape["layers"], shape["recomputed"], memory, seconds, strict=True
            )
        ],
        "mixed": form,
        "parts": parts,
    }


def figures(instance: Any, mixed: Mixed, of: MixedEstimate) -> dict[str, Any]:
    """What it is predicted to do."""
    first, second = mixed.parts
    runs = [first.run] if mixed.one_pipeline else [first.run, second.run]
    batch = sum(int(run.global_batch) for run in runs)
    replicas = sum(int(run.dp) for run in runs)
    pools = instance.pools
    shares = Share(pools[0], first.num_gpus), Share(pools[1], second.num_gpus)
    run = mixed_lasting(instance, shares, replicas, batch, of.step_time)
    ideal = instance.tokens / (batch * instance.seq_len) * of.step_time
    fullest = max(of.memory, key=lambda memory: float(memory.total))
    names = ("weights", "gradients", "optimizer", "activations", "buffers", "overhead", "total")
    found = {
        "step_time_s": of.step_time,
        "days": run.seconds / DAY,
        "dollars": run.dollars,
        "mfu": of.mfu,
        "hfu": of.hfu,
        "tokens_per_s_per_gpu": of.tokens_per_second_per_gpu,
        "memory_gib": {name: float(getattr(fullest, name)) / GIB for name in names},
        "breakdown_s": {name: seconds for name, seconds in of.breakdown.items() if seconds},
        "ideal_days": ideal / DAY,
        "goodput": run.goodput,
        "energy": {"mwh": run.kwh / 1e3, "tonnes_co2": run.tonnes, "dollars": 0.0},
    }
    return found


LAUNCHED: dict[str, dict[str, Any]] = {
    "stages": {"recomputed": (0, 0, 0, 0)},
    "replicas": {"num_microbatches": (20, 20)},
}
"""Changes of the shapes to what Megatron can launch."""


def mixed_solution(form: str = "stages", *changes: tuple[str, Any], launched: bool = False) -> Solution:
    """A solution whose first plan is mixed, with a verdict."""
    problem = job(*changes)
    plan = mixed_plan(problem, form, **(LAUNCHED[form] if launched else {}))
    return Solution.model_validate(
        {
            "status": "optimal",
            "problem": problem.as_written(),
            "provenance": {"planner": "0.1.0", "problem_hash": problem.problem_hash},
            "plans": [plan],
            "proof": {"lattice": 9, "valid": 8, "feasible": 7, "screened": 3, "bounded": 2, "solved": 2}
            | {"gap": 0.0, "seconds": 0.1},
            "mixing": {
                "better": True,
                "proof": {"node_pairs": 1200, "layouts": 340, "solved": 12, "gap": 0.0, "seconds": 0.3},
                "effect": {"days": -9.5, "dollars": 12_000.0},
                "text": "H800 and H20 together end 9.5 days earlier than 96 H800 alone, for $12,000 more.",
            },
        }
    )
