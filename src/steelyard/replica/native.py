"""Answers queries with a native runtime: decode by the signature, predict what waits together, render.

Called by `app.py` on the loop, where all of it takes microseconds. What would hold the loop (a large body, many rows)
goes whole into a lane of threads, since native code gives the interpreter's lock free while it works.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Final

from steelyard.contracts.usage import encode_rows
from steelyard.errors import BadRequest, SteelyardError
from steelyard.observe.machine import usable_cores
from steelyard.protocols.inputs import Inputs, Outputs
from steelyard.protocols.mlflow import render_predictions
from steelyard.protocols.query import Answer, Dialect, Query
from steelyard.replica.batcher import Batcher
from steelyard.replica.exchange import Exchange
from steelyard.replica.lanes import Job, Lane
from steelyard.replica.measures import Measures, PredictMeasures
from steelyard.replica.queries import media_of_request, query_of
from steelyard.runtimes.native_model import NativeModel, Render

INLINE_BYTES: Final = 64 * 1024  # of a body that is decoded on the loop
INLINE_US: Final = 1_000.0  # of a call of the model there
MAX_CONCURRENCY: Final = 64  # requests that routers may have here at once: enough that batches form
_QUEUE: Final = 1024


class Native:
    """The way through one native model."""

    def __init__(self, model: NativeModel, name: str, entity: str, measures: Measures) -> None:
        self._model = model
        self._name = name  # of the endpoint
        self._entity = entity
        self._times = PredictMeasures(measures)
        self._batcher = Batcher(model.runtime.predict, model.cost, INLINE_US, joins=model.batchable)
        self._lane = Lane("native", usable_cores(), _QUEUE, self._times.queue_s.observe)

    def occupied(self) -> tuple[int, int]:
        """Requests held in the lane, and of these the waiting ones: on the loop nothing is ever held."""
        waiting = self._lane.waiting
        return self._lane.running + waiting, waiting

    def refresh(self) -> None:
        """Nothing but the general gauges, which `app.py` keeps."""

    def stop(self) -> None:
        self._lane.stop()

    def close(self) -> None:
        """Give back native memory."""
        self._model.runtime.close()

    def invocations(self, exchange: Exchange) -> None:
        """`POST /invocations`. Raises SteelyardError when the request is refused at once."""
        request = exchange.request
        if len(request.body) > INLINE_BYTES:
            self._take(exchange, Dialect.MLFLOW)
        else:
            self._predict(
                exchange, self._model.decode_rows(request.body, media_of_request(request)), render_predictions
            )

    def infer(self, exchange: Exchange) -> None:
        """Open Inference. Raises SteelyardError."""
        self._take(exchange, Dialect.OPEN_INFERENCE)

    def chat(self, exchange: Exchange) -> None:
        raise BadRequest("This endpoint serves no chat model; send the request to its /invocations path.")

    def completions(self, exchange: Exchange) -> None:
        raise BadRequest("This endpoint serves no language model; send the request to its /invocations path.")

    def embeddings(self, exchange: Exchange) -> None:
        raise BadRequest("This endpoint serves no embedding model; send the request to its /invocations path.")

    def _take(self, exchange: Exchange, dialect: Dialect) -> None:
        query = query_of(exchange, dialect, self._name, self._entity)
        model = self._model
        if len(query.body) > INLINE_BYTES:
            self._defer(exchange, partial(self._answer, exchange, query))
            return
        self._predict(exchange, *model.decode(query))

    def _answer(self, exchange: Exchange, query: Query) -> bytes | Answer:
        """All of it, in a thread."""
        inputs, render = self._model.decode(query)
        exchange.usage = encode_rows(inputs.rows)
        return render(self._model.runtime.predict(inputs))

    def _predict(self, exchange: Exchange, inputs: Inputs, render: Render) -> None:
        model = self._model
        exchange.usage = encode_rows(inputs.rows)
        if model.cost.of(inputs.rows) > INLINE_US:
            self._defer(exchange, lambda: render(model.runtime.predict(inputs)))
        else:
            self._batcher.add(inputs, partial(self._finish, exchange, render))

    def _finish(self, exchange: Exchange, render: Render, outputs: Outputs | None, error: Exception | None) -> None:
        if exchange.ended:
            return
        rendered: bytes | Answer | None = None
        if outputs is not None:
            try:
                rendered = render(outputs)
            except Exception as unexpected:
                error = unexpected
        self._settle(exchange, rendered, error)

    def _defer(self, exchange: Exchange, work: Callable[[], bytes | Answer]) -> None:
        job = Job(work, partial(self._settle, exchange))
        exchange.on_end = job.drop
        self._lane.submit(job, exchange.deadline_s)

    def _settle(self, exchange: Exchange, rendered: bytes | Answer | None, error: BaseException | None) -> None:
        if isinstance(error, SteelyardError):
            exchange.fail(error)
        elif error is not None or rendered is None:
            exchange.fail_unexpectedly(error or AssertionError("no answer and no error"))
        else:
            self._times.predict_s.observe(time.monotonic() - exchange.arrived_s)
            if isinstance(rendered, bytes):
                exchange.send_json(rendered)
            else:
                exchange.send(rendered)
