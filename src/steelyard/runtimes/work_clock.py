"""A clock that counts what a model's process and this one compute, for how much a proof may ask of the reference.

Made by `proven.py`. On a machine that is busy with something else a call takes long by the wall's clock, and a budget
in its seconds would cut the proof short there; the proof of a model shall not depend on its neighbours.
"""

from __future__ import annotations

import time

_LEAST_SHARE = 0.125  # of the wall's time: what a model that waits for something is charged


class WorkClock:
    """Nanoseconds, monotonic: what both processes have computed, but at least an eighth of the wall's time, and never
    more than all of it. Without `pid`, or when that process is gone, the wall's."""

    def __init__(self, pid: int | None) -> None:
        self._pid = pid
        self._wall_ns, self._cpu_ns = time.perf_counter_ns(), self._computed_ns()
        self._total_ns = 0

    def __call__(self) -> int:
        wall_ns, cpu_ns = time.perf_counter_ns(), self._computed_ns()
        passed_ns = wall_ns - self._wall_ns
        known = cpu_ns is not None and self._cpu_ns is not None
        computed_ns = cpu_ns - self._cpu_ns if known else passed_ns  # type: ignore[operator]  # both are known
        self._total_ns += min(passed_ns, max(computed_ns, int(passed_ns * _LEAST_SHARE)))
        self._wall_ns, self._cpu_ns = wall_ns, cpu_ns
        return self._total_ns

    def _computed_ns(self) -> int | None:
        if self._pid is None:
            return None
        try:
            return time.process_time_ns() + time.clock_gettime_ns((~self._pid << 3) | 2)  # Linux's clock of a process
        except OSError:
            return None
