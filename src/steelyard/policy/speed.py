"""How fast each replica is beside the others: 0.5 takes twice as long for the same work.

**Inputs** Every attempt that a replica completed: what it cost, how long it took, and how many were in flight with it.
**Parameters** Before anything is known, `EQUAL` = 90 % of replicas are taken to be as fast as all others, and the rest
to differ by `APART` = 0.7 (a standard deviation, in logarithms: about a factor of 2). `MEMORY` = 100 attempts of a
replica and `ALL_MEMORY` = 500 of all count, and `HALF_LIFE_S` = 30 s; steps of a quarter of an octave (`STEPS` = 4),
within `SLOWEST` and its inverse.
**Trade-offs** Seconds per milli-MU grow with what else is in flight, so a replica with little to do must not seem
fast, nor one with more seem slow: a line through all replicas' attempts says what its load explains. How far single
attempts are off that line says how much chance there is in a replica's mean, and Bayes' rule how likely it is that it
differs at all: under queues equal replicas seem to differ by a half, and a long backlog would multiply that. A replica
that does differ is believed after a few attempts where times are regular, after some dozens where they are not.
**Failure modes** One replica alone is as fast as itself (1.0). Speed is relative: when all become slow, the cost model
is wrong, and drift says so. What nobody confirms is forgotten: a slow replica is tried again. Where times are so
irregular that half the speed is within chance, speeds stay 1.0, and only the backlog tells.

`expected_wait.py` owns one per served entity and feeds it; only this module writes `Candidate.speed`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from steelyard.policy.routing import Candidate

MEMORY: Final = 100.0
ALL_MEMORY: Final = 500.0
HALF_LIFE_S: Final = 30.0
EQUAL: Final = 0.9
APART: Final = 0.7
STEPS: Final = 4
SLOWEST: Final = 0.1
LEAST_ERROR2: Final = 1e-4  # nothing is known to better than 1 %


class _Pace:
    """Fading sums over the attempts of one replica."""

    __slots__ = ("at_s", "candidate", "expected_s", "observed_s", "ratio", "squares_s2")

    def __init__(self, candidate: Candidate) -> None:
        self.candidate = candidate
        self.expected_s = 0.0  # at speed 1, with the load that there was
        self.observed_s = 0.0
        self.squares_s2 = 0.0  # of each attempt that was expected, fading as the sums do: old evidence is less
        self.ratio = 1.0  # the speed before it is rounded
        self.at_s = 0.0

    def fade(self, kept: float) -> None:
        self.expected_s *= kept
        self.observed_s *= kept
        self.squares_s2 *= kept

    def fade_until(self, now_s: float) -> None:
        self.fade(math.exp2(-max(0.0, now_s - self.at_s) / HALF_LIFE_S))
        self.at_s = max(self.at_s, now_s)

    def judge(self, variance: float) -> None:
        """`variance`: of a single attempt's time, relative to what was expected of it."""
        if self.expected_s < 1e-9 or self.observed_s < 1e-9:  # next to nothing is remembered
            self.ratio = self.candidate.speed = 1.0
            return
        seen = math.log(self.expected_s / self.observed_s)
        error2 = max(LEAST_ERROR2, variance * self.squares_s2 / (self.expected_s * self.expected_s))
        both2 = error2 + APART * APART
        # How likely is it that this replica differs, rather than that chance made it seem so?
        odds = (1 - EQUAL) / EQUAL * math.sqrt(error2 / both2)
        odds *= math.exp(min(50.0, seen * seen / 2 * (1 / error2 - 1 / both2)))
        believed = seen * odds / (1 + odds) * (1 - error2 / both2)
        self.ratio = min(1 / SLOWEST, max(SLOWEST, math.exp(believed)))
        self.candidate.speed = math.exp2(round(STEPS * math.log2(self.ratio)) / STEPS)


class Speeds:
    __slots__ = (
        "_load",
        "_load_load",
        "_load_pace",
        "_pace",
        "_paces",
        "_residual_s2",
        "_square_s2",
        "_turn",
        "_weight",
    )

    def __init__(self) -> None:
        self._paces: dict[str, _Pace] = {}
        self._turn: list[_Pace] = []
        self._residual_s2 = self._square_s2 = 0.0  # of all attempts: how far off the line they are, and its length
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
            pace.judge(self._variance())
        self._turn = []

    def observe(self, replica: str, mmu: int, seconds: float, in_flight: float, now_s: float) -> None:
        """An attempt of `mmu` took so long, with `in_flight` attempts at the replica meanwhile, itself included."""
        pace = self._paces.get(replica)
        if pace is None or mmu <= 0 or seconds <= 0:
            return
        self._fit(mmu, seconds * pace.ratio / mmu, in_flight)
        expected_s = mmu * self._expected(in_flight)
        kept = 1 - 1 / ALL_MEMORY
        residual_s = seconds * pace.ratio - expected_s
        self._residual_s2 = kept * self._residual_s2 + residual_s * residual_s
        self._square_s2 = kept * self._square_s2 + expected_s * expected_s
        variance = self._variance()
        pace.fade_until(now_s)
        pace.fade(1 - 1 / MEMORY)
        pace.expected_s += expected_s
        pace.observed_s += seconds
        pace.squares_s2 += expected_s * expected_s
        pace.judge(variance)
        if not self._turn:
            self._turn = list(self._paces.values())
        other = self._turn.pop()  # who gets no requests is forgotten too, in turn
        other.fade_until(now_s)
        other.judge(variance)

    def _variance(self) -> float:
        """Of a single attempt's time, relative to what is expected of it."""
        return self._residual_s2 / self._square_s2 if self._square_s2 else 1.0

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
