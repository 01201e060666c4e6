"""Watches a pool's workers and has those replaced that hang, by `policy/hung_worker.py`.

Owned by `worker_pool.py`, whose lock it takes. A thread looks a few times a second while calls run and sleeps while
none does; a worker that is suspected already is judged at the end of each of its calls too, for under load that may be
the only moment at which nothing that is wanted runs in it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from steelyard.policy.hung_worker import GRACE_S, UsualCall, Verdict, judge
from steelyard.runtimes.worker_process import WorkerProcess

LOOK_S = 0.25


class HungWatch:
    """`look()` judges all workers, by `verdict`, and acts; it returns False when nothing runs."""

    def __init__(self, look: Callable[[], bool]) -> None:
        self._usual = UsualCall()
        self._look = look
        self._usual_lock = threading.Lock()
        self._running = threading.Event()  # something may run
        self._closed = threading.Event()
        self._watched_s = self._looked_s = time.monotonic()
        self._thread = threading.Thread(target=self._watch, name="hung-watch", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._closed.set()
        self._running.set()

    def begun(self) -> None:
        """A call has begun."""
        if not self._running.is_set():
            self._running.set()

    def answered(self, wall_s: float) -> None:
        """A call took its worker so long."""
        with self._usual_lock:
            self._usual.observe(wall_s)

    def verdict(self, process: WorkerProcess) -> Verdict:
        """Under the pool's lock."""
        now_s = time.monotonic()
        with self._usual_lock:
            usual_s = self._usual.usual_s if process.proven else None
        return judge(process.calls(now_s), usual_s, self._watched_s, now_s)

    def _watch(self) -> None:
        while not self._closed.is_set():
            self._running.wait()
            self._running.clear()
            self._watched_s = self._looked_s = time.monotonic()
            while not self._closed.wait(LOOK_S) and self._keep_watch():
                continue

    def _keep_watch(self) -> bool:
        now_s = time.monotonic()
        if now_s - self._looked_s > GRACE_S:
            self._watched_s = now_s  # this process was held up: answers may have come that nobody has read yet
        self._looked_s = now_s
        return self._look()
