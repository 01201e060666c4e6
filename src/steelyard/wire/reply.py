"""The answer to one request: given to a handler, which sends it whole or as a stream, exactly once.

`connection.py` makes one per request and learns through it when the next request may begin. A reply never raises
for a client that has gone: it turns into a sink, and says so through `closed` and `on_disconnect`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from steelyard.errors import SteelyardError
from steelyard.wire.request import Headers, Request, error_body

if TYPE_CHECKING:
    from steelyard.wire.connection import Connection

STATUS_LINES: Final[dict[int, bytes]] = {s.value: f"HTTP/1.1 {s.value} {s.phrase}\r\n".encode() for s in HTTPStatus}


_pair: Final = b": ".join


def head_lines(status: int, headers: Headers) -> bytes:
    """Status line and headers, each with its line end. Joined in C: a format per header costs twice as much."""
    line = STATUS_LINES.get(status) or f"HTTP/1.1 {status} Status\r\n".encode()
    return line + b"\r\n".join(map(_pair, headers)) + b"\r\n" if headers else line


class Reply:
    """One per request. `send`, or `start` → `write`* → `finish`; `abort` at any time before the end."""

    __slots__ = (
        "_bodyless",
        "_chunked",
        "_connection",
        "_http10",
        "_keep_alive",
        "_left_bytes",
        "closed",
        "on_disconnect",
        "on_pause",
        "on_resume",
        "request",
        "started",
        "status",
    )

    def __init__(self, connection: Connection, request: Request, keep_alive: bool, http10: bool) -> None:
        self.request = request
        self.started = False
        self.closed = False  # finished, aborted, or the client is gone
        self.status = 0  # 0: not begun
        self.on_disconnect: Callable[[], None] | None = None
        self.on_pause: Callable[[], None] | None = None
        self.on_resume: Callable[[], None] | None = None
        self._connection = connection
        self._keep_alive = keep_alive
        self._http10 = http10
        self._bodyless = request.method == "HEAD"
        self._chunked = False
        self._left_bytes = -1  # of a declared content length; -1: not declared

    def send(self, status: int, headers: Headers, body: bytes) -> None:
        """The whole reply in one write; `content-length` is added. Nothing happens when the reply is closed."""
        if self.closed or self.started:
            return
        self.started = self.closed = True
        self.status = status
        connection = self._connection
        keep_alive = self._keep_alive and not connection.closing
        head = head_lines(status, headers)
        if not keep_alive:
            head += b"connection: close\r\n"
        elif self._http10:
            head += b"connection: keep-alive\r\n"
        if status in {204, 304}:
            connection.transport.write(head + b"\r\n")
        elif self._bodyless:
            connection.transport.write(b"%bcontent-length: %d\r\n\r\n" % (head, len(body)))
        else:
            connection.transport.write(b"%bcontent-length: %d\r\n\r\n%b" % (head, len(body), body))
        connection.finished(keep_alive)

    def send_error(self, error: SteelyardError, headers: Iterable[tuple[bytes, bytes]] = ()) -> None:
        """The error as JSON, in the shape that this path's clients read, with its own headers and `headers`."""
        self.send(error.status, [*error.headers(), *headers], error_body(error, self.request.path))

    def start(self, status: int, headers: Headers, content_length: int | None = None) -> None:
        """Begin a streamed reply: chunked unless its length is known (close-delimited for HTTP/1.0 clients)."""
        if self.closed or self.started:
            return
        self.started = True
        self.status = status
        head = [head_lines(status, headers)]
        if status in {204, 304}:
            self._bodyless = True
        elif content_length is not None:
            head.append(b"content-length: %d\r\n" % content_length)
            self._left_bytes = content_length
        elif self._http10:
            self._keep_alive = False
        else:
            head.append(b"transfer-encoding: chunked\r\n")
            self._chunked = True
        self._keep_alive = self._keep_alive and not self._connection.closing
        if not self._keep_alive:
            head.append(b"connection: close\r\n")
        elif self._http10:
            head.append(b"connection: keep-alive\r\n")
        head.append(b"\r\n")
        self._connection.transport.write(b"".join(head))

    def write(self, data: bytes) -> None:
        """One piece of a started reply, sent at once. More than the declared length aborts the reply."""
        if self.closed or self._bodyless or not data:
            return
        if self._chunked:
            self._connection.transport.write(b"%x\r\n%b\r\n" % (len(data), data))
            return
        if self._left_bytes >= 0:
            self._left_bytes -= len(data)
            if self._left_bytes < 0:
                self.abort()
                return
        self._connection.transport.write(data)

    def finish(self, trailers: bytes = b"") -> None:
        """End a started reply, a chunked one with these trailers (lines with their ends).

        Less than the declared length aborts it instead.
        """
        if self.closed or not self.started:
            return
        if self._left_bytes > 0 and not self._bodyless:
            self.abort()
            return
        self.closed = True
        if self._chunked and not self._bodyless:
            self._connection.transport.write(b"0\r\n%b\r\n" % trailers)
        self._connection.finished(self._keep_alive)

    def abort(self) -> None:
        """Close the connection so that the reply cannot look complete. What was written before is still sent."""
        if self.closed:
            return
        self.closed = True
        framed = self.started and (self._chunked or self._left_bytes > 0)
        self._connection.cut(flush=framed)

    def lost(self) -> None:
        """For the connection only: the client is gone."""
        if self.closed:
            return
        self.closed = True
        callback, self.on_disconnect = self.on_disconnect, None
        if callback is not None:
            callback()

    async def drained(self) -> None:
        """Wait until the client has taken enough for more to be written (at once when it is gone)."""
        if self.closed or not self._connection.write_paused:
            return
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._connection.drain_waiters.append(waiter)
        await waiter
