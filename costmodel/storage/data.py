"""The data set: bytes, what loaders read, and the CPU cores that prepare it."""

from __future__ import annotations

import numpy as np

from costmodel.run import Column
from hardware.site import site_storage

SMALL_ID, LARGE_ID = 2, 4


def text_bytes(tokens: Column, bytes_per_token: Column = 4, overhead: Column = 1) -> Column:
    """Text of so many tokens, with intermediate copies: D * 4 B * f, f of 1.3 to 2 while it is prepared."""
    return tokens * bytes_per_token * overhead


def token_id_bytes(vocab: Column) -> Column:
    """Bytes of a stored token id: 2 while ids fit into 16 bits, else 4."""
    return np.where(np.asarray(vocab) <= site_storage().data.small_vocab, SMALL_ID, LARGE_ID)


def sample_bytes(samples: Column, each: Column, overhead: Column = 1, copies: Column = 1) -> Column:
    """Images, shards, traces, a shuffle buffer: n * bytes * overhead * copies."""
    return samples * each * overhead * copies


def stream_bytes(bits_per_second: Column, seconds: Column) -> Column:
    """Audio or video of that length: rate/8 * seconds."""
    return bits_per_second * seconds / 8


def read_bandwidth(
    batch_tokens: Column, bytes_per_token: Column, step_time: Column, ranks: Column = 1
) -> Column:
    """bytes/s of a data-parallel rank, of all of them with one: B*S*bytes/(n*T_step)."""
    return batch_tokens * bytes_per_token / (ranks * step_time)


def read_operations(ranks: Column, step_time: Column, reads: Column = 2) -> Column:
    """Reads a second of all loaders: n*reads/T_step. Metadata, not bytes, is what text loaders wear out."""
    return ranks * reads / step_time


def fewest_shards(ranks: Column) -> Column:
    """Files over which every loader still shuffles: 10 a data-parallel rank."""
    return ranks * site_storage().data.shards_per_reader


def tokenizer_cores(tokens_per_second: Column, bytes_per_token: Column = 4, core: Column = 1e6) -> Column:
    """CPU cores that tokenise as fast as a run consumes: text bytes/s over 1 to 5 MB/s a core."""
    return tokens_per_second * bytes_per_token / core


def tokens_fed(bandwidth: Column, bytes_per_token: Column) -> Column:
    """Tokens a second that a drive or link can feed."""
    return bandwidth / bytes_per_token


def busy_cores(ranks: Column, samples_per_second: Column, seconds: Column) -> Column:
    """CPU cores busy with augmentation: ranks * samples/s * seconds a sample."""
    return ranks * samples_per_second * seconds


def prefetch_bytes(workers: Column, batches: Column, batch_tokens: Column, bytes_per_token: Column) -> Column:
    """Host memory of batches read ahead: workers * batches * tokens * bytes."""
    return workers * batches * batch_tokens * bytes_per_token
