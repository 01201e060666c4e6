"""Keeps the wanted number of a model's workers running, and hands each request to the least busy one.

Owned by `workers.WorkerRuntime`. Each place in the pool has a keeper: a thread that starts a worker, waits for its
end, and starts the next after a pause. A request is sent to a worker once; only one that never reached it is sent to
another.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from types import TracebackType

from steelyard.contracts.worker import Fault, FromSlot, Message, Ready, Warmed
from steelyard.errors import (
    BadUpstream,
    DeadlineExceeded,
    InternalError,
    ModelHung,
    ModelLoadError,
    ModelProcessEnded,
    Unavailable,
)
from steelyard.observe.logs import get_logger
from steelyard.runtimes.base import Caller
from steelyard.runtimes.exporting import Exporting
from steelyard.runtimes.hung_watch import HungWatch
from steelyard.runtimes.worker_process import Launch, NotBegun, Slot, SlotEnded, WorkerProcess

MOST_DEATHS = 5  # in a row, without an answer in between
_FIRST_PAUSE_S, _MAX_PAUSE_S = 1.0, 30.0
_WAIT_S = 60.0  # for a worker to come back, where the caller has no deadline


class Exchange:
    """One request that a worker has got. Leaving the `with` block early ends it there; `full` says that no place was
    free any more when it began."""

    def __init__(self, pool: WorkerPool, process: WorkerProcess, slot: Slot, full: bool) -> None:
        self.running = process.busy
        self.full = full
        self.began_s = time.monotonic()
        self._pool = pool
        self._process = process
        self._slot = slot

    def receive(self) -> tuple[FromSlot, bytes]:
        """Raises BadUpstream when the worker dies, ModelHung when it was ended because it hung."""
        try:
            message, payload = self._slot.receive()
            if not self._process.proven:
                self._process.proven = not isinstance(message, Fault) and message != Warmed(False)
            return message, payload
        except SlotEnded:
            if self._process.hung:
                raise ModelHung("The model's process hung while it was at work on this request.") from None
            how = self._process.how_it_ended()
        if how is None:
            raise InternalError("The model's process dropped the request.")
        raise BadUpstream(f"The model's process ended {how} while it was at work on this request.")

    def part_received(self, place: int) -> None:
        """Of a shared message: this query has its answer, so that its caller may leave."""
        self._slot.callers.pop(place, None)

    def __enter__(self) -> Exchange:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._pool.end_exchange(self._process, self._slot, usable=kind is None)


class WorkerPool:
    """`on_change` is called, from any thread and without the pool's lock, when the number of serving workers has
    changed; `on_hung(reason)`, when one hung and was killed; `on_dead(reason)`, once, when they have died too often."""

    def __init__(
        self,
        launch: Launch,
        cores: int,
        unprivileged: bool,
        on_change: Callable[[], None],
        on_dead: Callable[[str], None],
        *,
        on_hung: Callable[[str], None],
        exports: bool = False,
    ) -> None:
        self.warm = False  # whether a new worker predicts the model's example before it serves
        self.launch = launch
        self.on_change = on_change
        self.on_hung = on_hung
        self.on_dead = on_dead
        self.unprivileged = unprivileged
        self.exports = exports  # whether the first worker exports the model
        self.dead = ""
        self.changed = threading.Condition()
        self.serving: list[WorkerProcess] = []
        self.log = get_logger()
        self._cores = cores
        self._keepers: list[Keeper] = []
        self._retired: list[Keeper] = []  # whose workers finish what they have
        self._deaths = 0
        self._closed = False
        self.exporting: Exporting | None = None  # that of the first worker
        self._watch = HungWatch(self._look)

    def start(self) -> Ready:
        """The first worker. Raises ModelLoadError."""
        self._watch.start()
        self.resize(1)
        with self.changed:
            keeper = self._keepers[0]
            self.changed.wait_for(lambda: self.serving or keeper.refusal or self._closed)
            self.exports = False
            if self.serving and (ready := self.serving[0].ready) is not None:
                self.exporting = self.serving[0].exporting
                return ready
        if keeper.ended:
            raise ModelProcessEnded(keeper.ended)
        raise ModelLoadError(keeper.refusal or "The model's process was stopped.")

    @property
    def detail(self) -> str:
        """What the first worker is doing while it starts."""
        return self._keepers[0].process.detail if self._keepers else ""

    @property
    def threads(self) -> int:
        """That native libraries may use in each worker."""
        return max(1, self._cores // max(1, len(self._keepers)))

    @property
    def wanted(self) -> int:
        return len(self._keepers)

    def memory_bytes(self) -> int:
        """Of the largest worker."""
        return max((process.memory_bytes() for process in self.serving), default=0)

    def pids(self) -> list[int]:
        """Of the workers that serve."""
        return [process.pid for process in self.serving if process.pid is not None]

    def resize(self, count: int) -> None:
        """So many workers from now on; the ones that are too many finish what they have."""
        with self.changed:
            if self._closed:
                return
            while len(self._keepers) < count:
                keeper = Keeper(self)
                self._keepers.append(keeper)
                keeper.thread.start()
            spare, self._keepers = self._keepers[count:], self._keepers[:count]
            for keeper in spare:
                self._retire(keeper)
            for process in self.serving:
                process.use_threads(self.threads)

    def begin(self, message: Message, payload: bytes, places: int, callers: Sequence[Caller] = ()) -> Exchange:
        """Send a request to a worker, or several, each with its caller. Raises Unavailable when there is no worker
        before the last of their deadlines, DeadlineExceeded when nobody waits any more before a worker has read it."""
        while True:
            process, slot, full = self._take(places, callers)
            self._watch.begun()
            try:
                slot.send(message, payload)
            except NotBegun:
                self.end_exchange(process, slot, usable=False)
                now_s = time.monotonic()
                if callers and not any(caller.waits(now_s) for caller in callers):
                    raise DeadlineExceeded("The deadline passed before the model could start.") from None
                continue
            return Exchange(self, process, slot, full)

    def end_exchange(self, process: WorkerProcess, slot: Slot, *, usable: bool) -> None:
        with self.changed:
            process.give_back(slot, usable)
            if process.retired and not process.busy:
                process.leave()
            reason = self._judge(process) if process.suspect and process.busy else ""
        if reason:
            self._replace(process, reason)

    def answered(self, wall_s: float | None) -> None:
        """A worker has answered a request: deaths before are forgotten. `wall_s`: what a call of the model took."""
        self._deaths = 0
        if wall_s is not None:
            self._watch.answered(wall_s)

    def close(self) -> None:
        with self.changed:
            self._closed = True
            self._watch.close()
            self.serving.clear()
            keepers, self._keepers, self._retired = [*self._keepers, *self._retired], [], []
            self.changed.notify_all()
        if self.exporting is not None:
            self.exporting.close()
        for keeper in keepers:
            keeper.stopping.set()
            keeper.process.leave()  # all at once
        for keeper in keepers:
            keeper.process.end()
        for keeper in keepers:
            if keeper.thread is not threading.current_thread():
                keeper.thread.join()

    def serve(self, process: WorkerProcess) -> None:
        """A keeper's worker is ready."""
        with self.changed:
            if process.retired or self._closed:
                return
            self.serving.append(process)
            process.use_threads(self.threads)
            self.changed.notify_all()
        self.on_change()

    def ended(self, keeper: Keeper) -> None:
        """A keeper's worker has ended as it was told to."""
        with self.changed:
            if keeper.process in self.serving:
                self.serving.remove(keeper.process)
            if keeper in self._retired:
                self._retired.remove(keeper)

    def lost(self, process: WorkerProcess, how: str) -> float | None:
        """A keeper's worker has ended though nobody stopped it. Returns the seconds until the next; None: never."""
        with self.changed:
            if process in self.serving:
                self.serving.remove(process)
            self._deaths += 1
            dead = self._deaths >= MOST_DEATHS and not self.dead
            if dead:
                self.dead = f"The model's process ended {how}, {self._deaths} times without an answer in between."
                self.changed.notify_all()
        self.log.error("worker_ended", how=how, deaths=self._deaths, pid=process.pid)
        if dead:
            self.on_dead(self.dead)
        self.on_change()
        return None if self.dead else self._pause_s()

    def give_up(self, keeper: Keeper) -> None:
        """A keeper's first worker could not be started beside the others."""
        with self.changed:
            if keeper in self._keepers:
                self._keepers.remove(keeper)
            self.changed.notify_all()
        self.log.warning("worker_refused", reason=keeper.refusal)
        self.on_change()

    def _look(self) -> bool:
        """All workers, those too that are to finish what they have. Returns whether anything runs."""
        with self.changed:
            processes = [keeper.process for keeper in (*self._keepers, *self._retired)]
            found = [(process, self._judge(process)) for process in processes if process.busy]
        for process, reason in found:
            if reason:
                self._replace(process, reason)
        return bool(found)

    def _judge(self, process: WorkerProcess) -> str:
        """Why it hangs, if it does: then it gets nothing any more. Under the lock."""
        if process.hung:
            return ""
        verdict = self._watch.verdict(process)
        process.suspect = bool(verdict.overdue)
        if not verdict.hung:
            return ""
        process.hung = True
        if process in self.serving:
            self.serving.remove(process)
        return verdict.reason

    def _replace(self, process: WorkerProcess, reason: str) -> None:
        """End one that hangs; its keeper starts the next."""
        self.log.error("worker_hung", **self.launch.labels, pid=process.pid, reason=reason)
        process.kill()
        self.on_hung(reason)

    def _take(self, places: int, callers: Sequence[Caller]) -> tuple[WorkerProcess, Slot, bool]:
        until_s = _last_deadline_s(callers)
        with self.changed:
            while True:
                if self.dead or self._closed:
                    raise Unavailable(self.dead or "This replica is stopping.", retry_after_s=1.0)
                while self.serving:
                    process = min(self.serving, key=_burden)
                    try:
                        slot = process.take(callers)
                    except NotBegun:
                        self.serving.remove(process)
                        continue
                    return process, slot, sum(process.busy for process in self.serving) >= places
                left_s = until_s - time.monotonic()
                if left_s <= 0:
                    message = "The model's process ended and is being started again; try again soon."
                    raise Unavailable(message, retry_after_s=self._pause_s())
                self.changed.wait(left_s)

    def _pause_s(self) -> float:
        return min(_MAX_PAUSE_S, _FIRST_PAUSE_S * 2.0 ** max(0, self._deaths - 1))

    def _retire(self, keeper: Keeper) -> None:
        keeper.stopping.set()
        keeper.process.retired = True
        self._retired.append(keeper)
        if keeper.process in self.serving:
            self.serving.remove(keeper.process)
        if not keeper.process.busy:
            keeper.process.leave()


