"""One request's life in the replica: its id, priority and deadline, and exactly one settlement.

Made by `app.py` for each query; `invocations.py` and `generations.py` answer through it. Whatever happens (reply,
error, deadline, client gone), the load meter and the metrics hear of it once.
"""

from __future__ import annotations

import math
import time
import traceback
from collections.abc import Callable
from typing import Final

from steelyard.contracts.replica import CALIBRATES, CLIENT_GONE, PRIORITY_HEADER
from steelyard.contracts.usage import USAGE_HEADER, encode_rows
from steelyard.engine.messages import Priority
from steelyard.errors import DeadlineExceeded, InternalError, InvalidParameter, SteelyardError
from steelyard.observe.logs import get_logger
from steelyard.protocols.query import Answer
from steelyard.replica.load import LoadMeter
from steelyard.replica.measures import Measures
from steelyard.wire.server import Headers, Reply, Request
from steelyard.wire.sse import error_event

_PRIORITIES: Final[dict[bytes | None, Priority]] = {
    b"probe": "probe",
    b"interactive": "interactive",
    b"batch": "batch",
    CALIBRATES: "batch",
}
_JSON: Final = (b"content-type", b"application/json")
_DEADLINE: Final = b"x-steelyard-deadline-ms"
_EVENT_STREAM: Final = (b"content-type", b"text/event-stream; charset=utf-8")


class Exchange:
    """`on_end` is called once, whichever way the exchange ends; handlers use it to stop their work."""

    __slots__ = (
        "_calibrates",
        "_deadline_ms",
        "_ended",
        "_headers",
        "_id",
        "_load",
        "_measures",
        "arrived_s",
        "deadline_s",
        "on_end",
        "priority",
        "reply",
        "request",
        "usage",
    )

    def __init__(self, request: Request, reply: Reply, headers: Headers, load: LoadMeter, measures: Measures) -> None:
        self.request = request
        self.reply = reply
        self.arrived_s = time.monotonic()
        by_name = dict(request.headers).get  # in C: cheaper than three searches
        self._id = by_name(b"x-request-id", b"")
        self._deadline_ms = by_name(_DEADLINE)
        priority = by_name(PRIORITY_HEADER)
        self.priority = _PRIORITIES.get(priority, "interactive")
        self._calibrates: bool = priority == CALIBRATES
        self.deadline_s: float | None = None  # monotonic
        self.on_end: Callable[[], object] | None = None
        self.usage = b""  # what the request took, for the router: `RequestUsage.encode()`; empty: not known
        self._headers = headers
        self._load = load
        self._measures = measures
        self._ended = False
        load.opened(self._calibrates)
        reply.on_disconnect = self._client_gone

    @property
    def id(self) -> str:
        """The request's id; empty when nobody gave it one."""
        return self._id.decode("latin-1")

    @property
    def ended(self) -> bool:
        return self._ended

    def read_deadline(self) -> None:
        """From `x-steelyard-deadline-ms`, the milliseconds left. Raises DeadlineExceeded or InvalidParameter."""
        value = self._deadline_ms
        if value is None:
            return
        try:
            left_s = float(value) / 1000
        except ValueError:
            left_s = float("nan")
        if math.isnan(left_s):
            name = _DEADLINE.decode()
            raise InvalidParameter(f"The header {name} must be a number of milliseconds.", param=name)
        if left_s <= 0:
            raise DeadlineExceeded("The deadline had passed before the model could start.")
        self.deadline_s = self.arrived_s + left_s

    def send_json(self, body: bytes) -> None:
        """The whole successful reply."""
        if self._end(200, completed=True):
            self.reply.send(200, self._reply_headers(_JSON), body)

    def send(self, answer: Answer) -> None:
        """The same, of whatever type."""
        if answer.rows:
            self.usage = encode_rows(answer.rows)
        if self._end(200, completed=True):
            more = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in answer.headers]
            kind = (b"content-type", answer.content_type.encode("latin-1"))
            self.reply.send(200, self._reply_headers(kind, *more), answer.body)

    def fail(self, error: SteelyardError) -> None:
        """The error as a reply; in a stream that has begun, as its last event and a cut connection."""
        if not self._end(error.status, completed=False):
            return
        if self.reply.started:
            self.reply.write(error_event(error))
            self.reply.abort()
        else:
            self.reply.send_error(error, self._reply_headers())

    def fail_unexpectedly(self, error: BaseException) -> None:
        """For what no handler expected: one log line with the trace, and a 500 that tells nothing."""
        get_logger().error("request_failed", request_id=self.id, trace="".join(traceback.format_exception(error)))
        self.fail(InternalError("The platform failed to answer; its log has the details under this request's id."))

    def start_stream(self) -> None:
        """Begin a stream of server-sent events, once."""
        if not self.reply.started and not self._ended:
            self.reply.start(200, self._reply_headers(_EVENT_STREAM, (b"cache-control", b"no-cache")))

    def finish_stream(self) -> None:
        if self._end(200, completed=True):
            self.reply.finish(b"%b: %b\r\n" % (USAGE_HEADER, self.usage) if self.usage else b"")

    def _client_gone(self) -> None:
        self._end(CLIENT_GONE, completed=False)

    def _end(self, status: int, *, completed: bool) -> bool:
        if self._ended:
            return False
        self._ended = True
        self._load.closed(time.monotonic(), completed, self._calibrates)
        self._measures.count_reply(status)
        callback, self.on_end = self.on_end, None
        if callback is not None:
            callback()
        return True

    def _reply_headers(self, *more: tuple[bytes, bytes]) -> Headers:
        headers = [*more, *self._headers, (b"endpoint-load-metrics", self._load.orca())]
        if self.usage:
            headers.append((USAGE_HEADER, self.usage))
        if self._id:
            headers.append((b"x-request-id", self._id))
        return headers  # what differs between replies stands last: see wire/hop.py
