"""Answers queries of a model that runs in its worker process: check, wait for a lane, ask the worker, pass it on.

Called by `app.py` on the loop. A small body's envelope is read at once, so that a client's mistake is answered without
a lane; everything else happens in the lane's thread and in the worker. Chat-like models get OpenAI bodies unwrapped.
Of a model that treats each row on its own, small requests that wait when a lane becomes free go to the worker together.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import structlog

from steelyard.errors import BadRequest, ModelFailed, SteelyardError
from steelyard.policy.joining import MOST_REQUESTS, Waiting
from steelyard.protocols.media import Media
from steelyard.protocols.mlflow import parse_envelope
from steelyard.protocols.query import Answer, Dialect, Query
from steelyard.protocols.strict_json import decode_object
from steelyard.replica.exchange import Exchange
from steelyard.replica.lanes import Job, Lane, Sharing, Tell
from steelyard.replica.measures import Measures, PredictMeasures, SharingMeasures, WorkerMeasures
from steelyard.replica.queries import query_of
from steelyard.runtimes.base import Caller, PredictRuntime
from steelyard.wire.sse import DONE, encode_event

INLINE_BYTES = 64 * 1024
_QUEUE_PER_THREAD = 16
_SHARING_DIALECTS = (Dialect.MLFLOW, Dialect.OPEN_INFERENCE)
_CHAT_TASKS = ("llm/v1/chat", "agent/v1/chat", "agent/v2/chat")
_EMBEDDINGS_TASK = "llm/v1/embeddings"


class Predictions:
    """The lanes of one predict runtime and the way through them."""

    def __init__(self, runtime: PredictRuntime, name: str, entity: str, measures: Measures) -> None:
        self._runtime = runtime
        self._name = name  # of the endpoint
        self._entity = entity
        width, times = runtime.max_concurrency, PredictMeasures(measures)
        self._interactive = Lane("predict", width, self._limit(width), times.queue_s.observe, times.predict_s.observe)
        if runtime.shares_calls:
            self._shared = SharingMeasures(measures)
            self._call_loop = asyncio.get_running_loop().call_soon_threadsafe
            self._interactive.sharing = Sharing(self._count, self._answer_together)
        self._probe = Lane("probe", 1, _QUEUE_PER_THREAD)
        self._workers = WorkerMeasures(measures)

    def occupied(self) -> tuple[int, int]:
        """Requests held, and of these the waiting ones."""
        waiting = self._interactive.waiting
        return self._interactive.running + waiting, waiting

    def resize(self, width: int) -> None:
        """The runtime can take so many at once now."""
        self._interactive.resize(width, self._limit(width))

    def worker_hung(self, _reason: str) -> None:
        """And was killed; the pool has logged why."""
        self._workers.hung.value += 1

    def refresh(self) -> None:
        """Nothing but the general gauges, which `app.py` keeps."""

    def stop(self) -> None:
        self._interactive.stop()
        self._probe.stop()

    def invocations(self, exchange: Exchange) -> None:
        """`POST /invocations`. Raises SteelyardError when the request is refused at once."""
        self._answer(exchange, query_of(exchange, Dialect.MLFLOW, self._name, self._entity))

    def chat(self, exchange: Exchange) -> None:
        """`POST /v1/chat/completions` of a model that takes messages. Raises SteelyardError."""
        if self._runtime.task not in _CHAT_TASKS:
            raise BadRequest("This endpoint serves no chat model; send the request to its /invocations path.")
        self._answer(exchange, query_of(exchange, Dialect.CHAT, self._name, self._entity))

    def completions(self, exchange: Exchange) -> None:
        raise BadRequest("This endpoint serves no language model; send the request to its /invocations path.")

    def embeddings(self, exchange: Exchange) -> None:
        """`POST /v1/embeddings` of an embedding model. Raises SteelyardError."""
        if self._runtime.task != _EMBEDDINGS_TASK:
            raise BadRequest("This endpoint serves no embedding model; send the request to its /invocations path.")
        self._answer(exchange, query_of(exchange, Dialect.EMBEDDINGS, self._name, self._entity))

    def infer(self, exchange: Exchange) -> None:
        """Open Inference."""
        self._answer(exchange, query_of(exchange, Dialect.OPEN_INFERENCE, self._name, self._entity))

    def _limit(self, width: int) -> int:
        """Of waiting requests: never fewer than routers may have been told to send."""
        return max(_QUEUE_PER_THREAD * width, MOST_REQUESTS if self._runtime.shares_calls else 0)

    def _answer(self, exchange: Exchange, query: Query) -> None:
        streams, shares = partial(_streams, query), False
        if len(query.body) <= INLINE_BYTES:
            known = streams()
            streams, shares = partial(_given, known), not known and query.dialect in _SHARING_DIALECTS
        flow = _Flow(exchange, self._runtime, query, streams, shares)
        lane = self._probe if exchange.priority == "probe" else self._interactive
        lane.submit(flow.job, exchange.deadline_s)

    def _count(self, jobs: list[Job]) -> int:
        """How many of these, from the first, go to the worker together."""
        now_s = time.monotonic()
        return self._runtime.together([_waiting(job, now_s) for job in jobs[:MOST_REQUESTS]])

    def _answer_together(self, jobs: list[Job], tell: Tell) -> None:
        """In a lane's thread."""
        queries, callers = zip(*(job.subject for job in jobs), strict=True)
        calls = self._runtime.answer_together(queries, callers, tell)
        self._call_loop(self._count_shared, calls, len(jobs))

    def _count_shared(self, calls: int, requests: int) -> None:
        self._shared.calls.value += calls
        self._shared.requests.value += requests


