"""When which served version is calibrated by itself: one at a time, while no user's request is on the machine.

**Inputs** About once a second what is seen: per replica on the machine how many users' requests came so far and how
many it holds, whether something starts, and which served versions have no cost yet. Then how each calibration ended.
**Parameters** `quiet_s` = 30 s without any request before one begins. One that is disturbed is ended at once and tried
again after `FIRST_PAUSE_S` = 60 s, twice as long each time, up to `LONGEST_PAUSE_S` = 1 h; one that failed by itself
likewise, but no more than `MOST_FAILURES` = 3 times.
**Trade-offs** Strict: whoever serves day and night without half a minute's rest is never loaded for the sake of better
estimates, which `steelyard calibrate` can do at an hour of the user's choice. The quiet before tells little about how
long it will last; what was measured before a disturbance is thrown away.
**Failure modes** A replica that does not say how it is counts as busy: missing is not zero. A request that comes
during a calibration waits for what one look takes, at most, before it has the machine for itself.

Control's `auto_calibration.py` looks and acts. No clock, no I/O.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final, Generic, TypeVar

QUIET_S: Final = 30.0
FIRST_PAUSE_S: Final = 60.0
LONGEST_PAUSE_S: Final = 3600.0
MOST_FAILURES: Final = 3
_MOST_DOUBLINGS = 10

K = TypeVar("K")  # what names a served version


class End(Enum):
    DONE = "done"
    DISTURBED = "disturbed"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Seen:
    """Of one replica: users' requests since its start, and those that it holds now."""

    requests_total: int
    in_flight: int


@dataclass(frozen=True, slots=True)
class _Past:
    disturbed: int = 0  # in a row
    failed: int = 0
    not_before_s: float = -math.inf


class CalibrationSchedule(Generic[K]):
    """Owned by one loop, which calls `look`, then `choose` or `is_disturbed`, and `ended` once per `choose`."""

    def __init__(self, quiet_s: float = QUIET_S) -> None:
        self._quiet_s = quiet_s
        self._totals: dict[str, int] = {}
        self._busy_s: float | None = None  # when something was seen last; None: nothing was looked at yet
        self._began_s: float | None = None
        self._past: dict[K, _Past] = {}

    def look(self, replicas: Mapping[str, Seen | None], starting: bool, now_s: float) -> None:
        """`replicas`: all that run, by name; None: it does not say. `starting`: another one is on its way."""
        busy = starting or self._busy_s is None
        for name, seen in replicas.items():
            if seen is None or seen.in_flight or seen.requests_total != self._totals.get(name, seen.requests_total):
                busy = True
            if seen is not None:
                self._totals[name] = seen.requests_total
        for name in self._totals.keys() - replicas.keys():
            del self._totals[name]
        if busy:
            self._busy_s = now_s

    @property
    def is_disturbed(self) -> bool:
        """Something came since the one under way began."""
        return self._began_s is not None and self._busy_s is not None and self._busy_s > self._began_s

    def choose(self, wanted: Sequence[K], now_s: float) -> K | None:
        """The one that begins now; the caller begins it, or says `ended`. None: not now, or one is under way."""
        self._forget(wanted)
        if self._began_s is not None or self._busy_s is None or now_s - self._busy_s < self._quiet_s:
            return None
        ready = [key for key in wanted if self._may_begin(key, now_s)]
        if not ready:
            return None
        self._began_s = now_s
        return min(ready, key=lambda key: self._of(key).not_before_s)  # of several, who waited longest

    def ended(self, key: K, end: End, now_s: float) -> float | None:
        """Returns after how many seconds it may be tried again; None: it is done, or given up."""
        self._began_s = None
        past = self._of(key)
        if end is End.DONE:
            self._past.pop(key, None)
            return None
        if end is End.FAILED:
            failed = past.failed + 1
            if failed >= MOST_FAILURES:
                self._past[key] = _Past(past.disturbed, failed, math.inf)
                return None
            pause_s = _pause_s(failed)
            self._past[key] = _Past(past.disturbed, failed, now_s + pause_s)
            return pause_s
        disturbed = past.disturbed + 1
        pause_s = _pause_s(disturbed)
        self._past[key] = _Past(disturbed, past.failed, now_s + pause_s)
        return pause_s

    def _may_begin(self, key: K, now_s: float) -> bool:
        return now_s >= self._of(key).not_before_s

    def _of(self, key: K) -> _Past:
        return self._past.get(key, _Past())

    def _forget(self, wanted: Collection[K]) -> None:
        """What is not wanted any more begins anew when it is."""
        for key in [key for key in self._past if key not in wanted]:
            del self._past[key]


def _pause_s(times: int) -> float:
    return min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2.0 ** min(times - 1, _MOST_DOUBLINGS))
