"""How much of the prompts could be reused: by an infinite cache that all replicas share, and by a pooled finite one.

The first is the ideal that a scorecard divides by; the second says what load a fleet must bear. Neither knows of
replicas, times or routing: they walk the requests in the order of arrival.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from steelyard.simulate.requests import SimRequest


def ideal_cached_tokens(requests: Sequence[SimRequest], block_tokens: int) -> list[int]:
    """Per request, what of its prompt somebody has sent or been answered before."""
    seen: set[int] = set()
    cached = []
    for request in requests:
        count = 0
        for block in request.blocks:
            if block not in seen:
                break
            count += 1
        cached.append(min(count, (request.input_tokens - 1) // block_tokens) * block_tokens)
        seen.update(request.blocks)
        seen.update(request.end_blocks)
    return cached


def pooled_cached_tokens(requests: Sequence[SimRequest], block_tokens: int, capacity_tokens: int) -> list[int]:
    """The same, where only the most recently used blocks within the capacity are kept."""
    capacity = max(1, capacity_tokens // block_tokens)
    kept: OrderedDict[int, None] = OrderedDict()
    cached = []
    for request in requests:
        count = 0
        for block in request.blocks:
            if block not in kept:
                break
            count += 1
        cached.append(min(count, (request.input_tokens - 1) // block_tokens) * block_tokens)
        for block in reversed(request.blocks + request.end_blocks):  # the head is the last to be evicted
            kept[block] = None
            kept.move_to_end(block)
        while len(kept) > capacity:
            kept.popitem(last=False)
    return cached
