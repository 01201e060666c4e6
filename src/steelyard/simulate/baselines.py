"""What public routers do, to compare with: affinity to the longest prefix, switched off for all by an imbalance gate.

Written from the published behaviour of the cache-aware policy of SGLang's router and its descendants, with their
defaults: where load is balanced (in-flight requests differ by at most 64, or by at most half), a prompt of which more
than half is known goes to the replica with the longest prefix, anything else to the one with the fewest requests; where
load is not balanced, everything goes there. It copies no code. The simulated router uses it like any chooser.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from random import Random

from steelyard.policy.ledger import Ledger
from steelyard.policy.routing import Ask, C, Candidate, Decision, Reason, least_busy

LEAST_MATCH = 0.5  # of the prompt
MOST_APART = 64  # requests in flight
MOST_TIMES = 1.5
BLOCKS_PER_REPLICA = 2**14


class PrefixAffinityGate:
    """Affinity with a gate. What it sent is all that it knows of caches; the least recently used is forgotten."""

    def __init__(self, ledger: Ledger, rng: Random, blocks_per_replica: int = BLOCKS_PER_REPLICA) -> None:
        self._ledger = ledger
        self._random: Callable[[], float] = rng.random
        self._room = blocks_per_replica
        self._sent: dict[str, OrderedDict[int, None]] = {}
        self._holders: dict[int, set[str]] = {}

    def choose(self, candidates: Sequence[C], now_s: float, ask: Ask) -> Decision[C] | None:
        best: C | None = None
        if ask.blocks and self._balanced(candidates):
            best = self._longest(candidates, now_s, ask)
        reason = Reason.AT_HOME if best is not None else Reason.LEAST_BUSY
        best = best if best is not None else least_busy(candidates, now_s, self._random)
        if best is None:
            return None
        self._remember(best.account.replica, ask.blocks)
        return Decision(best, reason, self._ledger.charge(best.account, ask.mmu), now_s)

    def settled(self, decision: Decision[C], ask: Ask, now_s: float, cached_tokens: float | None) -> None:
        """It does not ask what was really cached."""

    def _balanced(self, candidates: Sequence[Candidate]) -> bool:
        loads = [candidate.account.in_flight for candidate in candidates]
        most, fewest = max(loads), min(loads)
        return most - fewest <= MOST_APART or most <= MOST_TIMES * fewest

    def _longest(self, candidates: Sequence[C], now_s: float, ask: Ask) -> C | None:
        """The least busy of those with the longest prefix; None when it is too short, or none of them is free."""
        blocks, holders = ask.blocks, self._holders
        low, high = 0, len(blocks)
        while low < high:  # whoever holds a block holds those before it
            middle = (low + high) // 2
            if holders.get(blocks[middle]):
                low = middle + 1
            else:
                high = middle
        if not low or low * ask.block_tokens <= LEAST_MATCH * ask.features.input_tokens:
            return None
        having = holders[blocks[low - 1]]
        return least_busy([one for one in candidates if one.account.replica in having], now_s, self._random)

    def _remember(self, replica: str, blocks: tuple[int, ...]) -> None:
        sent = self._sent.setdefault(replica, OrderedDict())
        for block in reversed(blocks):
            if block in sent:
                sent.move_to_end(block)
            else:
                sent[block] = None
                self._holders.setdefault(block, set()).add(replica)
        while len(sent) > self._room:
            block, _ = sent.popitem(last=False)
            having = self._holders[block]
            having.discard(replica)
            if not having:
                del self._holders[block]
