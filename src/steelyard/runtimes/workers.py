"""A model behind its worker processes: the runtime that runs any MLflow model, in the model's own environment.

The replica calls it from threads (`runtimes/base.py` says how). Its workers are kept by `worker_pool.py`, and how
many there are by `policy/worker_lanes.py`, which this tells each call. It never imports a model's code or unpickles
anything.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path

import msgspec

from steelyard.contracts.worker import (
    PRIMARY_VARIANT,
    Ask,
    AskTogether,
    Compare,
    Compared,
    Fault,
    FromSlot,
    Part,
    PartFault,
    Piece,
    Reply,
    Together,
    Warmed,
    WarmUp,
)
from steelyard.errors import (
    BadUpstream,
    DeadlineExceeded,
    InternalError,
    ModelHung,
    ModelLoadError,
    SteelyardError,
)
from steelyard.observe.logs import get_logger
from steelyard.observe.machine import available_memory_bytes, usable_cores
from steelyard.packages import Package
from steelyard.policy.joining import MOST_REQUESTS, Joining, Ran, Waiting
from steelyard.policy.worker_lanes import Call, Room, WorkerLanes
from steelyard.protocols.inputs import Inputs
from steelyard.protocols.query import Answer, Query
from steelyard.runtimes.base import Caller, Tell
from steelyard.runtimes.proof.measure import Cost
from steelyard.runtimes.proof.outcome import Outcome
from steelyard.runtimes.worker_pool import Exchange, WorkerPool
from steelyard.runtimes.worker_process import Launch
from steelyard.worker.arrays import pack_inputs
from steelyard.worker.faults import error_of

_MOST_ENDED = 2  # workers, by requests that are tried alone after one has ended


class WorkerRuntime:
    """One model version and its workers.

    `extra_path`: folders for the workers' PYTHONPATH. `environment`: the user's variables. `labels`: for log lines.
    `max_concurrency`: the most places that the policy may take; None leaves them to it. `exports`: the first worker
    also converts the model for the native runtimes.

    `name`, the variant that answers, may be changed at any time to another of `variants`. `on_resize(width)` is
    called, from any thread, when `max_concurrency` or `most_requests` has changed; `on_hung(reason)`, when a worker
    hung and was killed; `on_dead(reason)`, once, when the workers have died too often: the replica should then exit.
    """

    def __init__(
        self,
        package: Package,
        *,
        python: Path,
        extra_path: Sequence[Path] = (),
        variant: str = PRIMARY_VARIANT,
        max_concurrency: int | None = None,
        environment: Mapping[str, str] | None = None,
        labels: Mapping[str, str] | None = None,
        exports: bool = False,
    ) -> None:
        self.task = package.task
        self.streams = package.streamable
        self.name = variant
        self.variants: tuple[str, ...] = ()  # known after `load`
        self.on_resize: Callable[[int], None] = _ignore
        self.on_hung: Callable[[str], None] = _ignore
        self.on_dead: Callable[[str], None] = _ignore
        cores = usable_cores()
        self._lanes = WorkerLanes(cores, max_concurrency)
        self.max_concurrency = self._lanes.shape.places
        self._lanes_lock = threading.Lock()
        self._joining: Joining | None = None  # until it is known that the model treats each row on its own
        self._joining_lock = threading.Lock()
        self._most_requests = max_concurrency  # as the user bounds it
        self._told_use = self.max_concurrency
        launch = Launch(python, tuple(extra_path), dict(environment or {}), package.path, dict(labels or {}))
        changed, died = self._workers_changed, self._died
        self._pool = WorkerPool(launch, cores, os.geteuid() == 0, changed, died, on_hung=self._hung, exports=exports)
        self._loaded = False
        self._log = get_logger()

    @property
    def detail(self) -> str:
        """What `load` is doing now."""
        return self._pool.detail

    @property
    def worker_pids(self) -> list[int]:
        return self._pool.pids()

    def load(self) -> None:
        """Raises ModelLoadError with one sentence for the user; then no process is left."""
        try:
            ready = self._pool.start()
            if self.name not in ready.variants:
                names = ", ".join(ready.variants)
                raise ModelLoadError(f"The model cannot be run as '{self.name}', only as {names}.")
        except ModelLoadError:
            self.close()
            raise
        self.variants, self.streams = ready.variants, ready.streams
        self._loaded = True

    def warm_up(self) -> bool:
        with self._pool.begin(WarmUp(), b"", self.max_concurrency) as exchange:
            message, _ = exchange.receive()
        if not isinstance(message, Warmed):
            raise _error_of(message)
        self._pool.warm = True
        return message.example

    def share_calls(self, cost: Cost) -> None:
        """The way that answers treats each row on its own, and costs so much: requests that wait may go together."""
        self._joining = Joining(cost.call_us / 1e6, cost.row_us / 1e6)

    @property
    def shares_calls(self) -> bool:
        return self._joining is not None

    @property
    def most_requests(self) -> int:
        with self._joining_lock:
            shared = 1 if self._joining is None else self._joining.most_requests
        useful = self.max_concurrency * (1 << (shared.bit_length() - 1))  # not another number after every call
        most = max(self.max_concurrency, min(MOST_REQUESTS, useful))
        return most if self._most_requests is None else min(most, self._most_requests)

    def together(self, waiting: Sequence[Waiting]) -> int:
        """How many of these, from the first, are to be answered by one `answer_together`; at least 1."""
        with self._joining_lock:
            return 1 if self._joining is None else self._joining.together(waiting)

    def answer_together(self, queries: Sequence[Query], callers: Sequence[Caller], tell: Tell) -> int:
        """`tell(place, answer, error)` is called for each query as soon as it is answered, in any order. Returns how
        many calls of the model it took. Raises what `answer` raises of the worker: the queries that have not been told
        of are then lost."""
        left = dict(enumerate(queries))

        def told(place: int, answer: Answer | None, error: SteelyardError | None) -> None:
            del left[place]
            tell(place, answer, error)

        try:
            return self._ask_together(queries, callers, told)
        except ModelHung:
            return 1 + self._each_alone(dict(left), callers, told, len(left) + 1)
        except BadUpstream:
            if len(left) < 2:
                raise
            return 1 + self._each_alone(dict(left), callers, told, _MOST_ENDED)

    def _each_alone(self, queries: Mapping[int, Query], callers: Sequence[Caller], tell: Tell, most_ended: int) -> int:
        """A worker ended at work on these, or hung. If one of them is at fault, only that one is to fail: each that is
        still wanted has another try, alone, and no more than that. When `most_ended` more workers end by it,
        BadUpstream is raised for those that are left. Returns the calls."""
        ended = calls = 0
        for place, query in queries.items():
            if not callers[place].waits(time.monotonic()):
                tell(place, None, DeadlineExceeded("The deadline passed while the model was at work."))
                continue
            calls += 1
            try:
                tell(place, self._answer(query, callers[place]), None)
            except BadUpstream as error:
                ended += 1
                if ended == most_ended:
                    raise
                tell(place, None, error)
            except SteelyardError as error:
                tell(place, None, error)
        return calls

    def _ask_together(self, queries: Sequence[Query], callers: Sequence[Caller], tell: Tell) -> int:
        with self._joining_lock:
            most_rows = 1 if self._joining is None else self._joining.most_rows
        asks = tuple(self._ask(query, stream=False) for query in queries)
        bodies = [query.body for query in queries]
        message = AskTogether(asks, tuple(map(len, bodies)), most_rows)
        with self._pool.begin(message, b"".join(bodies), self.max_concurrency, callers) as exchange:
            reply, body = exchange.receive()
            while isinstance(reply, Part | PartFault):
                exchange.part_received(reply.place)
                if isinstance(reply, Part):
                    tell(reply.place, Answer(body, reply.content_type, reply.headers, reply.given_rows), None)
                else:
                    tell(reply.place, None, error_of(reply.fault))
                reply, body = exchange.receive()
        if not isinstance(reply, Together):
            raise _error_of(reply)
        self._joined(reply, exchange, queries)
        self._finished(exchange, reply, len(queries))
        return reply.calls

    def exported(self, out: Path) -> bool:
        """Wait until the model is converted, and copy what that left to `out`. False when it has to be done apart."""
        return self._pool.exporting is not None and self._pool.exporting.copy_to(out)

    def answer(self, query: Query, caller: Caller | None = None) -> Answer:
        """The caller's deadline bounds the wait for a worker that is being started again. Raises, besides what the
        model's input and code cause, BadUpstream if the worker dies and Unavailable if there is none in time."""
        caller = caller or Caller()
        try:
            return self._answer(query, caller)
        except ModelHung:  # by another's call, if this one is still wanted
            if not caller.waits(time.monotonic()):
                raise
        return self._answer(query, caller)

    def _answer(self, query: Query, caller: Caller) -> Answer:
        ask = self._ask(query, stream=False)
        with self._pool.begin(ask, query.body, self.max_concurrency, (caller,)) as exchange:
            message, body = exchange.receive()
        self._finished(exchange, message)
        if isinstance(message, Reply):
            self._alone(message, exchange, query)
            return Answer(body, message.content_type, message.headers, message.given_rows)
        raise _error_of(message)

    def stream(self, query: Query, caller: Caller | None = None) -> Iterator[bytes]:
        """Raises what `answer` raises."""
        caller = caller or Caller()
        pieces = self._stream(query, caller)
        try:
            first = next(pieces, None)
        except ModelHung:
            if not caller.waits(time.monotonic()):
                raise
            pieces = self._stream(query, caller)
            first = next(pieces, None)
        with closing(pieces):
            if first is not None:
                yield first
                yield from pieces

    def _stream(self, query: Query, caller: Caller) -> Generator[bytes]:
        ask = self._ask(query, stream=True)
        with self._pool.begin(ask, query.body, self.max_concurrency, (caller,)) as exchange:
            message, piece = exchange.receive()
            while isinstance(message, Piece):
                yield piece
                message, piece = exchange.receive()
        self._finished(exchange, message)
        if not isinstance(message, Reply):
            raise _error_of(message)

    def outcome(self, inputs: Inputs, variant: str) -> Outcome:
        """What a variant returns for the rows, or the class name of what it raised: for a proof."""
        with self._pool.begin(Compare(variant), pack_inputs(inputs), self.max_concurrency) as exchange:
            message, body = exchange.receive()
        if not isinstance(message, Compared):
            raise _error_of(message)
        plain = msgspec.msgpack.decode(body) if message.error is None else None
        return Outcome(plain, message.float_bits or 64, message.error)

    def close(self) -> None:
        self._pool.close()

    def _ask(self, query: Query, *, stream: bool) -> Ask:
        media, dialect = query.media.value, query.dialect.value
        return Ask(
            dialect,
            media,
            query.request_id,
            query.model,
            query.version,
            query.json_bytes,
            self.name,
            stream,
            self._joining is not None,
        )

    def _alone(self, message: Reply, exchange: Exchange, query: Query) -> None:
        if self._joining is not None:
            size = len(query.body)
            ran = Ran(1, 1, message.rows, size, message.cpu_s, message.wall_s, exchange.running)
            with self._joining_lock:
                self._joining.observe(ran)
            self._tell_use()

    def _joined(self, message: Together, exchange: Exchange, queries: Sequence[Query]) -> None:
        if self._joining is None:
            return
        size, count = sum(len(query.body) for query in queries), len(queries)
        ran = Ran(count, message.calls, message.rows, size, message.cpu_s, message.wall_s, exchange.running)
        with self._joining_lock:
            self._joining.observe(ran)
            news = bool(message.apart and not self._joining.apart)
            self._joining.refuse(message.apart)
        self._tell_use()
        if news:
            self._log.info("requests_not_joined", reason=message.apart)

    def _finished(self, exchange: Exchange, message: FromSlot, requests: int = 1) -> None:
        """Tell the policies, and do what they decide."""
        self._pool.answered(_call_s(message))
        if not isinstance(message, Reply | Fault | Together):
            return
        call = Call(exchange.began_s, message.cpu_s, message.wall_s, exchange.running, exchange.full, requests)
        with self._lanes_lock:
            if len(self._pool.serving) < self._lanes.shape.processes:
                return  # it is not yet what the policy decided
            decision = self._lanes.observe(call, time.monotonic(), self._room)
        if decision is not None:
            self._log.info("workers_resized", reason=decision.reason)
            self._pool.resize(decision.shape.processes)
            self._tell_width()

    def _room(self) -> Room:
        return Room(self._pool.memory_bytes(), available_memory_bytes())

    def _workers_changed(self) -> None:
        """The pool has more workers than before, or fewer."""
        with self._lanes_lock:
            self._lanes.settle(max(1, self._pool.wanted), time.monotonic())
        self._tell_width()

    def _tell_width(self) -> None:
        shape = self._lanes.shape
        width = shape.threads * max(1, min(len(self._pool.serving), shape.processes))
        if width != self.max_concurrency and self._loaded:
            self.max_concurrency = width
            self._told_use = self.most_requests
            self.on_resize(width)

    def _tell_use(self) -> None:
        """Where shared calls make many more requests of use than was told, or many fewer."""
        if not (self._told_use <= self.most_requests // 2 or self._told_use >= 4 * self.most_requests):
            return
        self._told_use = self.most_requests
        self.on_resize(self.max_concurrency)

    def _hung(self, reason: str) -> None:
        self.on_hung(reason)

    def _died(self, reason: str) -> None:
        self._log.error("workers_dead", reason=reason)
        self.on_dead(reason)


def _ignore(_: object) -> None:
    """Until the replica sets its own."""


def _call_s(message: FromSlot) -> float | None:
    """What one call of the model took; None of what may not have called it."""
    if isinstance(message, Together):
        return message.wall_s / max(1, message.calls)
    return message.wall_s if isinstance(message, Reply) and message.wall_s > 0 else None


def _error_of(message: FromSlot) -> SteelyardError:
    if isinstance(message, Fault):
        return error_of(message)
    return InternalError("The model's process answered something else than it was asked.")
