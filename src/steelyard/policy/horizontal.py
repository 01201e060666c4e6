"""How many replicas a served entity should have: decided every `DECIDE_EVERY_S` by the demand of the last minutes.

    replicas = what is offered ÷ target per replica, up by the last 20 s, down by the highest of the last 5 min or more

**Inputs** A sample of the routers' sums each second (`demand_window.py`), the target per replica (the vertical axis's
answer, in the demand's unit), how long a replica takes to become ready, and `now_s`.
**Parameters** What is offered is the 90th percentile of the last `UP_WINDOW_S`: room for the load's own noise, however
large that is, and none for two bad seconds. Where all are full and a queue forms, two seconds in a row whose arrivals
are above what runs by `SURPRISE` times their noise are believed at once (`urgent`), and their rise is followed ahead. A
queue adds what drains it within readiness and window, at most `DRAIN_SHARE`. A rise that has gone on for as long as a
start takes is followed so far ahead, by at most `LEAD_SHARE`. So an order is bound to the load; where arrivals are not
known, to `GROWTH` times what there is or `FIRST_STEP` more. Down: at most a half every `DOWN_EVERY_S`, and only to a
number that would have held the peak of the window down, `DOWN_WINDOW_S`, with `MARGIN` to spare.
**Trade-offs** An idle replica for five minutes costs less than a cold start. An up within `REGRET_S` of a down says
that the down was a mistake: the window down doubles, up to `LONGEST_HOLD_S`, so that load which comes in bursts finds
what the last one needed; it is forgiven after `FORGIVEN_AFTER_S`.
**Failure modes** No or old figures: hold, and say so. Some routers silent: those that report stand for all. Replicas
that never become ready: the order stays what the load asks for, it never grows because nothing happens. Arrivals that
are not known: the queue is demand, up to what runs, and nothing more is ordered while an order is under way.

Pure: control and the simulator call `observe` and `decide`; the same calls give the same decisions, so that a log of
them can be replayed. `state` is what survives a restart.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from steelyard.policy.demand_window import DemandWindow, Load, Sample, Surge
from steelyard.policy.scaling_budget import Budget

DECIDE_EVERY_S = 5.0
UP_WINDOW_S = 20.0
DOWN_WINDOW_S = 300.0
STALE_AFTER_S = 5.0
GAP_S = 30.0  # without figures: the window down begins anew
BUSY_SHARE = 0.9
GROWTH = 3  # where arrivals are not known
SURPRISE = 2.0  # times the noise of arrivals
SURGE_AT_ONCE = 1.5  # times what was ordered
FIRST_STEP = 4
DRAIN_SHARE = 0.2
LEAD_SHARE = 0.5
MARGIN = 0.05
DOWN_EVERY_S = 60.0
REGRET_S = 600.0
LONGEST_HOLD_S = 2400.0
FORGIVEN_AFTER_S = 3600.0
UNKNOWN_READINESS_S = 30.0
STANDING = 0.95  # of a queue is left after a window: it does not drain
BALANCED = 1.05


class Reason(StrEnum):
    """What made the number what it is."""

    STEADY = "the load fits"
    LOAD = "the load of the last 20 s needs more"
    RISE = "the load will have risen before a replica is ready"
    QUEUE = "the queue would not drain in time"
    STANDING_QUEUE = "a queue stands although nothing is starting"
    FROM_ZERO = "requests wait and there is no replica"
    STARTING = "more is needed, but what was ordered is still starting"
    FEWER_HOLD = "fewer replicas would have held the peak of the window down"
    TO_ZERO = "no request came within the idle timeout"
    SETTLING = "fewer might do, but the last change is too recent"
    UNSEEN = "fewer might do, but the last 5 min were not all seen"
    NO_DATA = "no router has reported: hold"
    STALE = "the last report is too old: hold"
    LIMIT = "the limits"
    BUDGET = "the budget is spent"


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds that a user sets. `min_replicas` 0: to zero after `idle_timeout_s` without a request."""

    min_replicas: int
    max_replicas: int
    idle_timeout_s: float | None = None
    replica_hours_per_day: float | None = None  # None: no budget

    def __post_init__(self) -> None:
        if not 0 <= self.min_replicas <= self.max_replicas or self.max_replicas < 1:
            raise ValueError(f"{self.min_replicas} to {self.max_replicas} replicas is no range: use 0 ≤ min ≤ max ≥ 1.")
        if self.min_replicas == 0 and not (self.idle_timeout_s is not None and self.idle_timeout_s > 0):
            raise ValueError("A minimum of 0 replicas needs an idle timeout above 0 s.")
        if self.replica_hours_per_day is not None and not self.replica_hours_per_day > 0:
            raise ValueError("A budget must be above 0 replica-hours per day.")


