"""Key-value cache of inference: bytes, and how they are handed out."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from costmodel.run import Column


def kv_bytes(layers: Column, tokens: Column, kv_width: Column, element_bytes: Column = 2) -> Column:
    """Keys and values of all cached tokens: 2*L*T*d_kv*bytes, d_kv = h_kv*d_h (GQA, MQA, MHA)."""
    return 2 * layers * tokens * kv_width * element_bytes


def latent_kv_bytes(
    layers: Column, tokens: Column, latent: Column, rope: Column, element_bytes: Column = 2
) -> Column:
    """MLA caches one latent and one rotary key: L*T*(d_c + d_r)*bytes (arXiv:2405.04434, section 2.1)."""
    return layers * tokens * (latent + rope) * element_bytes


def latent_compression(kv_width: Column, latent: Column, rope: Column) -> Column:
    """How many times smaller MLA's cache is than that of keys and values: 2*d_kv/(d_c + d_r)."""
    return 2 * kv_width / (latent + rope)


def kv_bytes_per_gpu(total: Column, tp: Column, kv_heads: Column) -> Column:
    """Cache of one GPU: KV/min(t, h_kv); beyond h_kv the heads are replicated."""
    return total / np.minimum(tp, kv_heads)


def shared_prefix_tokens(prefix: Column, requests: Column, rest: Column) -> Column:
    """Tokens cached when a common prefix is stored once: prefix + n*rest (vLLM, arXiv:2309.06180)."""
    return prefix + requests * rest


def context_where_cache_equals_weights(
    parameters: Column, layers: Column, kv_width: Column, element_bytes: Column = 2
) -> Column:
    """Context at which a decode step reads as much cache as weights: bytes*P / (KV bytes a token)."""
    return element_bytes * parameters / kv_bytes(layers, 1, kv_width, element_bytes)


def inference_bytes_per_gpu(
    parameters: Column,
    cache: Column,
    tp: Column,
    kv_heads: Column,
    *,
    weight_bytes: Column = 2,
    overhead: Column = 0,
) -> Column:
    """Weights, cache and per-GPU overhead (activations, context): w*P/t + KV/min(t, h_kv) + overhead."""
    return weight_bytes * parameters / tp + kv_bytes_per_gpu(cache, tp, kv_heads) + overhead
