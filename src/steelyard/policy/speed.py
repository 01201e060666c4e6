"""How fast each replica is beside the others: 0.5 takes twice as long for the same work.

**Inputs** Every attempt that a replica completed: what it cost, how long it took, and how many were in flight with it.
**Parameters** `PRIOR` = 5 attempts' worth of being as fast as all others; `MEMORY` = 50 attempts of a replica and 500
of all count, and `HALF_LIFE_S` = 30 s; steps of a quarter of an octave (`STEPS` = 4), within `SLOWEST` and its inverse.
**Trade-offs** Seconds per milli-MU grow with what else is in flight, so a replica with little to do must not seem
fast, nor one with more seem slow: a line through all replicas' attempts says what its load explains, and the rest is
its speed. Steps are coarse, so that noise does not make one of two equal replicas the favourite.
**Failure modes** One replica alone is as fast as itself (1.0). Speed is relative: when all become slow, the cost model
is wrong, and drift says so. What nobody confirms is forgotten: a slow replica is tried again.

`expected_wait.py` owns one per served entity and feeds it; only this module writes `Candidate.speed`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from steelyard.policy.routing import Candidate

PRIOR = 5.0
MEMORY = 50.0
ALL_MEMORY = 500.0
HALF_LIFE_S = 30.0
STEPS = 4
SLOWEST = 0.1


class _Pace:
    """Fading sums over the attempts of one replica."""

    __slots__ = ("at_s", "attempts", "candidate", "expected_s", "observed_s", "ratio")

    def __init__(self, candidate: Candidate) -> None:
        self.candidate = candidate
        self.attempts = 0.0
        self.expected_s = 0.0  # at speed 1, with the load that there was
        self.observed_s = 0.0
        self.ratio = 1.0  # the speed before it is rounded
        self.at_s = 0.0

    def fade(self, now_s: float) -> None:
        kept = math.exp2(-max(0.0, now_s - self.at_s) / HALF_LIFE_S)
        self.attempts *= kept
        self.expected_s *= kept
        self.observed_s *= kept
        self.at_s = max(self.at_s, now_s)

    def judge(self) -> None:
        if self.attempts < 1e-3:  # next to nothing is remembered
            self.ratio = self.candidate.speed = 1.0
            return
        prior_s = PRIOR * self.expected_s / self.attempts
        ratio = (prior_s + self.expected_s) / (prior_s + self.observed_s)
        self.ratio = min(1 / SLOWEST, max(SLOWEST, ratio))
        self.candidate.speed = math.exp2(round(STEPS * math.log2(self.ratio)) / STEPS)


class Speeds:
    __slots__ = ("_load", "_load_load", "_load_pace", "_pace", "_paces", "_turn", "_weight")

    def __init__(self) -> None:
        self._paces: dict[str, _Pace] = {}
        self._turn: list[_Pace] = []
        # Fading sums over all attempts, for the line through seconds per milli-MU against attempts in flight.
        self._weight = self._load = self._pace = self._load_load = self._load_pace = 0.0

    def assign(self, candidates: Sequence[Candidate]) -> None:
        """These are the replicas from now on; those known before keep what was learnt of them."""
        known, self._paces = self._paces, {}
        for candidate in candidates:
            replica = candidate.account.replica
            pace = known.get(replica)
            if pace is None:
                pace = _Pace(candidate)
            elif pace.candidate is not candidate:
                pace.candidate = candidate
                candidate.speed = 1.0
            self._paces[replica] = pace
            pace.judge()
        self._turn = []

    def observe(self, replica: str, mmu: int, seconds: float, in_flight: float, now_s: float) -> None:
        """An attempt of `mmu` took so long, with `in_flight` attempts at the replica meanwhile, itself included."""
        pace = self._paces.get(replica)
        if pace is None or mmu <= 0 or seconds <= 0:
            return
        self._fit(mmu, seconds * pace.ratio / mmu, in_flight)
        pace.fade(now_s)
        kept = 1 - 1 / MEMORY
        pace.attempts = kept * pace.attempts + 1
        pace.expected_s = kept * pace.expected_s + mmu * self._expected(in_flight)
        pace.observed_s = kept * pace.observed_s + seconds
        pace.judge()
        if not self._turn:
            self._turn = list(self._paces.values())
        other = self._turn.pop()  # who gets no requests is forgotten too, in turn
        other.fade(now_s)
        other.judge()

    def _fit(self, weight: float, pace: float, load: float) -> None:
        kept = 1 - 1 / ALL_MEMORY
        self._weight = kept * self._weight + weight
        self._load = kept * self._load + weight * load
        self._pace = kept * self._pace + weight * pace
        self._load_load = kept * self._load_load + weight * load * load
        self._load_pace = kept * self._load_pace + weight * load * pace

    def _expected(self, load: float) -> float:
        """Seconds per milli-MU at speed 1 with such a load: least squares, with neither slope nor start below zero."""
        mean_load, mean_pace = self._load / self._weight, self._pace / self._weight
        spread = self._load_load / self._weight - mean_load * mean_load
        if spread <= 1e-6 * mean_load * mean_load:
            return mean_pace  # all had the same load: nothing is known of another
        slope = max(0.0, (self._load_pace / self._weight - mean_load * mean_pace) / spread)
        if slope * mean_load > mean_pace:
            return load * self._load_pace / self._load_load
        return mean_pace + slope * (load - mean_load)
