"""The replica's paths and who answers them; `App.handle` is the HTTP server's handler, runs on its loop, never waits.

While the model loads, queries get 503 and the platform's own paths answer; while the replica drains, new queries get
503 with `x-steelyard-draining: 1`, so that a router takes them elsewhere.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, Literal, Protocol

import msgspec

from steelyard.contracts.replica import DRAINING_HEADER, ReplicaSpec, ReplicaStatus
from steelyard.errors import BadRequest, MethodNotAllowed, NotFound, SteelyardError, Unavailable
from steelyard.observe import metrics
from steelyard.observe.logs import get_logger
from steelyard.replica.exchange import Exchange
from steelyard.replica.load import LoadMeter
from steelyard.replica.measures import Measures
from steelyard.wire.server import Headers, Reply, Request

State = Literal["starting", "ready", "draining"]

_JSON: Final = [(b"content-type", b"application/json")]
_LOADING_RETRY_S: Final = 5.0


class Handlers(Protocol):
    """What a loaded model answers. Each method raises SteelyardError when the request is refused at once."""

    def invocations(self, exchange: Exchange) -> None: ...

    def chat(self, exchange: Exchange) -> None: ...

    def completions(self, exchange: Exchange) -> None: ...

    def embeddings(self, exchange: Exchange) -> None: ...

    def infer(self, exchange: Exchange) -> None:
        """Open Inference."""

    def refresh(self) -> None:
        """Bring gauges up to date before a scrape."""


class App:
    """State and paths of one replica. `main` moves the state and sets `handlers` when the model is loaded."""

    def __init__(self, spec: ReplicaSpec) -> None:
        self.state: State = "starting"
        self.detail = "starting"
        self.runtime: str | None = None
        self.reason = ""  # why this runtime
        self.building = False
        self.task: str | None = None
        self.context_length: int | None = None  # of a model that generates
        self.handlers: Handlers | None = None
        self.metadata = b""  # what the model takes and gives, as Open Inference says it; empty: it has no tensors
        self.progress: Callable[[], str] | None = None  # while loading: a finer `detail`
        self.load = LoadMeter()
        self.measures = Measures(spec.endpoint, spec.served_entity)
        self._headers: Headers = [(b"served-model-name", spec.served_entity.encode("latin-1", "replace"))]
        self._get: dict[str, Callable[[Reply], None]] = {
            "/ready": self._ready,
            "/health": self._health,
            "/load": self._load,
            "/metrics": self._metrics,
            "/v2/model": self._metadata,
        }
        self._post: dict[str, Callable[[Handlers, Exchange], None]] = {
            "/invocations": lambda handlers, exchange: handlers.invocations(exchange),
            "/v1/chat/completions": lambda handlers, exchange: handlers.chat(exchange),
            "/v1/completions": lambda handlers, exchange: handlers.completions(exchange),
            "/v1/embeddings": lambda handlers, exchange: handlers.embeddings(exchange),
            "/v1/responses": _unsupported,
            "/v2/infer": lambda handlers, exchange: handlers.infer(exchange),
        }

    def status(self) -> ReplicaStatus:
        return ReplicaStatus(
            state=self.state,
            detail=self.progress() if self.progress is not None and self.state == "starting" else self.detail,
            runtime=self.runtime,
            reason=self.reason,
            building=self.building,
            task=self.task,
            max_concurrency=self.load.max_concurrency,
            lanes=self.load.lanes,
            context_length=self.context_length,
        )

    def handle(self, request: Request, reply: Reply) -> None:
        """One complete request."""
        if request.method == "POST" and (query := self._post.get(request.path)):
            self._query(query, request, reply)
        elif request.method in ("GET", "HEAD") and (answer := self._get.get(request.path)):
            answer(reply)
        elif request.path in self._post or request.path in self._get:
            allow = "POST" if request.path in self._post else "GET, HEAD"
            reply.send_error(MethodNotAllowed(f"{request.method} is not allowed on {request.path}.", allow=allow))
        else:
            reply.send_error(NotFound(f"A replica has no path {request.path}."))

    def _query(self, query: Callable[[Handlers, Exchange], None], request: Request, reply: Reply) -> None:
        if self.state == "draining":
            reply.send_error(Unavailable("This replica is draining."), [*self._refusal_headers(), DRAINING_HEADER])
            return
        if self.handlers is None:
            reply.send_error(self._not_ready(), self._refusal_headers())
            return
        exchange = Exchange(request, reply, self._headers, self.load, self.measures)
        try:
            exchange.read_deadline()
            query(self.handlers, exchange)
        except SteelyardError as error:
            exchange.fail(error)
        except Exception as error:
            exchange.fail_unexpectedly(error)

    def _not_ready(self) -> Unavailable:
        return Unavailable(f"The model is not ready yet: {self.status().detail}.", retry_after_s=_LOADING_RETRY_S)

    def _metadata(self, reply: Reply) -> None:
        if self.handlers is None:
            reply.send_error(self._not_ready(), self._refusal_headers())
            return
        if self.metadata:
            reply.send(200, _JSON, self.metadata)
        else:
            error = BadRequest("This endpoint serves a language model, which has no tensors; use the /v1 paths.")
            reply.send_error(error, self._headers)

    def _refusal_headers(self) -> Headers:
        return [*self._headers, (b"endpoint-load-metrics", self.load.orca())]

    def _ready(self, reply: Reply) -> None:
        status = 200 if self.state == "ready" else 503
        reply.send(status, _JSON, msgspec.json.encode(self.status()))

    def _health(self, reply: Reply) -> None:
        reply.send(200, _JSON, b'{"status":"ok"}')

    def _load(self, reply: Reply) -> None:
        reply.send(200, _JSON, msgspec.json.encode(self.load.report(time.monotonic())))

    def _metrics(self, reply: Reply) -> None:
        report = self.load.report(time.monotonic())
        try:
            if self.handlers is not None:
                self.handlers.refresh()
            text = self.measures.render(report.in_flight, report.queue_depth)
        except Exception as error:
            get_logger().error("metrics_failed", error=repr(error))
            reply.send_error(Unavailable("The metrics cannot be rendered."))
            return
        reply.send(200, [(b"content-type", metrics.CONTENT_TYPE.encode())], text)


def _unsupported(_: Handlers, exchange: Exchange) -> None:
    raise BadRequest(f"{exchange.request.path} is not supported by this endpoint.")