class _Flow:
    """One request in a lane: `_work` runs in the thread, everything else on the loop."""

    def __init__(
        self, exchange: Exchange, runtime: PredictRuntime, query: Query, streams: Callable[[], bool], shares: bool
    ) -> None:
        self._caller = Caller(exchange.deadline_s)
        self.job = Job(self._work, self._done, (query, self._caller) if shares else None)
        self._exchange = exchange
        self._runtime = runtime
        self._query = query
        self._streams = streams
        self._may_write = threading.Event()
        self._may_write.set()
        self._gone = False
        self._call_loop: Callable[..., Any] = asyncio.get_running_loop().call_soon_threadsafe
        exchange.on_end = self._ended
        exchange.reply.on_pause = self._may_write.clear
        exchange.reply.on_resume = self._may_write.set

    def _work(self) -> Answer | None:
        """None when the answer has been streamed."""
        with structlog.contextvars.bound_contextvars(request_id=self._query.request_id):
            if not self._streams():
                return self._runtime.answer(self._query, self._caller)
            self._stream()
            return None

    def _stream(self) -> None:
        pieces = self._runtime.stream(self._query, self._caller)
        try:
            for piece in pieces:
                self._may_write.wait()
                if self._gone:
                    return
                self._call_loop(self._write, encode_event(piece))
        finally:
            close = getattr(pieces, "close", None)
            if close is not None:
                close()

    def _write(self, data: bytes) -> None:
        if not self._exchange.ended:
            self._exchange.start_stream()
            self._exchange.reply.write(data)

    def _ended(self) -> None:
        self._gone = True
        self._caller.left_s = time.monotonic()
        self._may_write.set()
        self.job.drop()

    def _done(self, answer: Answer | None, error: BaseException | None) -> None:
        exchange = self._exchange
        if isinstance(error, SteelyardError):
            exchange.fail(error)
        elif isinstance(error, SystemExit | KeyboardInterrupt):
            exchange.fail(ModelFailed("The model tried to end its process."))
        elif error is not None:
            exchange.fail_unexpectedly(error)
        elif answer is not None:
            exchange.send(answer)
        else:
            exchange.start_stream()
            exchange.reply.write(DONE)
            exchange.finish_stream()


def _waiting(job: Job, now_s: float) -> Waiting:
    left_s = None if job.deadline_s is None else job.deadline_s - now_s
    return Waiting(len(job.subject[0].body), left_s)


def _streams(query: Query) -> bool:
    """Whether the client wants a stream; reads the envelope. Raises BadRequest."""
    if query.dialect is Dialect.MLFLOW and query.media is Media.JSON:
        return parse_envelope(query.body).stream
    if query.dialect is Dialect.CHAT:
        value = decode_object(query.body)
        if not isinstance(value.get("messages"), list):
            raise BadRequest("The field 'messages' must be an array.", param="messages")
        return value.get("stream") is True
    return False


def _given(value: bool) -> bool:
    return value
