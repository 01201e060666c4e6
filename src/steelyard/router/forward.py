"""One request for the control plane, passed on over its Unix socket with the principal's name, answer streamed back.

No ledger and no queue: control is not a replica. When it is away the client gets 503 at once; queries are untouched.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from steelyard.errors import BadUpstream, DeadlineExceeded, InternalError, SteelyardError, Unavailable
from steelyard.observe.logs import get_logger
from steelyard.wire.client import FailureKind, Pool, ResponseSink, UpstreamConnection, UpstreamFailure
from steelyard.wire.request import Headers, Request
from steelyard.wire.server import Reply

if TYPE_CHECKING:
    from steelyard.router.app import Router

PREFIXES: Final = ("/api/", "/docs/")
PATHS: Final = frozenset(("/api", "/metrics", "/openapi.json", "/docs"))
_SAFE: Final = frozenset(("GET", "HEAD"))

log = get_logger()


def is_for_control(path: str) -> bool:
    return path in PATHS or path.startswith(PREFIXES)


class Forward(ResponseSink):
    __slots__ = ("_head", "_pool", "_request_id", "_retried", "_router", "_upstream", "deadline_s", "reply", "request")

    def __init__(
        self,
        router: Router,
        request: Request,
        reply: Reply,
        *,
        head_lines: bytes,
        principal: str,
        request_id: bytes,
        deadline_s: float,
    ) -> None:
        self._router = router
        self._pool: Pool = router.control_pool
        self.request = request
        self.reply = reply
        self.deadline_s = deadline_s
        self._request_id = request_id
        self._retried = False
        self._upstream: UpstreamConnection | None = None
        method = "GET" if request.method == "HEAD" else request.method  # the reply drops the body by itself
        name = principal.encode("ascii", "replace")
        self._head = b"%b %b HTTP/1.1\r\nhost: control\r\n%bx-request-id: %b\r\nx-steelyard-principal: %b\r\n" % (
            method.encode(),
            request.target,
            head_lines,
            request_id,
            name,
        ) + b"content-length: %d\r\n\r\n" % len(request.body)

    def begin(self) -> None:
        self.reply.on_disconnect = self.on_client_gone
        self._router.live.add(self)
        self._send(fresh=self.request.method not in _SAFE)

    def _send(self, *, fresh: bool) -> None:
        self._upstream = self._pool.send(self, self._head, self.request.body, fresh=fresh)

    def on_client_gone(self) -> None:
        self._cancel()
        self._end()

    def on_deadline(self) -> None:
        self._cancel()
        self._fail(DeadlineExceeded("The control plane did not answer in time."))

    def on_fault(self) -> None:
        """While an exception is handled that nobody expected: end the request, and tell only the log why."""
        log.exception("forward_failed", request_id=self._request_id.decode())
        self._cancel()
        self._fail(InternalError("The request could not be handled."))

    def on_head(self, status: int, headers: Headers, content_length: int | None) -> None:
        passed = [pair for pair in headers if pair[0] != b"x-request-id"]
        passed.append((b"x-request-id", self._request_id))
        if self._upstream is not None:
            self.reply.on_pause = self._upstream.pause
            self.reply.on_resume = self._upstream.resume
        self.reply.start(status, passed, content_length)

    def on_piece(self, data: bytes) -> None:
        self.reply.write(data)

    def on_whole(self, status: int, headers: Headers, body: bytes) -> None:
        self._upstream = None
        self.on_head(status, headers, len(body))
        self.on_piece(body)
        self.on_end()

    def on_end(self) -> None:
        self._upstream = None
        self.reply.finish()
        self._end()

    def on_failure(self, failure: UpstreamFailure) -> None:
        self._upstream = None
        if failure.kind is FailureKind.STALE and self.request.method in _SAFE and not self._retried:
            self._retried = True
            self._send(fresh=True)
        elif failure.kind is FailureKind.CONNECT:
            self._fail(Unavailable("The control plane is restarting; queries are still served.", retry_after_s=2.0))
        else:
            self._fail(BadUpstream("The control plane failed while it handled the request."))

    def _fail(self, error: SteelyardError) -> None:
        if self.reply.started:
            self.reply.abort()
        else:
            self.reply.send_error(error, [(b"x-request-id", self._request_id)])
        self._end()

    def _cancel(self) -> None:
        if self._upstream is not None:
            self._upstream.cancel()
            self._upstream = None

    def _end(self) -> None:
        self._router.live.discard(self)
