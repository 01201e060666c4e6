"""What each replica is believed to have in its prefix cache, by the chained hashes of the blocks sent to it.

**Inputs** The blocks of a prompt when a replica is chosen for it, whether the attempt succeeded, how many tokens the
replica says it had cached, and which replicas left or were flushed.
**Parameters** `MOST_ENTRIES` = 2¹⁹ pairs of a replica and a block (`most_entries`), split evenly between the replicas;
a replica's least recently used go first, to the precision of a generation: `GENERATIONS` = 8 to a replica's share, or
to `EXPIRY_S` = 1,800 s without use. `TRUST_WEIGHT` = 0.1: of the newest report in the share of what is believed that
turns out to be there. `MOST_LEVELS` = 8 lengths of a prefix are told apart in a decision. Of a prompt's blocks the
first `EXACT` = 16 are entries, `EXACT` / 2 more for every doubling of its length, and its last.
**Trade-offs** Replicas are not asked: no event stream, and no message between them and the router. A hash is chained,
so whoever holds a block holds all before it: the longest prefix is found by bisection, and not every block need be
kept. A prompt of 1,000 blocks takes 64 entries. The next turn of a conversation finds exactly what the last one sent;
of other prefixes (a system prompt) an eighth may be missed.
**Failure modes** A block that a replica dropped is credited until it reports less; then all that it used before that
block is dropped too (caches drop the least recently used first), and a cache that keeps less than is believed, or
nothing, loses trust in proportion. A block that was only promised (its first request is on the way) is credited, but
teaches nothing when it is not there yet. A new router knows nothing: `summary` and `learn` hand over what one knows.

`expected_wait.py` owns one per served entity. No match is too short: one block in common is worth a block.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

MOST_ENTRIES: Final = 2**19
GENERATIONS: Final = 8
EXPIRY_S: Final = 1800.0
TRUST_WEIGHT: Final = 0.1
MOST_LEVELS: Final = 8
EXACT: Final = 16
UNCONFIRMED: Final = -1  # in the place of a generation

# Per replica: seconds since blocks were last used, and these blocks; the least recently used first.
Summary = dict[str, list[tuple[float, list[int]]]]

# The lengths of a prefix that are entries; their step doubles as they do.
_DEPTHS: Final[list[int]] = [
    *range(1, EXACT),
    *(length << octave for octave in range(1, 20) for length in range(EXACT // 2, EXACT)),
]


class _Generation:
    """Blocks in the order in which they were used first in a stretch of time; those used later count there."""

    __slots__ = ("blocks", "dropped", "newest_s", "number")

    def __init__(self, number: int, now_s: float) -> None:
        self.number = number
        self.newest_s = now_s  # when it ended, or the last use while it lasts
        self.blocks: list[int] = []
        self.dropped = 0  # of its blocks, from the first on


class Cache:
    """What is believed of one replica."""

    __slots__ = ("bit", "generations", "mask", "replica", "trust", "used")

    def __init__(self, replica: str, bit: int) -> None:
        self.replica = replica
        self.bit = bit  # its place in the sets of holders,
        self.mask = 1 << bit  # and the set of it alone
        self.trust = 1.0  # share of the tokens believed to be cached that were
        self.used: dict[int, int] = {}  # block → 2 × the generation of its last use + whether it was confirmed
        self.generations: deque[_Generation] = deque()

    def generation(self, block: int) -> int:
        """Of the last use of a block, `UNCONFIRMED` for one that is only promised or not known."""
        used = self.used.get(block, 0)
        return used >> 1 if used & 1 else UNCONFIRMED


class PrefixIndex:
    __slots__ = ("_by_bit", "_caches", "_holders", "_limit", "_most", "_turn", "entries")

    def __init__(self, most_entries: int = MOST_ENTRIES) -> None:
        self._most = most_entries
        self._limit = most_entries  # of each replica
        self._holders: dict[int, int] = {}  # block → set of holders, a bit each
        self._caches: dict[str, Cache] = {}
        self._by_bit: list[Cache | None] = []
        self._turn = 0  # whose expiry is looked at next
        self.entries = 0

    # --- replicas

    def cache(self, replica: str) -> Cache:
        """Of a replica that is known, or is from now on."""
        cache = self._caches.get(replica)
        if cache is None:
            bit = self._by_bit.index(None) if None in self._by_bit else len(self._by_bit)
            cache = self._caches[replica] = Cache(replica, bit)
            if bit == len(self._by_bit):
                self._by_bit.append(cache)
            else:
                self._by_bit[bit] = cache
            self._share_out()
        return cache

    def remove(self, replica: str) -> None:
        """The replica left: nothing is credited to it any more."""
        cache = self._caches.pop(replica, None)
        if cache is not None:
            self._empty(cache)
            self._by_bit[cache.bit] = None
            self._share_out()

    def flush(self, replica: str) -> None:
        """The replica started anew, or dropped its cache."""
        cache = self._caches.get(replica)
        if cache is not None:
            self._empty(cache)
            cache.trust = 1.0

    def replicas(self) -> list[str]:
        return list(self._caches)

    # --- what is believed

    def depth(self, cache: Cache, blocks: Sequence[int]) -> int:
        """How many of the blocks, from the head, the replica is believed to hold."""
        used = cache.used
        low, high = 0, bisect_right(_DEPTHS, len(blocks))
        while low < high:
            middle = (low + high) // 2
            if blocks[_DEPTHS[middle] - 1] in used:
                low = middle + 1
            else:
                high = middle
        if not low:
            return 0
        depth = _DEPTHS[low - 1]
        for longer in range(min(_DEPTHS[low] - 1, len(blocks)), depth, -1):  # a prompt may have ended here
            if blocks[longer - 1] in used:
                return longer
        return depth

    def levels(self, blocks: Sequence[int]) -> list[tuple[int, int]]:
        """Who holds how many blocks, as pairs of a number and the set of those that hold so many and no more.

        The longest prefix first; beyond `MOST_LEVELS` pairs, the last of which then stands for all that hold less.
        """
        found: list[tuple[int, int]] = []
        holders = self._holders
        seen = 0
        high = bisect_right(_DEPTHS, len(blocks))
        while high:
            low = 0
            while low < high:  # the deepest block with a holder that was not seen yet
                middle = (low + high) // 2
                if holders.get(blocks[_DEPTHS[middle] - 1], 0) & ~seen:
                    low = middle + 1
                else:
                    high = middle
            if not low:
                break
            depth = _DEPTHS[low - 1]
            for longer in range(min(_DEPTHS[low] - 1, len(blocks)), depth, -1):  # prompts may have ended here
                level = holders.get(blocks[longer - 1], 0) & ~seen
                if level:
                    found.append((longer, level))
                    seen |= level
            if len(found) >= MOST_LEVELS - 1:
                found.append((1, holders.get(blocks[0], 0) & ~seen))
                break
            level = holders[blocks[depth - 1]] & ~seen
            if level:
                found.append((depth, level))
                seen |= level
            high = low - 1
        return found

    def some_of(self, level: int, most: int, draw: Callable[[], float]) -> list[Cache]:
        """Up to `most` of a set of holders, any of them."""
        found: list[Cache] = []
        while level and len(found) < most:
            turn = int(draw() * len(self._by_bit))
            turned = level >> turn
            bit = turn + _lowest(turned) if turned else _lowest(level)
            level ^= 1 << bit
            cache = self._by_bit[bit]
            if cache is not None:
                found.append(cache)
        return found

    # --- what happens

    def promise(self, cache: Cache, blocks: Sequence[int], now_s: float) -> None:
        """The replica is about to compute these blocks, or to use them."""
        self._use(cache, _entries(blocks), now_s, 0)
        self._turn = (self._turn + 1) % len(self._by_bit)
        other = self._by_bit[self._turn]
        if other is not None:  # who gets no prompts forgets too, in turn
            self.expire(other, now_s)

    def confirm(self, cache: Cache, blocks: Sequence[int], now_s: float) -> None:
        """The replica answered a prompt of these blocks: it held all of them until now."""
        self._use(cache, _entries(blocks), now_s, 1)

    def withdraw(self, cache: Cache, blocks: Sequence[int]) -> None:
        """The attempt failed: what was only promised is not there."""
        for block in blocks:
            if not cache.used.get(block, 1) & 1:
                self._drop(cache, block)

    def correct(
        self, cache: Cache, believed_tokens: float, block_tokens: float, generation: int, cached_tokens: float
    ) -> None:
        """The replica had `cached_tokens` where `believed_tokens` were thought to be, last used in `generation`."""
        if believed_tokens <= 0 or generation == UNCONFIRMED:
            return
        share = min(1.0, cached_tokens / believed_tokens)
        cache.trust += TRUST_WEIGHT * (share - cache.trust)
        if cached_tokens < believed_tokens - block_tokens:  # engines round, and compute at least one token
            while cache.generations and cache.generations[0].number < generation:
                self._drop_generation(cache)

    # --- for a new router

    def summary(self, now_s: float, most_entries: int) -> Summary:
        """What is confirmed, the most recently used first to be kept where it is more than `most_entries`."""
        share = most_entries // max(1, len(self._caches))
        summary: Summary = {}
        for replica, cache in self._caches.items():
            parts: list[tuple[float, list[int]]] = []
            left = share
            for generation in reversed(cache.generations):
                current = 2 * generation.number + 1
                blocks = [
                    block for block in generation.blocks[generation.dropped :] if cache.used.get(block) == current
                ]
                blocks = blocks[max(0, len(blocks) - left) :]
                left -= len(blocks)
                if blocks:
                    parts.append((now_s - generation.newest_s, blocks))
            parts.reverse()
            summary[replica] = parts
        return summary

    def learn(self, summary: Summary, now_s: float) -> None:
        """Take over another's summary, for replicas of which nothing is known here yet."""
        for replica, parts in summary.items():
            cache = self._caches.get(replica)
            if cache is None or cache.used:
                continue
            for age_s, blocks in parts:
                if 0 <= age_s < EXPIRY_S:
                    self._begin(cache, now_s - age_s)
                    self._use(cache, blocks, now_s - age_s, 1)

    # --- order and bounds

    def expire(self, cache: Cache, now_s: float) -> None:
        """Forget what the replica has not used for `EXPIRY_S`."""
        while cache.generations and cache.generations[0].newest_s <= now_s - EXPIRY_S:
            self._drop_generation(cache)

    def _use(self, cache: Cache, entries: Sequence[int], now_s: float, confirmed: int) -> None:
        generations = cache.generations
        if (
            not generations
            or len(generations[-1].blocks) * GENERATIONS >= self._limit
            or (now_s - generations[0].newest_s) * GENERATIONS >= EXPIRY_S * len(generations)
        ):
            self._begin(cache, now_s)
        generation = generations[-1]
        generation.newest_s = max(generation.newest_s, now_s)
        current = 2 * generation.number
        used = cache.used
        holders = self._holders
        order = generation.blocks
        for block in entries:
            before = used.get(block, -1)
            if before < current:
                order.append(block)
                if before < 0:
                    holders[block] = holders.get(block, 0) | cache.mask
                    self.entries += 1
                    used[block] = current | confirmed
                else:
                    used[block] = current | confirmed | (before & 1)
            elif before < current | confirmed:
                used[block] = current | confirmed
        self._trim(cache)
        if self.entries > self._most:  # others still hold what was their share when they were fewer
            for other in self._caches.values():
                self._trim(other)

    def _begin(self, cache: Cache, now_s: float) -> None:
        """A new generation. Those that are too many to tell apart, the first of which nobody used since, end."""
        generations = cache.generations
        generations.append(_Generation(generations[-1].number + 1 if generations else 1, now_s))
        while len(generations) > 2 * GENERATIONS:
            self._drop_generation(cache)

    def _trim(self, cache: Cache) -> None:
        while len(cache.used) > self._limit:
            self._drop_oldest(cache)

    def _drop_oldest(self, cache: Cache) -> None:
        """The next of the oldest generation, unless it was used again since."""
        generation = cache.generations[0]
        if generation.dropped == len(generation.blocks):
            cache.generations.popleft()
            return
        block = generation.blocks[generation.dropped]
        generation.dropped += 1
        if cache.used.get(block, -1) >> 1 == generation.number:
            self._drop(cache, block)

    def _drop_generation(self, cache: Cache) -> None:
        generation = cache.generations[0]
        while cache.generations and cache.generations[0] is generation:
            self._drop_oldest(cache)

    def _share_out(self) -> None:
        """The bound is on all together: with more replicas, fewer entries for each."""
        self._limit = max(1, self._most // max(1, len(self._caches)))

    def _empty(self, cache: Cache) -> None:
        while cache.generations:
            self._drop_generation(cache)

    def _drop(self, cache: Cache, block: int) -> None:
        del cache.used[block]
        self.entries -= 1
        left = self._holders[block] & ~cache.mask
        if left:
            self._holders[block] = left
        else:
            del self._holders[block]


def _entries(blocks: Sequence[int]) -> list[int]:
    """The blocks of a prompt that are kept, the head last: it is dropped last."""
    count = bisect_right(_DEPTHS, len(blocks))
    entries = [blocks[_DEPTHS[index] - 1] for index in range(count - 1, -1, -1)]
    if count and _DEPTHS[count - 1] != len(blocks):
        entries.insert(0, blocks[-1])
    return entries


def _lowest(bits: int) -> int:
    """Position of the lowest bit that is set."""
    return (bits & -bits).bit_length() - 1
