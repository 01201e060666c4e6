"""How many worker processes a model gets, and how many calls each takes at once: found by observing, by no flag.

**Inputs** Each finished call: computing and wall seconds of the thread that ran it, how many ran beside it in its
process, whether all places were taken when it began; the cores and the memory there are.
**Parameters** `WINDOW` = 20 calls (at least two per place) make one observation. A second process needs a model that
uses less than `SPARE` = 65 % of the cores though calls wait, and that would use half as much again if its threads did
not hold each other up. A growth that does not answer `PAYS` = 1.15 times as much is taken back and held off for
`HOLD_S` = 300 s, twice as long each time.
**Trade-offs** Processes cost memory and a load; threads cost nothing but contend for Python's lock. Where two causes
look alike (one lock shared, or waiting half of the time) a window is spent with one call at a time, which shows the
model alone: nothing is lost where the lock is the cause, and some throughput for a moment where it is not.
**Failure modes** Without calls that wait nothing ever changes. A busy machine looks like a lock; the growth does not
pay then and is taken back. Memory that is short keeps the processes that there are.

`runtimes/workers.py` tells it every call and applies what it decides.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

WINDOW = 20
MOST_PLACES = 256
SPARE = 0.65
PAYS = 1.15
HOLD_S = 300.0
_MAX_HOLD_S = 3600.0
_FULL = 0.5  # the share of calls that must have found all places taken
_ALONE = 5  # calls that ran alone, for their share to be known
_CPU_BOUND = 0.8  # of the wall time, alone
_HELD_UP = 1.5
_TOO_SHORT_S = 0.0003  # calls of less cost more to hand over than to run
_MEMORY_SHARE = 0.8  # of what is free


@dataclass(frozen=True, slots=True)
class Call:
    """`cpu_s`: for how long of `wall_s` it computed, or would have with a core free. `running`: calls in its process
    when it began, itself included. `began_s` is monotonic. `requests`: that shared the call."""

    began_s: float
    cpu_s: float
    wall_s: float
    running: int
    full: bool
    requests: int = 1


@dataclass(frozen=True, slots=True)
class Room:
    """What memory there is to grow into; `process_bytes` is what one worker holds."""

    process_bytes: int
    available_bytes: int


@dataclass(frozen=True, slots=True)
class Shape:
    processes: int
    threads: int  # calls at once in each

    @property
    def places(self) -> int:
        return self.processes * self.threads


@dataclass(frozen=True, slots=True)
class Decision:
    shape: Shape
    reason: str


@dataclass(frozen=True, slots=True)
class _Window:
    """What a window of calls says; calls that were shared count as often as there were requests."""

    calls_per_s: float
    cores_used: float
    call_cpu_s: float  # the mean
    cpu_share: float  # of the wall time
    alone_share: float | None  # the same of the calls that ran alone
    full: bool


class WorkerLanes:
    """The present shape and what is known of the model. `most_places` bounds processes × threads."""

    def __init__(self, cores: int, most_places: int | None = None) -> None:
        self._cores = cores
        self._most = min(most_places or MOST_PLACES, MOST_PLACES)
        self.shape = Shape(1, max(1, min(cores, self._most)))
        self._calls: list[Call] = []
        self._since_s = -math.inf  # calls that began before are of another shape
        self._alone_share: float | None = None
        self._trial: tuple[Shape, float] | None = None  # the shape to return to, and its calls per second
        self._grown: tuple[Shape, float] | None = None  # the shape before, and its calls per second
        self._suspected = 0  # windows in a row that looked like a shared lock
        self._held_until_s = -math.inf
        self._hold_s = HOLD_S

    def observe(self, call: Call, now_s: float, look: Callable[[], Room]) -> Decision | None:
        """A finished call; returns a new shape when it is time for one. `look` is called when processes might help."""
        if call.began_s < self._since_s:
            return None
        self._calls.append(call)
        if len(self._calls) < max(WINDOW, 2 * self.shape.places):
            return None
        window = _measure(self._calls, now_s)
        self._calls.clear()
        if window.alone_share is not None:
            self._alone_share = window.alone_share
        decision = self._decide(window, now_s, look)
        if decision is not None:
            self._put(decision.shape, now_s)
        return decision

    def settle(self, processes: int, now_s: float) -> None:
        """So many processes there are now: all that were decided, or fewer, where more cannot be."""
        if processes < self.shape.processes:
            self._hold(now_s)
        self._put(replace(self.shape, processes=processes), now_s)

    def _put(self, shape: Shape, now_s: float) -> None:
        self.shape = shape
        self._since_s = now_s
        self._calls.clear()

    def _hold(self, now_s: float) -> None:
        self._held_until_s = now_s + self._hold_s
        self._hold_s = min(2 * self._hold_s, _MAX_HOLD_S)

    def _decide(self, window: _Window, now_s: float, look: Callable[[], Room]) -> Decision | None:
        if self._trial is not None:
            return self._after_trial(window, now_s, look)
        if not window.full:
            self._grown, self._suspected = None, 0
            return None
        if self._grown is not None and (changed := self._judge_growth(window, now_s, look)) is not None:
            return changed
        short = window.call_cpu_s < _TOO_SHORT_S and window.cpu_share > _FULL
        if short or now_s < self._held_until_s or window.cores_used >= SPARE * self._cores:
            return None
        return self._grow(window, look)

    def _grow(self, window: _Window, look: Callable[[], Room]) -> Decision | None:
        """Calls wait though there are cores to spare: why?"""
        one_process = window.cores_used / self.shape.processes
        busy = one_process >= SPARE
        if self._alone_share is None and busy and self.shape.threads > 1:
            self._trial = (self.shape, window.calls_per_s)
            shape = replace(self.shape, threads=1)
            return Decision(shape, "one call at a time for a moment, to see what the model does alone")
        share = window.cpu_share if self._alone_share is None else self._alone_share
        if self._held_up(window, share):
            self._suspected += 1
            return self._more_processes(window, share, look) if self._suspected > 1 else None
        self._suspected = 0
        return self._more_threads(window, share) if share < _CPU_BOUND else None

    def _after_trial(self, window: _Window, now_s: float, look: Callable[[], Room]) -> Decision:
        assert self._trial is not None
        (shape, calls_per_s), self._trial = self._trial, None
        share, alone_per_s = window.cpu_share, window.calls_per_s
        together = replace(window, calls_per_s=calls_per_s, cores_used=calls_per_s * window.call_cpu_s)
        self.shape = shape
        found: Decision | None = None
        if shape.threads * alone_per_s >= _HELD_UP * calls_per_s:
            found = self._more_processes(together, share, look)
        elif share < _CPU_BOUND:
            found = self._more_threads(together, share)
        return found or Decision(shape, "as before: nothing else would answer more")

    def _more_processes(self, window: _Window, share: float, look: Callable[[], Room]) -> Decision | None:
        """As many as there are cores for, with as many threads as keep each busy."""
        one_process = min(1.0, window.cores_used / self.shape.processes)
        room = look()
        fit = self.shape.processes + int(_MEMORY_SHARE * room.available_bytes / max(1, room.process_bytes))
        processes = min(self._cores, math.ceil(self._cores / max(one_process, SPARE)), fit, self._most)
        if processes <= self.shape.processes:
            return None
        threads = 1 if share >= _CPU_BOUND else math.ceil(1 / max(share, 1 / MOST_PLACES))
        shape = Shape(processes, max(1, min(threads, self._most // processes)))
        self._grown, self._suspected = (self.shape, window.calls_per_s), 0
        reason = f"calls hold each other up in one process ({share:.0%} of a call is computing): {_told(shape)}"
        return Decision(shape, reason)

    def _more_threads(self, window: _Window, share: float) -> Decision | None:
        """Twice as many, up to those that would keep all cores busy."""
        wanted = math.ceil(self._cores / self.shape.processes / max(share, 1 / MOST_PLACES))
        threads = min(2 * self.shape.threads, wanted, self._most // self.shape.processes)
        if threads <= self.shape.threads:
            return None
        self._grown = (self.shape, window.calls_per_s)
        shape = replace(self.shape, threads=threads)
        return Decision(shape, f"a call computes {share:.0%} of its time and waits else: {_told(shape)}")

    def _held_up(self, window: _Window, share: float) -> bool:
        """Whether a process is busy for about a core, though its calls would compute more if nothing stopped them."""
        one_process = window.cores_used / self.shape.processes
        return one_process >= SPARE and self.shape.threads * share >= _HELD_UP * one_process

    def _judge_growth(self, window: _Window, now_s: float, look: Callable[[], Room]) -> Decision | None:
        assert self._grown is not None
        (shape, calls_per_s), self._grown = self._grown, None
        if window.calls_per_s >= PAYS * calls_per_s:
            self._hold_s = HOLD_S
            return None
        share = self._alone_share
        if shape.processes == self.shape.processes and share is not None and self._held_up(window, share):
            more = self._more_processes(window, share, look)  # threads did not help, since they share a lock
            if more is not None:
                self._grown = (shape, calls_per_s)
                return more
        self._hold(now_s)
        return Decision(shape, f"more at once answered no more: back to {_told(shape)}")


def _measure(calls: list[Call], now_s: float) -> _Window:
    elapsed_s = max(1e-6, now_s - min(call.began_s for call in calls))
    cpu_s, wall_s = sum(call.cpu_s for call in calls), sum(call.wall_s for call in calls)
    alone = [call for call in calls if call.running == 1]
    alone_share = None
    if len(alone) >= _ALONE:
        alone_share = _share(sum(call.cpu_s for call in alone), sum(call.wall_s for call in alone))
    full = sum(call.full for call in calls) >= _FULL * len(calls)
    count = sum(call.requests for call in calls)
    return _Window(count / elapsed_s, cpu_s / elapsed_s, cpu_s / count, _share(cpu_s, wall_s), alone_share, full)


def _share(cpu_s: float, wall_s: float) -> float:
    return min(1.0, cpu_s / max(wall_s, 1e-9))


def _told(shape: Shape) -> str:
    processes = "1 process" if shape.processes == 1 else f"{shape.processes} processes"
    return f"{processes} with {shape.threads} thread{'s' * (shape.threads > 1)} each"
