"""Attention over a paged cache, grouped-query, float32 on the CPU.

The model calls `attend` once per layer, after the new keys and values are in the cache. Queries are
`[tokens, heads, head_dim]`; the heads of one group share a key/value head and are never expanded.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F

from steelyard.engine.batch import Batch, DecodeGroup, PrefillChunk
from steelyard.engine.cache import LayerCache


def attend(
    queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, cache: LayerCache, batch: Batch
) -> torch.Tensor:
    """`keys` and `values` are the new ones, `[tokens, kv_heads, head_dim]`; `cache` already holds them too."""
    output = torch.empty_like(queries)
    for chunk in batch.chunks:
        if chunk.slots is None:
            past = keys[chunk.rows].transpose(0, 1), values[chunk.rows].transpose(0, 1)
        else:
            past = cache.gather(chunk.slots)
        output[chunk.rows] = _attend_chunk(queries[chunk.rows], *past, chunk)
    for group in batch.groups:
        output[group.rows] = _attend_decodes(queries[group.rows], *cache.gather(group.slots), group)
    return output


def _attend_chunk(queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, chunk: PrefillChunk) -> torch.Tensor:
    """Many tokens of one sequence: torch's fused kernel, the same that the reference implementation uses."""
    attended = F.scaled_dot_product_attention(
        queries.transpose(0, 1)[None],
        keys[None],
        values[None],
        attn_mask=chunk.mask,
        is_causal=chunk.mask is None,
        enable_gqa=keys.shape[0] != queries.shape[1],
    )
    return attended[0].transpose(0, 1)


def _attend_decodes(
    queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, group: DecodeGroup
) -> torch.Tensor:
    """One token each of many sequences: a batched product per key/value head and sequence."""
    count, num_heads, head_dim = queries.shape
    kv_heads = keys.shape[0]
    keys = keys.view(kv_heads, count, -1, head_dim)
    values = values.view(kv_heads, count, -1, head_dim)
    grouped = queries.view(count, kv_heads, num_heads // kv_heads, head_dim).transpose(0, 1)
    scores = torch.matmul(grouped * head_dim**-0.5, keys.transpose(2, 3))
    if group.bias is not None:
        scores += group.bias
    attended = torch.matmul(torch.softmax(scores, dim=-1), values)
    return attended.transpose(0, 1).reshape(count, num_heads, head_dim)
