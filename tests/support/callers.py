"""Clients that always have one more query, let in as a replica's lane would: at most the runtime's width at once."""

import threading
import time
from collections import deque
from typing import Any

from steelyard.protocols.query import Query
from steelyard.runtimes.workers import WorkerRuntime


class Callers:
    """`count` threads; `finished_s` are the ends of all answers, `running` those under way, `most` their peak."""

    def __init__(self, runtime: WorkerRuntime, query: Query, count: int) -> None:
        self.finished_s: deque[float] = deque()
        self.errors: list[Exception] = []
        self.running = self.most = 0
        self._runtime = runtime
        self._query = query
        self._width = runtime.max_concurrency
        self._gate = threading.Condition()
        self._stopping = False
        self._threads = [threading.Thread(target=self._call) for _ in range(count)]
        runtime.on_resize = self._resize

    def __enter__(self) -> "Callers":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: Any) -> None:
        with self._gate:
            self._stopping = True
            self._gate.notify_all()
        for thread in self._threads:
            thread.join()

    def rate(self, seconds: float) -> float:
        """Answers per second in the last so many."""
        since_s = time.monotonic() - seconds
        return sum(at_s >= since_s for at_s in list(self.finished_s)) / seconds

    def _resize(self, width: int) -> None:
        with self._gate:
            self._width = width
            self._gate.notify_all()

    def _call(self) -> None:
        while True:
            with self._gate:
                self._gate.wait_for(lambda: self._stopping or self.running < self._width)
                if self._stopping:
                    return
                self.running += 1
                self.most = max(self.most, self.running)
            try:
                self._runtime.answer(self._query)
                self.finished_s.append(time.monotonic())
            except Exception as error:
                self.errors.append(error)
            with self._gate:
                self.running -= 1
                self._gate.notify()
