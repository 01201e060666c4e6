"""Bounded lanes of threads for blocking predictions: an interactive lane and one reserved for probes.

A lane belongs to the replica's loop, which alone decides what runs next; its threads only run. A job whose deadline
passes while it waits ends then and there with 504 and is never run; a job whose client has gone is dropped. A job
that has begun keeps its thread until the model returns: Python cannot interrupt it.
"""

from __future__ import annotations

import asyncio
import contextvars
import queue
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar

from steelyard.errors import DeadlineExceeded, TooManyRequests

_SMOOTHING = 0.2

T = TypeVar("T")


class Job:
    """`work` runs in a thread; `done(result, error)` is called on the loop once, unless the job was dropped."""

    __slots__ = ("_timer", "done", "dropped", "on_drop", "started", "submitted_s", "work")

    def __init__(self, work: Callable[[], Any], done: Callable[[Any, BaseException | None], None]) -> None:
        self.work = work
        self.done = done
        self.dropped = False
        self.on_drop: Callable[[Job], None] | None = None  # set by the lane while the job waits
        self.started = False
        self.submitted_s = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def drop(self) -> None:
        """Nobody wants the result any more. A job that waits will not run."""
        self.dropped = True
        self.cancel_timer()
        if self.on_drop is not None:
            self.on_drop(self)
            self.on_drop = None

    def arm(self, timer: asyncio.TimerHandle) -> None:
        self._timer = timer

    def cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class Lane:
    """`width` threads and at most `limit` waiting jobs. `waited_s` and `worked_s` are told each job's times."""

    def __init__(
        self,
        name: str,
        width: int,
        limit: int,
        waited_s: Callable[[float], None] = lambda _: None,
        worked_s: Callable[[float], None] = lambda _: None,
    ) -> None:
        self.width = 0
        self.running = 0
        self._name = name
        self._limit = limit
        self._waiting: deque[Job] = deque()
        self._waited_s = waited_s
        self._worked_s = worked_s
        self._mean_s = 0.1  # of a job, smoothed
        self._loop = asyncio.get_running_loop()
        self._work: queue.SimpleQueue[tuple[Job, contextvars.Context] | None] = queue.SimpleQueue()
        self._threads = 0
        self.resize(width, limit)

    def resize(self, width: int, limit: int) -> None:
        """Run so many at once from now on. Threads beyond that stay, idle, for the next time that they are needed."""
        self.width, self._limit = width, limit
        while self._threads < width:
            threading.Thread(target=self._serve, name=f"{self._name}-{self._threads}", daemon=True).start()
            self._threads += 1
        self._start_waiting()

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def submit(self, job: Job, deadline_s: float | None) -> None:
        """Run the job when a thread is free, if that is before `deadline_s` (monotonic). Raises TooManyRequests."""
        job.submitted_s = time.monotonic()
        if self.running < self.width:
            self._start(job)
        elif self.waiting >= self._limit:
            seconds = self._mean_s * (self._limit + 1) / self.width
            raise TooManyRequests("This replica has as many requests waiting as it may hold.", retry_after_s=seconds)
        else:
            self._waiting.append(job)
            job.on_drop = self._waiting.remove
        if deadline_s is not None:
            left_s = max(0.0, deadline_s - job.submitted_s)
            job.arm(self._loop.call_later(left_s, self._expire, job))

    async def call(self, work: Callable[[], T]) -> T:
        """The result of `work`, run in the lane. Raises what it raises."""
        future: asyncio.Future[T] = self._loop.create_future()

        def done(result: T, error: BaseException | None) -> None:
            if future.done():
                return
            if error is None:
                future.set_result(result)
            else:
                future.set_exception(error)

        self.submit(Job(work, done), None)
        return await future

    def stop(self) -> None:
        """Let idle threads end; busy ones end after their job."""
        for _ in range(self._threads):
            self._work.put(None)

    def _start(self, job: Job) -> None:
        job.started = True
        job.on_drop = None
        self.running += 1
        self._waited_s(time.monotonic() - job.submitted_s)
        self._work.put((job, contextvars.copy_context()))

    def _expire(self, job: Job) -> None:
        if job.dropped:
            return
        state = "while the model was at work" if job.started else "before the model could start"
        job.drop()
        job.done(None, DeadlineExceeded(f"The deadline passed {state}."))

    def _finished(self, job: Job, result: Any, error: BaseException | None, seconds: float) -> None:
        self.running -= 1
        self._mean_s += _SMOOTHING * (seconds - self._mean_s)
        self._worked_s(seconds)
        self._start_waiting()
        job.cancel_timer()
        if not job.dropped:
            job.done(result, error)

    def _start_waiting(self) -> None:
        while self._waiting and self.running < self.width:
            self._start(self._waiting.popleft())

    def _serve(self) -> None:
        while (item := self._work.get()) is not None:
            job, context = item
            result, error = None, None
            began_s = time.monotonic()
            try:
                if not job.dropped:  # the loop may have dropped it since
                    result = context.run(job.work)
            except BaseException as raised:  # whatever a model raises, SystemExit included, is this request's
                error = raised
            seconds = time.monotonic() - began_s
            try:
                self._loop.call_soon_threadsafe(self._finished, job, result, error, seconds)
            except RuntimeError:  # the loop is closed: the process is ending
                return
            del item, job, context, result, error  # a waiting thread must not keep a request's memory
