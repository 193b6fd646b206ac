"""Random training problems on GPUs that published runs were measured on, solved."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

from costmodel.run import Fabric, Run
from costmodel.stack import load_stack
from planner.problem import Problem, parse_problem
from planner.solution import Decisions, Estimate
from planner.solve import solve

MODELS = (
    "llama-2-7b",
    "llama-2-13b",
    "llama-3-8b",
    "mistral-7b",
    "gemma-2-27b",
    "llama-2-70b",
    "llama-3-70b",
    "qwen-2.5-72b",
    "gpt3-175b",
    "llama-3.1-405b",
    "mixtral-8x7b",
    "qwen-3-30b-a3b",
)
EXPERTS = ("mixtral-8x7b", "qwen-3-30b-a3b")
GPUS = {
    "A100-80": ("bf16",),
    "H800": ("bf16",),
    "H100": ("bf16", "fp8"),
    "B200": ("bf16", "fp8"),
    "GB200": ("bf16", "fp8"),
}
NODES = {"GB200": 4}
"""GPUs of a node where they are not 8."""


def problem(random: Random) -> dict[str, Any]:
    """One pool of a fixed size, a fixed batch, a few sizes of each decision."""
    gpu = random.choice(sorted(GPUS))
    model = random.choice(MODELS)
    search: dict[str, Any] = {
        "tp": random.choice(([1, 2], [1, 2, 4], [2, 4], [4, 8])),
        "pp": random.choice(([1], [1, 2], [2, 4], [4, 8], [8, 16])),
        "vpp": random.choice(([1], [1, 2, 4])),
        "cp": 1,
        "micro_batch": random.choice(([1], [1, 2], [1, 2, 4])),
        "zero": 1,
        "per_stage_recompute": False,
        "stack": random.choice(("megatron-core", "megatron-bridge")),
    }
    if model in EXPERTS:
        search |= {"ep": [1, 4, 8], "etp": 1}
    return {
        "name": "curse",
        "model": model,
        "training": {
            "tokens": "100B",
            "seq_len": random.choice((2048, 4096, 8192)),
            "global_batch": f"{random.choice((128, 256, 512, 1024, 2048))} sequences",
            "precision": random.choice(GPUS[gpu]),
        },
        "hardware": [
            {
                "gpu": gpu,
                "nodes": random.choice((1, 2, 4, 8, 16, 32, 64)) * 8 // NODES.get(gpu, 8),
                "price": "2 USD/gpu-hour",
            }
        ],
        "objective": "time",
        "search": search,
    }


def solved_plans(random: Random, count: int) -> Iterator[tuple[Run, Estimate]]:
    """The best plans of `count` problems that have one, with what they are predicted to do."""
    while count:
        asked = parse_problem(problem(random))
        for plan in solve(asked).plans[:1]:
            yield run_of(asked, plan.decisions), plan.estimate
            count -= 1


def run_of(asked: Problem, d: Decisions) -> Run:
    """The cost model's noun of a plan."""
    gpu = asked.hardware[0].accelerator
    return Run(
        architecture=asked.model.architecture,
        gpu=gpu,
        fabric=Fabric.of(gpu),
        stack=load_stack(asked.search.profile),
        seq_len=asked.training.seq_len,
        precision=d.precision,
        recompute_modules=frozenset(d.recompute_modules),
        **{
            name: getattr(d, name)
            for name in (
                *("tp", "cp", "pp", "vpp", "dp", "ep", "etp"),
                *("micro_batch", "num_microbatches", "zero"),
            )
        },
    )
