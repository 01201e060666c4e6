"""One client connection of the server: bytes in, complete requests out, replies back in order.

`server.py` makes one per accepted socket and sweeps them for timeouts once a second. Limits are enforced while a
request is still arriving, so that no client can make the process hold more than `HttpLimits` allows. A protocol
fault is answered once, after the replies that are still owed, and the connection is closed.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections import deque
from enum import IntEnum
from typing import TYPE_CHECKING, cast

import httptools

from steelyard.errors import (
    BadRequest,
    ExpectationFailed,
    HeadersTooLarge,
    InternalError,
    MethodNotAllowed,
    PayloadTooLarge,
    RequestTimeout,
    SteelyardError,
    UriTooLong,
)
from steelyard.observe.logs import get_logger
from steelyard.wire.reply import Reply, head_lines
from steelyard.wire.request import Headers, Request, split_target

if TYPE_CHECKING:
    from steelyard.wire.server import HttpServer

_FRAMING = frozenset((b"host", b"content-length", b"transfer-encoding", b"expect"))
_SLICE_BYTES = 16 * 1024  # fed to the parser at once: bounds how many pipelined requests one read can yield
_LINGER_S = 2.0  # how long a refused client may take to read why
_CHUNK_OVERHEAD = 4  # chunk framing may be so many times the body limit before a body is refused

log = get_logger()


class Phase(IntEnum):
    """What the parser is waiting for. Members are bound to names below: reading one from its class costs too much."""

    IDLE = 0  # the first byte of a request
    HEAD = 1
    BODY = 2
    LINGER = 3  # the last reply is out; input is thrown away until the client closes
    CLOSED = 4


_IDLE, _HEAD, _BODY, _LINGER, _CLOSED = Phase


class Connection(asyncio.Protocol):
    """`transport`, `closing`, `write_paused` and `drain_waiters` are for `Reply`; everything else is private."""

    __slots__ = (
        "_body",
        "_body_bytes",
        "_body_since_s",
        "_content_length",
        "_current",
        "_dispatching",
        "_ended",
        "_expects",
        "_head_bytes",
        "_headers",
        "_held_bytes",
        "_hosts",
        "_http10",
        "_last",
        "_owes_continue",
        "_parser",
        "_phase",
        "_queue",
        "_raw_bytes",
        "_read_paused",
        "_server",
        "_since_s",
        "_target",
        "_unfed",
        "_url",
        "drain_waiters",
        "transport",
        "write_paused",
    )

    transport: asyncio.Transport

    def __init__(self, server: HttpServer) -> None:
        self._server = server
        self._parser = httptools.HttpRequestParser(self)
        self._phase = _IDLE
        self._ended = False  # in phase LINGER or CLOSED
        self._since_s = server.now_s  # of the phase, or of the last piece of a body
        self._body_since_s = 0.0
        self._current: Reply | None = None
        self._queue: deque[Reply | SteelyardError] = deque()
        self._held_bytes = 0  # bodies of the requests in the queue
        self._unfed = b""  # read, but not parsed while the queue is full
        self._read_paused = False
        self._dispatching = False
        self._last = False  # no further request will be parsed
        self._owes_continue = False
        self.write_paused = False
        self.drain_waiters: list[asyncio.Future[None]] = []
        self._url = b""
        self._target: tuple[bytes, str, str] = (b"", "", "")
        self._headers: Headers = []
        self._body: list[bytes] = []
        self._body_bytes = self._raw_bytes = self._head_bytes = 0
        self._hosts = 0
        self._content_length = -1
        self._expects = b""
        self._http10 = False

    @property
    def closing(self) -> bool:
        """True when the server drains: the reply in progress is the connection's last."""
        return self._server.stopping

    # --- transport callbacks

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self._server.connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._server.forget(self)
        self._gone()

    def eof_received(self) -> bool:
        if self._current is not None:
            self._gone()
            self.transport.abort()
        return False

    def pause_writing(self) -> None:
        self.write_paused = True
        self._since_s = self._server.now_s
        if self._current is not None and self._current.on_pause is not None:
            self._current.on_pause()

    def resume_writing(self) -> None:
        self.write_paused = False
        self._wake_drained()
        if self._current is not None:
            if self._current.on_resume is not None:
                self._current.on_resume()
        elif self._queue:
            self._next()

    def data_received(self, data: bytes) -> None:
        if self._ended or self._last:
            return
        if self._unfed:
            self._unfed += data
        elif len(data) <= self._server.slice_bytes:
            self._feed(data)
        else:
            self._feed_slices(data)

    # --- parsing

    def _feed_slices(self, data: bytes) -> None:
        size = self._server.slice_bytes
        for start in range(0, len(data), size):
            if self._ended or self._last:
                return
            if self._is_full():
                self._unfed = data[start:]
                self._pause_reading()
                return
            self._feed(data[start : start + size])

    def _is_full(self) -> bool:
        limits = self._server.limits
        return len(self._queue) >= limits.max_pipelined or self._held_bytes > limits.max_body_bytes

    def _feed(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserCallbackError as error:
            cause = error.__context__
            if not isinstance(cause, SteelyardError):
                log.error("http_parser_callback_failed", exc_info=cause)
                cause = InternalError("The request could not be read.")
            self._refuse(cause)
        except httptools.HttpParserInvalidMethodError:
            self._refuse(MethodNotAllowed("The request method is not known to this server."))
        except httptools.HttpParserUpgrade:
            self._refuse(BadRequest("Protocol upgrades are not supported."))
        except httptools.HttpParserError as error:
            self._refuse(BadRequest(f"The request is not well-formed HTTP/1.1: {error}."))
        else:
            if self._phase is _HEAD:
                self._head_bytes += len(data)
                if self._head_bytes > self._server.limits.max_head_bytes:
                    self._refuse(HeadersTooLarge("The request's headers are too large."))
            elif self._phase is _BODY:
                self._count_body_traffic(len(data))
        if self._queue and self._current is None:
            self._next()
        elif self._queue and self._is_full():
            self._pause_reading()

    def _pause_reading(self) -> None:
        if not self._read_paused:
            self._read_paused = True
            self.transport.pause_reading()

    def _resume_reading(self) -> None:
        if self._read_paused and not self.transport.is_closing():
            self._read_paused = False
            self.transport.resume_reading()

    def _count_body_traffic(self, read_bytes: int) -> None:
        """Each piece restarts the idle timer; chunk framing counts, so that empty chunks cannot go on for ever."""
        self._since_s = self._server.now_s
        self._raw_bytes += read_bytes
        if self._raw_bytes - self._body_bytes > _CHUNK_OVERHEAD * self._server.limits.max_body_bytes + 65536:
            self._refuse(PayloadTooLarge("The request's chunk framing is too large."))

    def _refuse(self, error: SteelyardError) -> None:
        if not self._last:
            self._last = True
            self._queue.append(error)

    def on_message_begin(self) -> None:
        self._phase = _HEAD
        self._since_s = self._server.now_s

    def on_url(self, url: bytes) -> None:
        self._url += url
        if len(self._url) > self._server.limits.max_uri_bytes:
            raise UriTooLong(f"The request target is longer than {self._server.limits.max_uri_bytes} bytes.")

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._phase is _BODY:  # a trailer: framing only, never merged into the headers
            self._head_bytes += len(name) + len(value) + 4
            if self._head_bytes > self._server.limits.max_head_bytes:
                raise HeadersTooLarge("The request's trailers are too large.")
            return
        name = name.lower()
        value = value.strip()
        self._headers.append((name, value))
        if name in _FRAMING:
            self._note_framing(name, value)

    def _note_framing(self, name: bytes, value: bytes) -> None:
        if name == b"host":
            self._hosts += 1
            if value.translate(None, _HOST_BYTES):
                raise BadRequest("The Host header is not valid.")
        elif name == b"content-length":
            if not value.isdigit():
                raise BadRequest("Content-Length must be a number.")
            self._content_length = int(value)
        elif name == b"expect":
            self._expects = value.lower()
        elif value.lower() != b"chunked":
            raise BadRequest("Transfer-Encoding must be exactly 'chunked'.")

    def on_headers_complete(self) -> None:
        parser = self._parser
        headers = self._headers
        limits = self._server.limits
        version = parser.get_http_version()
        self._http10 = version == "1.0"
        if self._head_bytes:  # the head came in several reads: weigh it exactly
            head_bytes = len(self._url) + sum(len(n) + len(v) + 4 for n, v in headers)
            if head_bytes > limits.max_head_bytes:
                raise HeadersTooLarge(f"The request's headers are larger than {limits.max_head_bytes} bytes.")
            self._head_bytes = 0
        if len(headers) > limits.max_headers:
            raise HeadersTooLarge(f"The request has more than {limits.max_headers} headers.")
        if parser.should_upgrade():
            raise BadRequest("Protocol upgrades and CONNECT are not supported.")
        if version != "1.1" and not self._http10:
            raise BadRequest(f"HTTP/{version} is not supported; use HTTP/1.1.")
        if self._hosts != 1 and (self._hosts or not self._http10):
            raise BadRequest("An HTTP/1.1 request needs exactly one Host header.")
        if self._content_length > limits.max_body_bytes:
            raise PayloadTooLarge(f"The body is larger than {limits.max_body_bytes} bytes.")
        self._target = split_target(self._url)
        self._phase = _BODY
        self._body_since_s = self._since_s
        if self._expects and not self._http10:
            if self._expects != b"100-continue":
                raise ExpectationFailed("The only supported expectation is 100-continue.")
            if self._content_length != 0:
                self._owes_continue = True
                if self._current is None and not self._queue:
                    self._send_continue()

    def _send_continue(self) -> None:
        self._owes_continue = False
        self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_body(self, piece: bytes) -> None:
        self._body_bytes += len(piece)
        if self._body_bytes > self._server.limits.max_body_bytes:
            raise PayloadTooLarge(f"The body is larger than {self._server.limits.max_body_bytes} bytes.")
        self._body.append(piece)
        self._owes_continue = False  # the client did not wait

    def on_message_complete(self) -> None:
        parts = self._body
        body = b"" if not parts else parts[0] if len(parts) == 1 else b"".join(parts)
        target, path, query = self._target
        request = Request(parser_method(self._parser.get_method()), target, path, query, self._headers, body)
        keep_alive = self._parser.should_keep_alive()
        self._queue.append(Reply(self, request, keep_alive, self._http10))
        self._held_bytes += self._body_bytes
        if not keep_alive:
            self._last = True
        self._phase = _IDLE
        self._url = self._expects = b""
        self._headers = []
        self._body = []
        self._body_bytes = self._raw_bytes = self._head_bytes = self._hosts = 0
        self._content_length = -1
        self._owes_continue = False

    # --- one reply after the other

    def _next(self) -> None:
        """Hand the oldest request to the handler; go on while handlers reply at once."""
        if self._dispatching:
            return
        self._dispatching = True
        queue = self._queue
        try:
            while queue and self._current is None and not self.write_paused:
                entry = queue.popleft()
                if isinstance(entry, SteelyardError):
                    self._answer_fault(entry)
                    return
                self._held_bytes -= len(entry.request.body)
                self._current = entry
                try:
                    self._server.handler(entry.request, entry)
                except Exception:
                    log.exception("request_handler_failed", path=entry.request.path)
                    if entry.started:
                        entry.abort()
                    else:
                        entry.send_error(InternalError("The request could not be handled."))
        finally:
            self._dispatching = False
        if self._read_paused and not self._ended and not self._is_full():
            unfed, self._unfed = self._unfed, b""
            self._resume_reading()
            self._feed_slices(unfed)

    def finished(self, keep_alive: bool) -> None:
        """For `Reply`: the current reply is written; the next one may begin, or the connection ends."""
        reply = self._current
        if reply is not None:
            reply.on_disconnect = reply.on_pause = reply.on_resume = None
            self._current = None
        self._since_s = self._server.now_s
        if not keep_alive:
            self._phase = _LINGER
            self._ended = True
            self._queue.clear()
            self.transport.close()
        elif self._queue or self._unfed:
            self._next()
        elif self._owes_continue:
            self._send_continue()

    def cut(self, *, flush: bool) -> None:
        """For `Reply`: close at once; with `flush`, after what was written."""
        if self._current is not None:
            self._current.on_disconnect = None
            self._current = None
        self._phase = _CLOSED
        self._ended = True
        self._since_s = self._server.now_s
        self._queue.clear()
        if flush:
            self.transport.close()
            return
        sock = self.transport.get_extra_info("socket")
        if sock is not None and sock.family != socket.AF_UNIX:  # reset: a plain end looks like a complete reply
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.transport.abort()

    def _answer_fault(self, error: SteelyardError) -> None:
        body = error.body()
        tail = b"content-length: %d\r\nconnection: close\r\n\r\n" % len(body)
        self.transport.write(head_lines(error.status, error.headers()) + tail + body)
        self._queue.clear()
        self._unfed = b""
        self._phase = _LINGER
        self._ended = True
        self._since_s = self._server.now_s
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self._resume_reading()

    def _gone(self) -> None:
        self._phase = _CLOSED
        self._ended = True
        self._queue.clear()
        self._unfed = b""
        self._wake_drained()
        reply, self._current = self._current, None
        if reply is not None:
            reply.lost()

    def _wake_drained(self) -> None:
        waiters, self.drain_waiters = self.drain_waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    # --- for the server

    @property
    def is_idle(self) -> bool:
        return self._current is None and not self._queue

    def close_if_idle(self) -> None:
        """Drain: a connection without a request in progress or half-read ends now."""
        if self.is_idle and self._phase is _IDLE:
            self.transport.close()

    def sweep(self, now_s: float) -> None:
        """Once a second: end what has waited too long. Does nothing while a request is being served."""
        limits = self._server.limits
        waited_s = now_s - self._since_s
        if self._ended:
            if waited_s > _LINGER_S and not (self.transport.get_write_buffer_size() and waited_s < limits.keep_alive_s):
                self.transport.abort()
        elif self.write_paused:
            if waited_s > limits.write_stall_s:
                self._gone()
                self.transport.abort()
        elif self._current is not None or not self._server.idle_timeouts:
            return
        elif self._phase is _IDLE:
            if waited_s > limits.keep_alive_s:
                self.transport.close()
        elif self._phase is _HEAD:
            if waited_s > limits.head_timeout_s:
                self._time_out("The request's headers did not arrive in time.")
        elif waited_s > limits.body_idle_timeout_s or now_s - self._body_since_s > limits.body_timeout_s:
            self._time_out("The request's body did not arrive in time.")

    def _time_out(self, message: str) -> None:
        self._refuse(RequestTimeout(message))
        self._next()


_METHODS = {name.encode(): name for name in ("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS")}


def parser_method(method: bytes) -> str:
    return _METHODS.get(method) or method.decode("ascii")


# Host names, IPv4, bracketed IPv6 and a port: nothing that could be read as a path or as userinfo
_HOST_BYTES = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~[]:%!$&'()*+,;="
