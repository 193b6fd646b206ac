"""What launches of the Megatron family need and no plan decides: variables to set, options that take them."""

from __future__ import annotations

from planner.export.shell import Argument, Variable

UNDECIDED = {
    "DATA_PATH": "prefix of the tokenised data",
    "TOKENIZER_MODEL": "a Hugging Face tokenizer, name or folder",
    "CHECKPOINT_DIR": "where checkpoints are saved and resumed from",
    "SAVE_INTERVAL": "steps between checkpoints",
    "LR": "peak learning rate",
    "MIN_LR": "final learning rate",
    "LR_WARMUP_ITERS": "steps of warm-up",
}
ROTARY = {"ROTARY_BASE": "base of the rotary embedding (theta)"}
OPTIONS: list[tuple[Argument, ...]] = [
    ("--save", Variable("${CHECKPOINT_DIR}")),
    ("--load", Variable("${CHECKPOINT_DIR}")),
    ("--save-interval", Variable("${SAVE_INTERVAL}")),
    ("--lr", Variable("${LR}")),
    ("--min-lr", Variable("${MIN_LR}")),
    ("--lr-warmup-iters", Variable("${LR_WARMUP_ITERS}")),
]
"""Checkpoints and the learning rate: spelled alike in Megatron-LM and Megatron-DeepSpeed."""
