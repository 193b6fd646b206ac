"""What the first and the last stage do besides layers: embedding, LM head and loss."""

from __future__ import annotations

from costmodel.elementwise import embedding_time, loss_time
from costmodel.linears import linear
from costmodel.memory.states import padded_vocab
from costmodel.run import Column, Run


def head_time(run: Run) -> Column:
    """LM head and cross entropy of one micro-batch: three BF16 GEMMs d x V_pad/tp, loss bytes a logit."""
    vocab = padded_vocab(run) / run.tp
    return linear(run, run.tokens, run.architecture.hidden, vocab, "bf16").both + loss_time(run, vocab)


def first_stage_time(run: Run) -> Column:
    """Embedding of one micro-batch, forward and backward."""
    return embedding_time(run)


def prediction_module_time(run: Run, layer: Column) -> Column:
    """Multi-token-prediction modules: each a layer, a projection 2d -> d and the head again."""
    hidden = run.architecture.hidden
    joint = linear(run, run.tokens, 2 * hidden, hidden).both
    return run.architecture.mtp_layers * (layer + joint + head_time(run))
