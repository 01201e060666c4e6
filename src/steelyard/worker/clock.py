"""How long a call took its thread: computing, and in all.

Waiting for a core counts as computing: what other processes take of the machine makes a model slow, and must not make
it look like one that waits for something. The kernel tells the two apart. One clock per slot's thread, made in it.
"""

from __future__ import annotations

import os
import time


class ThreadClock:
    """`read` twice and subtract."""

    def __init__(self) -> None:
        try:
            self._statistics = os.open("/proc/thread-self/schedstat", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:  # a kernel without them: then all waiting is alike
            self._statistics = -1

    def read(self) -> tuple[float, float]:
        """Seconds of processor or in the queue for a core, and seconds of wall time."""
        queued_s = 0.0
        if self._statistics >= 0:
            queued_s = int(os.pread(self._statistics, 64, 0).split()[1]) / 1e9
        return time.thread_time() + queued_s, time.perf_counter()

    def close(self) -> None:
        if self._statistics >= 0:
            os.close(self._statistics)
            self._statistics = -1
