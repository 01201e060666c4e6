"""How many requests one replica of a model should hold at once: decided every `DECIDE_EVERY_S` from measured windows.

    more at once is kept where throughput follows: Δ ln(throughput) ÷ Δ ln(concurrency) ≥ `WORTH`, latency within target

**Inputs** A window of what replicas measured (`Window`; None where nothing did), bounds, a latency target if one is
given, the number to begin with (from calibration, where there is one), and `now_s`.
**Parameters** A trial raises the number, to twice while onboarding, later by `STEP`, and lasts until windows with
`ENOUGH` completions have filled it (later: `WINDOWS` of them). It is kept or taken back. After one that was not worth
it the next comes in `BACKOFF_S`, then in twice that. Cuts come at once: p90 above the target, p50 at twice what is
remembered at the same concurrency, memory at `MEMORY`. Nothing is raised where less than `FILLED` of it is in use.
**Trade-offs** Quick down, cautious up: a trial that fails costs one window of longer waits. When all is learnt it is
quiet but for a trial now and then.
**Failure modes** Few completions: windows are pooled until they are enough. A load that does not fill a trial: it is
taken back and says nothing about the model. A model that became slower, whatever it holds: one cut, what was remembered
is forgotten, and trials bring back what is worth it.

Pure: the same calls give the same decisions. `state` is what survives a restart.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from steelyard.policy.concurrency_memory import ConcurrencyMemory, Point, Pool, Window

DECIDE_EVERY_S = 30.0
ENOUGH = 30  # completions
ENOUGH_TO_CUT = 10
WORTH = 0.3
ONBOARDING_STEP = 2.0
STEP = 1.25
WINDOWS = 3
USED = 0.5  # below, it is frozen
FILLED = 0.8
UNFILLED_WINDOWS = 10
BACKOFF_S, LONGEST_BACKOFF_S = 1200.0, 14_400.0
UNFILLED_S = 300.0
URGENT = 1.25  # times the latency target: cut at once; below that, after two windows
SLOWER = 2.0
NEAR = 0.95
CUT = 0.5  # the most that one decision takes
MEMORY, MEMORY_NEAR, MEMORY_CUT = 0.9, 0.8, 0.8


class Reason(StrEnum):
    """What made the number what it is."""

    NO_DATA = "nothing was measured: hold"
    FEW = "too few requests to tell: hold"
    UNUSED = "less than half of it is in use: hold"
    MEASURING = "measuring"
    TRIAL = "a trial: more at once"
    KEPT = "more at once brought more throughput"
    NO_GAIN = "more at once brought hardly more throughput"
    TOO_SLOW = "more at once missed the latency target"
    UNFILLED = "the load did not fill the trial"
    LATENCY = "p90 is above the latency target"
    NEAR_LATENCY = "p90 is close to the latency target: no trial"
    SLOWER = "requests take twice as long as before at this concurrency"
    MEMORY = "memory is nearly full"
    SETTLED = "learnt: the next trial comes later"
    NOT_FILLED = "the load does not fill it: no reason to try more"
    BOUND = "the bounds"


@dataclass(frozen=True, slots=True)
class Bounds:
    """Limits that a user or the runtime sets, in requests per replica."""

    least: int
    most: int
    latency_s: float | None = None  # that p90 should not exceed

    def __post_init__(self) -> None:
        if not 1 <= self.least <= self.most:
            raise ValueError(f"{self.least} to {self.most} requests per replica is no range: use 1 ≤ least ≤ most.")
        if self.latency_s is not None and not self.latency_s > 0:
            raise ValueError("A latency target must be above 0 s.")


@dataclass(frozen=True, slots=True)
class Decision:
    """How many requests a replica should hold, why, and the figures that this came from."""

    target: int
    reason: Reason
    numbers: dict[str, float]


class Vertical:
    """The vertical axis of one served entity. `target`: what it begins with."""

    def __init__(self, bounds: Bounds, state: Mapping[str, object] | None = None, *, target: int = 1) -> None:
        self.bounds = bounds
        self._target = self._bounded(target)
        self._memory = ConcurrencyMemory()
        self._pool = Pool()
        self._back: int | None = None  # while a trial runs: what to go back to
        self._before = Point(0.0, 0.0, 0.0, 0.0)  # measured there
        self._failed: int | None = None  # the least that was tried and not kept
        self._onboarding = True
        self._late = 0  # windows above the target in a row
        self._next_s = -math.inf  # when the next trial may come
        self._backoff_s = BACKOFF_S
        if state is not None:
            self._restore(state)

    @property
    def target(self) -> int:
        return self._target

    def decide(self, now_s: float, window: Window | None) -> Decision:
        if window is None or window.completions <= 0:
            return self._decision(Reason.NO_DATA, {})
        numbers = {"completions": float(window.completions), "concurrency": window.concurrency}
        numbers |= {"throughput_per_s": window.throughput_per_s, "p50_s": window.p50_s, "p90_s": window.p90_s}
        self._pool.add(window)
        point = self._pool.point()
        reason = self._cut(window, point, now_s)
        if reason is not None:
            return self._decision(reason, numbers)
        if window.concurrency < USED * (self._back or self._target):
            self._pool.clear()
            return self._decision(self._unfilled(now_s) if self._back is not None else Reason.UNUSED, numbers)
        if self._pool.completions < ENOUGH:
            return self._decision(Reason.FEW, numbers)
        self._memory.learn(point)
        if self._back is not None:
            return self._decision(self._judge(self._back, point, window, now_s, numbers), numbers)
        return self._decision(self._consider(point, window, now_s), numbers)

    def _cut(self, window: Window, point: Point, now_s: float) -> Reason | None:
        """What must not wait for more evidence than one window gives, or those before it where it gives too little."""
        before = self._target
        latency_s = self.bounds.latency_s
        if window.memory is not None and window.memory >= MEMORY:
            return self._lower(before * MEMORY_CUT, Reason.MEMORY, now_s)
        few = window.completions < ENOUGH_TO_CUT
        if few and self._pool.completions < ENOUGH_TO_CUT:
            return None
        held = point.concurrency if few else window.concurrency
        p50_s, p90_s = (point.p50_s, point.p90_s) if few else (window.p50_s, window.p90_s)
        self._late = self._late + 1 if latency_s is not None and p90_s > latency_s else 0
        if latency_s is not None and (p90_s > URGENT * latency_s or self._late >= 2):
            return self._lower(before * max(CUT, latency_s / p90_s), Reason.LATENCY, now_s)
        known = self._memory.at(held)
        if self._back is None and known is not None and p50_s >= SLOWER * known.p50_s:
            reason = self._lower(before * CUT, Reason.SLOWER, now_s)
            # Whatever it held, it is another model now: learn it anew, and soon.
            self._memory.clear()
            self._failed, self._next_s, self._backoff_s = None, now_s, BACKOFF_S
            return reason
        return None

    def _lower(self, wanted: float, reason: Reason, now_s: float) -> Reason | None:
        """None where it is at its least already: there is nothing to cut."""
        if self._back is not None:  # the trial was too much, not what went before
            self._end_trial(now_s, kept=False)
            return Reason.TOO_SLOW if reason is Reason.LATENCY else reason
        lower = self._bounded(math.floor(wanted))
        if lower >= self._target:
            return None
        self._failed, self._onboarding = self._target, False
        self._target = lower
        self._postpone(now_s)
        self._begin_measuring()
        return reason

    def _judge(self, back: int, point: Point, window: Window, now_s: float, numbers: dict[str, float]) -> Reason:
        if point.concurrency < self._before.concurrency + (self._target - back) / 2:
            return self._unfilled(now_s)
        if self._pool.windows < self._windows:
            return Reason.TRIAL
        gain = math.log(point.throughput_per_s / self._before.throughput_per_s)
        numbers["elasticity"] = gain / math.log(point.concurrency / self._before.concurrency)
        if self.bounds.latency_s is not None and point.p90_s > self.bounds.latency_s:
            self._end_trial(now_s, kept=False)
            return Reason.TOO_SLOW
        kept = numbers["elasticity"] >= WORTH
        self._end_trial(now_s, kept=kept)
        if kept and self._onboarding:  # what was measured is where the next trial begins
            self._begin_trial(point, window)
        return Reason.KEPT if kept else Reason.NO_GAIN

    def _unfilled(self, now_s: float) -> Reason:
        self._pool.misses += 1
        if self._pool.misses < UNFILLED_WINDOWS or self._back is None:
            return Reason.TRIAL
        self._target, self._back = self._back, None
        self._next_s = now_s + UNFILLED_S
        self._begin_measuring()
        return Reason.UNFILLED

    def _end_trial(self, now_s: float, *, kept: bool) -> None:
        assert self._back is not None
        if kept:
            self._next_s, self._backoff_s = now_s, BACKOFF_S
        else:
            self._failed, self._target = self._target, self._back
            if self._onboarding:
                self._onboarding, self._next_s = False, now_s  # a smaller step may still be worth it
            else:
                self._postpone(now_s)
        self._back = None
        self._begin_measuring()

    def _consider(self, point: Point, window: Window, now_s: float) -> Reason:
        if point.concurrency < FILLED * self._target:
            return Reason.NOT_FILLED
        if self._pool.windows < self._windows:
            return Reason.MEASURING
        if now_s < self._next_s or self._is_known_to_fail(now_s):
            return Reason.SETTLED
        return self._begin_trial(point, window)

    def _begin_trial(self, point: Point, window: Window) -> Reason:
        if window.memory is not None and window.memory >= MEMORY_NEAR:
            return Reason.MEMORY
        if self.bounds.latency_s is not None and point.p90_s > NEAR * self.bounds.latency_s:
            return Reason.NEAR_LATENCY
        more = self._more
        if more <= self._target:
            return Reason.BOUND
        self._back, self._before, self._target = self._target, point, more
        self._begin_measuring()
        return Reason.TRIAL

    @property
    def _more(self) -> int:
        step = ONBOARDING_STEP if self._onboarding else STEP
        return self._bounded(math.ceil(self._target * step - 1e-9))

    def _is_known_to_fail(self, now_s: float) -> bool:
        """Then it is tried again when some time has passed, and not before."""
        if self._failed is None or not self._target < self._failed <= self._more:
            return False
        self._failed = None
        self._postpone(now_s)
        return True

    @property
    def _windows(self) -> int:
        return 1 if self._onboarding else WINDOWS

    def _postpone(self, now_s: float) -> None:
        self._next_s = now_s + self._backoff_s
        self._backoff_s = min(LONGEST_BACKOFF_S, 2 * self._backoff_s)

    def _begin_measuring(self) -> None:
        self._pool.clear()
        self._pool.misses = 0
        self._late = 0

    def _bounded(self, target: int) -> int:
        return min(max(target, self.bounds.least), self.bounds.most)

    def _decision(self, reason: Reason, numbers: dict[str, float]) -> Decision:
        return Decision(self._target, reason, numbers)

    def state(self) -> dict[str, object]:
        """All that decisions depend on, as JSON can hold it."""
        return {
            "target": self._target,
            "memory": self._memory.state(),
            "pool": self._pool.state(),
            "back": self._back,
            "before": list(self._before),
            "failed": self._failed,
            "onboarding": self._onboarding,
            "late": self._late,
            "next_s": self._next_s if math.isfinite(self._next_s) else None,
            "backoff_s": self._backoff_s,
        }

    def _restore(self, state: Mapping[str, object]) -> None:
        """A trial that bounds set since then forbid is not gone on with."""
        target, back, failed = state["target"], state["back"], state["failed"]
        memory, pool, before = state["memory"], state["pool"], state["before"]
        next_s, backoff_s, late = state["next_s"], state["backoff_s"], state["late"]
        assert isinstance(target, int)
        assert isinstance(memory, list)
        assert isinstance(pool, Mapping)
        assert isinstance(before, list)
        assert isinstance(backoff_s, int | float)
        assert isinstance(late, int)
        self._target = self._bounded(target)
        self._memory.restore(memory)
        self._pool.restore(pool)
        self._before = Point(*(float(value) for value in before))
        self._back = self._bounded(back) if isinstance(back, int) else None
        if self._back is not None and self._back >= self._target:
            self._back = None
        self._failed = failed if isinstance(failed, int) else None
        self._onboarding, self._late, self._backoff_s = bool(state["onboarding"]), late, float(backoff_s)
        self._next_s = float(next_s) if isinstance(next_s, int | float) else -math.inf