def _burden(process: WorkerProcess) -> tuple[bool, int]:
    """The least busy first, those last that may hang."""
    return process.suspect, process.busy


def _last_deadline_s(callers: Sequence[Caller]) -> float:
    """Until when to wait for a worker: the last of the callers' deadlines."""
    deadlines_s = [caller.deadline_s for caller in callers]
    known_s = [deadline_s for deadline_s in deadlines_s if deadline_s is not None]
    return max(known_s) if known_s and len(known_s) == len(deadlines_s) else time.monotonic() + _WAIT_S


class Keeper:
    """One place in the pool. `refusal`: why its first worker could not start; `ended`: that its process had ended."""

    def __init__(self, pool: WorkerPool) -> None:
        self.refusal = ""
        self.ended = ""
        self.stopping = threading.Event()
        self.process = self._new(pool)
        self.thread = threading.Thread(target=self._keep, name="worker-keeper", daemon=True)
        self._pool = pool

    def _new(self, pool: WorkerPool) -> WorkerProcess:
        exporting = Exporting() if pool.exports else None
        return WorkerProcess(pool.launch, pool.threads, pool.unprivileged, exporting)

    def _keep(self) -> None:
        pool, served = self._pool, False
        while not self.stopping.is_set():
            process = self.process
            try:
                how = process.run(lambda: self._ready(self.process))
            except OSError as error:
                how = f"before it began ({error.strerror or error})"
            if self.stopping.is_set():
                pool.ended(self)
                return
            if process.failed is not None and process.failed.forbidden and pool.unprivileged:
                pool.log.warning("worker_needs_privileges", reason=process.failed.message)
                pool.unprivileged = False
                self.process = self._new(pool)
                continue
            served = served or process.ready is not None
            if not served:
                if process.failed is None:
                    self.ended = f"The model's process ended {how} while it loaded the model."
                self.refusal = self.ended if process.failed is None else process.failed.message
                pool.give_up(self)
                return
            if process.failed is not None:
                how = f"because it could not load the model again ({process.failed.message.rstrip('.')})"
            pause_s = pool.lost(process, how)
            if pause_s is None or self.stopping.wait(pause_s):
                pool.ended(self)
                return
            self.process = self._new(pool)

    def _ready(self, process: WorkerProcess) -> None:
        if self._pool.warm:
            process.warm_up()
        self._pool.serve(process)
