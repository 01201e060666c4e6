"""Whether requests of a served entity are weighed or counted: by how much their costs differ, by no flag.

**Inputs** What each finished request did cost: as if nothing had been cached and, for those with a prefix, as if all of
its prompt had been. Not what it was thought to cost: what is learnt of answers' lengths is no difference of requests.
**Parameters** Weighing begins when the coefficient of variation of these costs exceeds `WEIGH_ABOVE` = 0.3 and ends
below `COUNT_BELOW` = 0.2; `MEMORY` = 200 costs, and nothing is concluded from less than `FEWEST` = 20.
**Trade-offs** Where all requests cost the same, the fewest in flight is the least work, at a fraction of the time of a
decision. What could be cached counts as a difference whether or not it is: that does not depend on who decides, so the
choice cannot flip because of its own effect.
**Failure modes** The first requests are weighed, since nothing is known. A kind of request that comes less often than
once in `MEMORY` hardly changes the choice. What is learnt about caches rests while requests are counted.

One per served entity, in the place of a chooser.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from steelyard.policy.expected_wait import ExpectedWait
from steelyard.policy.routing import Ask, C, Decision, LeastInTurn

WEIGH_ABOVE: Final = 0.3
COUNT_BELOW: Final = 0.2
MEMORY: Final = 200
FEWEST: Final = 20


class CostSpread:
    """Mean and coefficient of variation of the last costs, fading."""

    __slots__ = ("_count", "_mean", "_square")

    def __init__(self) -> None:
        self._count = 0
        self._mean = 0.0
        self._square = 0.0

    def add(self, mmu: int) -> None:
        self._count = min(self._count + 1, MEMORY)
        self._mean += (mmu - self._mean) / self._count
        self._square += (float(mmu) * mmu - self._square) / self._count

    def variation(self) -> float | None:
        """Standard deviation ÷ mean; None when too few costs are known."""
        if self._count < FEWEST or not self._mean:
            return None
        return math.sqrt(max(0.0, self._square / (self._mean * self._mean) - 1))


class WeighOrCount:
    """Expected wait where costs differ, else the cheaper count."""

    __slots__ = ("_counting", "spread", "weighing", "weighs")

    def __init__(self, weighing: ExpectedWait, counting: LeastInTurn) -> None:
        self.weighing = weighing
        self._counting = counting
        self.spread = CostSpread()
        self.weighs = True

    def choose(self, candidates: Sequence[C], now_s: float, ask: Ask) -> Decision[C] | None:
        if self.weighs:
            return self.weighing.choose(candidates, now_s, ask)
        return self._counting.choose(candidates, now_s, ask)

    def settled(self, decision: Decision[C], ask: Ask, now_s: float, cached_tokens: float | None) -> None:
        if self.weighs:
            self.weighing.settled(decision, ask, now_s, cached_tokens)
        actual_mmu = decision.entry.actual_mmu
        if actual_mmu is None:
            return
        if cached_tokens is None:
            cached_tokens = decision.cached_tokens
        whole_mmu = actual_mmu + ask.mmu - ask.mmu_after(cached_tokens)
        self.spread.add(whole_mmu)
        if ask.blocks:
            self.spread.add(max(0, whole_mmu - ask.mmu + ask.least_mmu))
        variation = self.spread.variation()
        if variation is not None:
            self.weighs = variation > (COUNT_BELOW if self.weighs else WEIGH_ABOVE)
