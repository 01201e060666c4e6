"""The prefix cache of one simulated replica: whole blocks of tokens, named by chained hashes, evicted least used first.

A block that a request in progress uses is pinned and cannot be evicted; others stay for as long as there is room. The
replica asks what is there, pins it, and says how much room it needs. It holds names, not tokens, and reads no clock.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence


class PrefixCache:
    """Blocks present: `pinned` by so many requests, or idle in the order of their last use."""

    __slots__ = ("_idle", "_pins", "block_tokens")

    def __init__(self, block_tokens: int) -> None:
        self.block_tokens = block_tokens
        self._pins: dict[int, int] = {}
        self._idle: OrderedDict[int, None] = OrderedDict()

    @property
    def pinned_blocks(self) -> int:
        return len(self._pins)

    @property
    def idle_blocks(self) -> int:
        return len(self._idle)

    def match(self, blocks: Sequence[int]) -> int:
        """How many leading blocks are here."""
        pins, idle = self._pins, self._idle
        count = 0
        for block in blocks:
            if block not in pins and block not in idle:
                break
            count += 1
        return count

    def idle_among(self, blocks: Sequence[int]) -> int:
        """How many of these would be pinned anew."""
        idle = self._idle
        return sum(1 for block in blocks if block in idle)

    def pin(self, blocks: Sequence[int]) -> int:
        """Hold these, present or not; how many are new here."""
        pins, idle = self._pins, self._idle
        new = 0
        for block in blocks:
            held = pins.get(block)
            if held is not None:
                pins[block] = held + 1
                continue
            pins[block] = 1
            if block in idle:
                del idle[block]
            else:
                new += 1
        return new

    def unpin(self, blocks: Sequence[int]) -> None:
        """Let go, the tail first, so that of one prefix the tail is evicted before its head."""
        pins, idle = self._pins, self._idle
        for block in reversed(blocks):
            held = pins[block]
            if held > 1:
                pins[block] = held - 1
            else:
                del pins[block]
                idle[block] = None

    def evict(self, count: int) -> None:
        """Drop that many idle blocks, or all there are."""
        idle = self._idle
        for _ in range(min(count, len(idle))):
            idle.popitem(last=False)

    def clear(self) -> None:
        """The process ended: nothing is left."""
        self._pins.clear()
        self._idle.clear()
