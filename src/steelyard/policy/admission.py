"""Who may wait: a request that no replica can take now is queued or refused, with the time after which to come back.

**Inputs** The queue's length and limit, bytes held and their limit, whether replicas exist or are on their way, and
the entity's observed completion rate (requests/s).
**Parameters** `waiting_limit` (requests, default 1,024 from settings), `buffered_limit_bytes` (default 512 MiB of
request bodies per router), `WINDOW_S` = 10 s over which completions are counted, `MAX_RETRY_AFTER_S` = 60 s.
**Trade-offs** A long queue hides short bursts and makes everyone wait in long ones; the deadline of each request
bounds that. Retry-After is the drain time, backlog ÷ completion rate, so that clients come back when it helps.
**Failure modes** With nothing completed in the window the rate is unknown, not zero: Retry-After is then
`UNKNOWN_RETRY_AFTER_S` = 1 s. Contended capacity is 429; no capacity at all is 503.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

WINDOW_S = 10
MAX_RETRY_AFTER_S = 60.0
UNKNOWN_RETRY_AFTER_S = 1.0


class Verdict(Enum):
    WAIT = "wait"
    CONTENDED = "contended"  # 429: there is capacity, but too many want it
    NO_CAPACITY = "no capacity"  # 503: nothing can serve


@dataclass(frozen=True, slots=True)
class Backlog:
    """What waits already, and for what."""

    waiting: int
    waiting_limit: int
    buffered_bytes: int
    buffered_limit_bytes: int
    replicas: int
    recovering: bool  # replicas are on their way


@dataclass(frozen=True, slots=True)
class Admission:
    verdict: Verdict
    reason: str
    retry_after_s: float = 0.0


def admit(backlog: Backlog, body_bytes: int, completions_per_s: float | None) -> Admission:
    """Whether a request of `body_bytes` may wait. `completions_per_s` is None when it is not known."""
    retry_after_s = drain_time_s(backlog.waiting, completions_per_s)
    if not backlog.replicas and not backlog.recovering:
        return Admission(Verdict.NO_CAPACITY, "No replica serves it now.", UNKNOWN_RETRY_AFTER_S)
    refusal = Verdict.CONTENDED if backlog.replicas else Verdict.NO_CAPACITY
    if backlog.waiting >= backlog.waiting_limit:
        return Admission(refusal, f"{backlog.waiting} requests are waiting already.", retry_after_s)
    if backlog.buffered_bytes + body_bytes > backlog.buffered_limit_bytes:
        return Admission(refusal, "Waiting requests hold all the memory meant for them.", retry_after_s)
    return Admission(Verdict.WAIT, "All replicas are busy." if backlog.replicas else "Replicas are on their way.")


def drain_time_s(waiting: int, completions_per_s: float | None) -> float:
    """How long `waiting` requests take to be served at the observed rate; bounded, never zero."""
    if not completions_per_s:
        return UNKNOWN_RETRY_AFTER_S
    return min(MAX_RETRY_AFTER_S, max(UNKNOWN_RETRY_AFTER_S, (waiting + 1) / completions_per_s))


class CompletionRate:
    """Completions per second over the last `WINDOW_S` seconds; None until something completed in them."""

    __slots__ = ("_counts", "_newest_s", "_since_s")

    def __init__(self) -> None:
        self._counts = [0] * WINDOW_S
        self._newest_s = -1  # whole second of the newest count
        self._since_s = 0.0  # first completion ever seen

    def completed(self, now_s: float) -> None:
        if self._newest_s < 0:
            self._since_s = now_s
        if (second := int(now_s)) != self._newest_s:
            self._roll(second)
        self._counts[second % WINDOW_S] += 1

    def per_s(self, now_s: float) -> float | None:
        if self._newest_s < 0:
            return None
        self._roll(int(now_s))
        total = sum(self._counts)
        if not total:
            return None
        return total / min(float(WINDOW_S), max(1.0, now_s - self._since_s))

    def _roll(self, second: int) -> None:
        """Clear the counts of the seconds that have passed since the newest one."""
        for passed in range(max(self._newest_s + 1, second - WINDOW_S + 1), second + 1):
            self._counts[passed % WINDOW_S] = 0
        self._newest_s = max(self._newest_s, second)