@dataclass(frozen=True, slots=True)
class Decision:
    """How many replicas there should be (ready and starting), why, and the figures that this came from."""

    replicas: int
    reason: Reason
    numbers: dict[str, float]


@dataclass(frozen=True, slots=True)
class _Need:
    """Units in flight that replicas should be able to hold, and which rule asked for them."""

    units: float
    reason: Reason


class Horizontal:
    """The horizontal axis of one served entity. `replicas`: how many there are when nothing is known of before."""

    def __init__(self, limits: Limits, state: Mapping[str, object] | None = None, *, replicas: int = 0) -> None:
        self.limits = limits
        self._window = DemandWindow()
        self._budget = Budget(limits.replica_hours_per_day)
        self._needs: list[tuple[float, float]] = []  # of the decisions of the last `_hold_s`
        self._wanted = replicas
        self._seen_since_s: float | None = None  # without a gap
        self._busy_s: float | None = None  # when there was last something to do
        self._up_s = self._down_s = self._regret_s = -math.inf
        self._going_down = False
        self._hold_s = DOWN_WINDOW_S
        if state is not None:
            self._restore(state)

    @property
    def replicas(self) -> int:
        return self._wanted

    def observe(self, sample: Sample) -> None:
        if self._window.observe(sample) and (sample.demand or sample.arrived_per_s or self._busy_s is None):
            self._busy_s = sample.at_s

    def urgent(self, now_s: float, target_per_replica: float) -> bool:
        """Whether a surge needs more than was ordered: then the next decision is due now, not at its turn."""
        latest = self._window.latest
        if latest is None or now_s - latest.at_s > STALE_AFTER_S or self._wanted >= self.limits.max_replicas:
            return False
        surge = self._surge(latest)
        return surge is not None and surge.units > SURGE_AT_ONCE * self._wanted * target_per_replica

    def decide(self, now_s: float, target_per_replica: float, readiness_s: float | None = None) -> Decision:
        """Raises ValueError for a target that is no positive number."""
        if not (0 < target_per_replica < math.inf):
            raise ValueError(f"A target of {target_per_replica} per replica is not above 0.")
        readiness_s = UNKNOWN_READINESS_S if readiness_s is None else max(0.0, readiness_s)
        ceiling = self.limits.max_replicas
        if self._budget.spend(self._wanted, now_s):
            ceiling = min(ceiling, max(1, self.limits.min_replicas, self._budget.sustained))
        latest = self._window.latest
        numbers = {"target": target_per_replica, "readiness_s": readiness_s, "before": float(self._wanted)}
        if latest is None or now_s - latest.at_s > STALE_AFTER_S:
            reason = Reason.NO_DATA if latest is None else Reason.STALE
            return self._settle(self._wanted, reason, numbers, now_s, ceiling=ceiling)
        numbers |= {"offered": latest.offered, "running": latest.running, "queued": latest.queued}
        numbers |= {"ready": float(latest.ready), "starting": float(latest.starting)}
        need = self._need(latest, now_s, readiness_s)
        peak = self._note(need.units, now_s)
        numbers |= {"need": need.units, "peak": peak}
        floor = max(self.limits.min_replicas, 0 if self._is_idle(now_s) else 1)
        desired = max(floor, _replicas(need.units, target_per_replica))
        if desired > self._wanted:
            count, reason = self._up(desired, need.reason, latest, now_s, readiness_s)
        else:
            fewer = max(floor, _replicas(peak, target_per_replica * (1 - MARGIN)))
            count, reason = self._down(fewer, latest, now_s, readiness_s)
        return self._settle(count, reason, numbers, now_s, ceiling=ceiling)

    def _need(self, latest: Load, now_s: float, readiness_s: float) -> _Need:
        recent = self._window.last(UP_WINDOW_S, now_s)
        mean = sum(load.offered for load in recent) / len(recent)
        # What waits for the first replica comes in one burst; only its mean says what will follow.
        busy = self._window.offered_quantile(BUSY_SHARE, UP_WINDOW_S, now_s) if latest.ready else mean
        ahead = 0.0
        surge = self._surge(latest)
        if surge is not None:
            busy = max(busy, surge.units)
            ahead = min(LEAD_SHARE * busy, surge.rise_per_s * min(readiness_s, UP_WINDOW_S))
        need = _Need(busy, Reason.LOAD if self._wanted else Reason.FROM_ZERO)
        span_s = min(DOWN_WINDOW_S, max(60.0, readiness_s))
        ahead = max(ahead, min(LEAD_SHARE * busy, self._window.steady_rise_per_s(span_s, now_s) * readiness_s))
        if ahead > 0:
            need = _Need(busy + ahead, Reason.RISE)
        service_s = self._window.service_s
        if latest.queued > 0 and service_s is not None:
            drain = min(DRAIN_SHARE * mean, latest.queued * service_s / (readiness_s + UP_WINDOW_S))
            if mean + drain > need.units:
                need = _Need(mean + drain, Reason.QUEUE)
        standing = self._standing(recent)
        return _Need(standing, Reason.STANDING_QUEUE) if standing > need.units else need

    def _surge(self, latest: Load) -> Surge | None:
        """None where no queue forms, or what arrives is what usually does."""
        surge = self._window.surge() if latest.queued > 0 else None
        return surge if surge is not None and surge.units > latest.running + SURPRISE * surge.noise else None

    def _standing(self, recent: list[Load]) -> float:
        """Clients who wait for an answer before they ask again never arrive faster than they are served.

        Their queue stands: it neither grows, as an overload's does, nor drains. Then it is demand, and what runs may
        double. Zero where no queue stands.
        """
        first, last = recent[0], recent[-1]
        if last.at_s - first.at_s < UP_WINDOW_S / 2 or any(load.starting or not load.queued for load in recent):
            return 0.0
        if last.queued < STANDING * first.queued:
            return 0.0
        if not last.running / BALANCED <= last.offered <= last.running * BALANCED:  # an overload, or one worked off
            return 0.0
        return last.running + min(last.running, *(load.queued for load in recent))

    def _note(self, need: float, now_s: float) -> float:
        """The highest need of the window down, this one included."""
        if not self._needs or now_s - self._needs[-1][0] > GAP_S or self._seen_since_s is None:
            self._seen_since_s = now_s
        self._needs = [(at_s, units) for at_s, units in self._needs if at_s > now_s - self._hold_s]
        self._needs.append((now_s, need))
        return max(units for _, units in self._needs)

    def _is_idle(self, now_s: float) -> bool:
        timeout_s = self.limits.idle_timeout_s
        if self.limits.min_replicas > 0 or timeout_s is None or self._busy_s is None or self._seen_since_s is None:
            return False
        return now_s - max(self._busy_s, self._seen_since_s) >= timeout_s or (
            self._wanted == 0 and now_s - self._busy_s > STALE_AFTER_S
        )

    def _up(self, desired: int, reason: Reason, latest: Load, now_s: float, readiness_s: float) -> tuple[int, Reason]:
        late_s = 2 * readiness_s + UP_WINDOW_S  # an order may get lost
        if self._wanted and latest.starting and not self._window.flow_known and now_s - self._up_s < late_s:
            return self._wanted, Reason.STARTING  # what is queued here would be ordered twice
        if self._window.flow_known:
            return desired, reason  # bound to the load by itself: what it adds to that are shares of it
        return min(desired, max(GROWTH * self._wanted, self._wanted + FIRST_STEP)), reason

    def _down(self, fewer: int, latest: Load, now_s: float, readiness_s: float) -> tuple[int, Reason]:
        if self._wanted and self._is_idle(now_s):
            return 0, Reason.TO_ZERO
        if fewer >= self._wanted:
            return self._wanted, Reason.STEADY
        assert self._seen_since_s is not None
        if now_s - self._seen_since_s < DOWN_WINDOW_S:
            return self._wanted, Reason.UNSEEN
        wait_s = max(self._hold_s, 2 * readiness_s if latest.starting else 0.0)
        if now_s - self._up_s < wait_s or now_s - self._down_s < DOWN_EVERY_S:
            return self._wanted, Reason.SETTLING
        return max(fewer, math.ceil(self._wanted / 2)), Reason.FEWER_HOLD

    def _settle(self, count: int, reason: Reason, numbers: dict[str, float], now_s: float, *, ceiling: int) -> Decision:
        """Within the bounds, and remembered as the last action."""
        bounded = min(max(count, self.limits.min_replicas), ceiling)
        if bounded != count:
            reason = Reason.BUDGET if bounded == ceiling < self.limits.max_replicas else Reason.LIMIT
        if bounded > self._wanted:
            if self._going_down and now_s - self._down_s < REGRET_S:
                self._regret_s = now_s
                self._hold_s = min(LONGEST_HOLD_S, 2 * self._hold_s)
            self._up_s, self._going_down = now_s, False
        elif bounded < self._wanted:
            if now_s - self._regret_s > FORGIVEN_AFTER_S:
                self._hold_s = DOWN_WINDOW_S
            self._down_s, self._going_down = now_s, True
        self._wanted = bounded
        return Decision(bounded, reason, numbers)

    def state(self) -> dict[str, object]:
        """All that decisions depend on, as JSON can hold it."""
        return {
            "window": self._window.state(),
            "budget": self._budget.state(),
            "needs": [list(pair) for pair in self._needs],
            "wanted": self._wanted,
            "going_down": self._going_down,
            "hold_s": self._hold_s,
            **{name: _finite(getattr(self, f"_{name}")) for name in _TIMES},
        }

    def _restore(self, state: Mapping[str, object]) -> None:
        window, budget, needs = state["window"], state["budget"], state["needs"]
        wanted, hold_s = state["wanted"], state["hold_s"]
        assert isinstance(window, Mapping)
        assert isinstance(budget, Mapping)
        assert isinstance(needs, list)
        assert isinstance(wanted, int)
        assert isinstance(hold_s, int | float)
        self._window.restore(window)
        self._budget.restore(budget)
        self._needs = [(float(at_s), float(units)) for at_s, units in needs]
        self._wanted, self._hold_s, self._going_down = wanted, float(hold_s), bool(state["going_down"])
        for name, unknown in _TIMES.items():
            value = state[name]
            setattr(self, f"_{name}", float(value) if isinstance(value, int | float) else unknown)


_TIMES: dict[str, float | None] = {
    "seen_since_s": None,
    "busy_s": None,
    "up_s": -math.inf,
    "down_s": -math.inf,
    "regret_s": -math.inf,
}


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _replicas(units: float, target: float) -> int:
    return math.ceil(units / target - 1e-9)
