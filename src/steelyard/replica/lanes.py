"""Bounded lanes of threads for blocking predictions: an interactive lane and one reserved for probes.

A lane belongs to the replica's loop, which alone decides what runs next; its threads only run. A job whose deadline
passes while it waits ends then and there with 504 and is never run; a job whose client has gone is dropped. A job
that has begun keeps its thread until the model returns: Python cannot interrupt it. Jobs that wait when a thread
becomes free may share its turn, where the lane's owner says so; none ever waits for company.
"""

from __future__ import annotations

import asyncio
import contextvars
import queue
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Final, TypeVar

from steelyard.errors import DeadlineExceeded, TooManyRequests

_SMOOTHING: Final = 0.2

T = TypeVar("T")


class Job:
    """`work` runs in a thread; `done(result, error)` is called on the loop once, unless the job was dropped. One with
    `shares` may be run with others by the lane's `Sharing` instead; `subject` is for that alone."""

    __slots__ = (
        "_timer",
        "deadline_s",
        "done",
        "dropped",
        "on_drop",
        "shares",
        "started",
        "subject",
        "submitted_s",
        "work",
    )

    def __init__(
        self, work: Callable[[], Any], done: Callable[[Any, BaseException | None], None], subject: Any = None
    ) -> None:
        self.work = work
        self.done = done
        self.subject = subject
        self.shares = subject is not None
        self.deadline_s: float | None = None  # monotonic
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


Tell = Callable[[int, Any, "BaseException | None"], None]


class Sharing:
    """How jobs share a thread's turn. `count(jobs)`, on the loop, says how many of them, from the first, do so.
    `work(jobs, tell)`, in a thread, runs them and calls `tell(place, result, error)` for each when it is done; those
    that it has not told of when it ends share what it raised."""

    def __init__(self, count: Callable[[list[Job]], int], work: Callable[[list[Job], Tell], None]) -> None:
        self.count = count
        self.work = work


class Lane:
    """`width` threads and at most `limit` waiting jobs. `waited_s` and `worked_s` are told each job's times;
    `running` is how many jobs have begun and not ended, which may be more than there are threads where some share."""

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
        self.sharing: Sharing | None = None  # set by the owner, where jobs may share a turn
        self._taken = 0  # threads
        self._name = name
        self._limit = limit
        self._waiting: deque[Job] = deque()
        self._waited_s = waited_s
        self._worked_s = worked_s
        self._mean_s = 0.1  # of a job, smoothed
        self._loop = asyncio.get_running_loop()
        self._work: queue.SimpleQueue[tuple[list[Job], contextvars.Context] | None] = queue.SimpleQueue()
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
        job.deadline_s = deadline_s
        if self._taken < self.width:
            self._start([job])
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

    def _start(self, jobs: list[Job]) -> None:
        now_s = time.monotonic()
        for job in jobs:
            job.started = True
            job.on_drop = None
            self._waited_s(now_s - job.submitted_s)
        self.running += len(jobs)
        self._taken += 1
        self._work.put((jobs, contextvars.copy_context()))

    def _expire(self, job: Job) -> None:
        if job.dropped:
            return
        state = "while the model was at work" if job.started else "before the model could start"
        job.drop()
        job.done(None, DeadlineExceeded(f"The deadline passed {state}."))

    def _finished(self, job: Job, result: Any, error: BaseException | None, seconds: float) -> None:
        """A job that had its thread for itself."""
        self._freed(1, seconds)
        self._ended(job, result, error, seconds)

    def _freed(self, jobs: int, seconds: float) -> None:
        self._taken -= 1
        self._mean_s += _SMOOTHING * (seconds / jobs - self._mean_s)
        if jobs == 1:
            self.running -= 1
        self._start_waiting()

    def _ended(self, job: Job, result: Any, error: BaseException | None, seconds: float) -> None:
        self._worked_s(seconds)
        job.cancel_timer()
        if not job.dropped:
            job.done(result, error)

    def _ended_sharing(self, job: Job, result: Any, error: BaseException | None, seconds: float) -> None:
        self.running -= 1
        self._ended(job, result, error, seconds)

    def _start_waiting(self) -> None:
        while self._waiting and self._taken < self.width:
            job = self._waiting.popleft()
            self._start([job, *self._company(job)])

    def _company(self, first: Job) -> list[Job]:
        """The waiting jobs that share the turn of `first`: they wait no longer."""
        if self.sharing is None or not first.shares or not self._waiting:
            return []
        alike = [job for job in self._waiting if job.shares]
        company = alike[: self.sharing.count([first, *alike]) - 1] if alike else []
        for job in company:
            self._waiting.remove(job)
        return company

    def _serve(self) -> None:
        while (item := self._work.get()) is not None:
            jobs, context = item
            try:
                if len(jobs) == 1:
                    self._run_alone(jobs[0], context)
                else:
                    self._run_sharing(jobs, context)
            except RuntimeError:  # the loop is closed: the process is ending
                return
            del item, jobs, context  # a waiting thread must not keep a request's memory

    def _run_alone(self, job: Job, context: contextvars.Context) -> None:
        result, error = None, None
        began_s = time.monotonic()
        try:
            if not job.dropped:  # the loop may have dropped it since
                result = context.run(job.work)
        except BaseException as raised:  # whatever a model raises, SystemExit included, is this request's
            error = raised
        self._loop.call_soon_threadsafe(self._finished, job, result, error, time.monotonic() - began_s)

    def _run_sharing(self, jobs: list[Job], context: contextvars.Context) -> None:
        assert self.sharing is not None
        began_s = time.monotonic()
        wanted = [job for job in jobs if not job.dropped]
        left = dict(enumerate(wanted))
        call_loop = self._loop.call_soon_threadsafe

        def tell(place: int, result: Any, error: BaseException | None) -> None:
            job = left.pop(place)
            call_loop(self._ended_sharing, job, result, error, time.monotonic() - began_s)

        raised: BaseException = AssertionError("no answer and no error")
        try:
            if wanted:
                context.run(self.sharing.work, wanted, tell)
        except BaseException as error:
            raised = error
        seconds = time.monotonic() - began_s
        for job in [*left.values(), *(job for job in jobs if job not in wanted)]:
            call_loop(self._ended_sharing, job, None, raised, seconds)
        call_loop(self._freed, len(jobs), seconds)
