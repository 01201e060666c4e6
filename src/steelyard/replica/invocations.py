"""Answers queries of a predict runtime: parse, wait for a lane, predict, render, all but the waiting in a thread.

Called by `app.py` on the loop. Small bodies are parsed at once, so that a client's mistake is answered without a
lane; large ones in the lane, so that the loop stays free. Chat-like models get OpenAI bodies unwrapped.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import structlog

from steelyard.errors import BadRequest, ModelFailed, SteelyardError
from steelyard.protocols.media import media_of, require_json
from steelyard.protocols.mlflow import Format, Invocation, parse_invocation, render_plain, render_predictions
from steelyard.protocols.strict_json import decode_object
from steelyard.replica.exchange import Exchange
from steelyard.replica.lanes import Job, Lane
from steelyard.replica.measures import Measures, PredictMeasures
from steelyard.runtimes.base import PredictRuntime
from steelyard.wire.sse import DONE, encode_event

INLINE_BYTES = 64 * 1024
_QUEUE_PER_THREAD = 16
_CHAT_TASKS = ("llm/v1/chat", "agent/v1/chat", "agent/v2/chat")

Parse = Callable[[], Invocation]


class Invocations:
    """The lanes of one predict runtime and the way through them."""

    def __init__(self, runtime: PredictRuntime, measures: Measures) -> None:
        self._runtime = runtime
        width, times = runtime.max_concurrency, PredictMeasures(measures)
        self._interactive = Lane(
            "predict", width, _QUEUE_PER_THREAD * width, times.queue_s.observe, times.predict_s.observe
        )
        self._probe = Lane("probe", 1, _QUEUE_PER_THREAD)

    def occupied(self) -> tuple[int, int]:
        """Requests held, and of these the waiting ones."""
        waiting = self._interactive.waiting
        return self._interactive.running + waiting, waiting

    def refresh(self) -> None:
        """Nothing but the general gauges, which `app.py` keeps."""

    def stop(self) -> None:
        self._interactive.stop()
        self._probe.stop()

    def invocations(self, exchange: Exchange) -> None:
        """`POST /invocations`. Raises SteelyardError when the request is refused at once."""
        request = exchange.request
        media = media_of(request.header(b"content-type"), request.body)
        self._answer(exchange, partial(parse_invocation, request.body, media))

    def chat(self, exchange: Exchange) -> None:
        """`POST /v1/chat/completions` of a model that takes messages. Raises SteelyardError."""
        if self._runtime.task not in _CHAT_TASKS:
            raise BadRequest("This endpoint serves no chat model; send the request to its /invocations path.")
        require_json(exchange.request.header(b"content-type"), exchange.request.body)
        self._answer(exchange, partial(_unwrapped_chat, exchange.request.body))

    def completions(self, exchange: Exchange) -> None:
        raise BadRequest("This endpoint serves no language model; send the request to its /invocations path.")

    def _answer(self, exchange: Exchange, parse: Parse) -> None:
        if len(exchange.request.body) <= INLINE_BYTES:
            invocation = parse()
            parse = partial(_given, invocation)
        flow = _Flow(exchange, self._runtime, parse)
        lane = self._probe if exchange.priority == "probe" else self._interactive
        lane.submit(flow.job, exchange.deadline_s)


class _Flow:
    """One request in a lane: `_work` runs in the thread, everything else on the loop."""

    def __init__(self, exchange: Exchange, runtime: PredictRuntime, parse: Parse) -> None:
        self.job = Job(self._work, self._done)
        self._exchange = exchange
        self._runtime = runtime
        self._parse = parse
        self._may_write = threading.Event()
        self._may_write.set()
        self._gone = False
        self._call_loop: Callable[..., Any] = asyncio.get_running_loop().call_soon_threadsafe
        exchange.on_end = self._ended
        exchange.reply.on_pause = self._may_write.clear
        exchange.reply.on_resume = self._may_write.set

    def _work(self) -> bytes | None:
        """The reply's body; None when it has been streamed."""
        with structlog.contextvars.bound_contextvars(request_id=self._exchange.id):
            invocation = self._parse()
            if invocation.stream:
                self._stream(invocation)
                return None
            output = self._runtime.predict(invocation)
            render = render_plain if invocation.format is Format.UNWRAPPED else render_predictions
            return render(output)

    def _stream(self, invocation: Invocation) -> None:
        pieces = self._runtime.predict_stream(invocation)
        try:
            for piece in pieces:
                data = encode_event(render_plain(piece))
                self._may_write.wait()
                if self._gone:
                    return
                self._call_loop(self._write, data)
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
        self._may_write.set()
        self.job.drop()

    def _done(self, body: bytes | None, error: BaseException | None) -> None:
        exchange = self._exchange
        if isinstance(error, SteelyardError):
            exchange.fail(error)
        elif isinstance(error, SystemExit | KeyboardInterrupt):
            exchange.fail(ModelFailed("The model tried to end its process."))
        elif error is not None:
            exchange.fail_unexpectedly(error)
        elif body is not None:
            exchange.send_json(body)
        else:
            exchange.start_stream()
            exchange.reply.write(DONE)
            exchange.finish_stream()


def _given(invocation: Invocation) -> Invocation:
    return invocation


def _unwrapped_chat(body: bytes) -> Invocation:
    value = decode_object(body)
    if not isinstance(value.get("messages"), list):
        raise BadRequest("The field 'messages' must be an array.", param="messages")
    value.pop("model", None)  # the endpoint's name, which the model knows nothing of
    return Invocation(Format.UNWRAPPED, value, None, None, value.get("stream") is True)
