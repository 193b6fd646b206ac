"""Runs that the timing tests share."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from costmodel.cards import load_card
from costmodel.run import Fabric, Run
from costmodel.stack import load_stack
from hardware.catalogue import load_accelerator


def some_run(gpu: str = "H100", model: str = "llama-2-70b", **changes: Any) -> Run:
    """A run that anyone would start: TP8, PP2, 16 micro-batches of one 4K sequence."""
    accelerator = load_accelerator(gpu)
    run = Run(
        architecture=load_card(model),
        gpu=accelerator,
        fabric=Fabric.of(accelerator),
        stack=load_stack("megatron-core"),
        seq_len=4096,
        precision="bf16",
        recompute_modules=frozenset(),
        tp=8,
        cp=1,
        pp=2,
        vpp=1,
        dp=8,
        ep=1,
        etp=1,
        micro_batch=1,
        num_microbatches=16,
        zero=1,
    )
    return replace(run, **changes)
