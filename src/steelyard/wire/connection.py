"""One client connection of the server: requests in, replies back in the same order, timeouts, the end.

`server.py` makes one per accepted socket and sweeps them once a second. `assembly.py` turns the bytes into requests;
a fault in them is answered once, after the replies that are still owed, and the connection is closed.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections import deque
from typing import TYPE_CHECKING, Final, cast

from steelyard.errors import InternalError, RequestTimeout, SteelyardError
from steelyard.observe.logs import get_logger
from steelyard.wire.assembly import BODY, HEAD, IDLE, RequestAssembler
from steelyard.wire.reply import Reply, head_lines
from steelyard.wire.request import error_body

if TYPE_CHECKING:
    from steelyard.wire.server import HttpServer

SLICE_BYTES: Final = 16 * 1024  # parsed at once: bounds how many pipelined requests one read can yield
_LINGER_S: Final = 2.0  # how long a refused client may take to read why

log = get_logger()


class Connection:
    """An `asyncio.Protocol` by its methods: inheriting would keep its attributes from being compiled.

    `transport`, `closing`, `write_paused`, `drain_waiters`, `finished` and `cut` are for `Reply`."""

    __slots__ = (
        "_assembler",
        "_body_since_s",
        "_current",
        "_dispatching",
        "_ended",
        "_last",
        "_phase",
        "_queue",
        "_read_paused",
        "_server",
        "_since_s",
        "_unfed",
        "drain_waiters",
        "transport",
        "write_paused",
    )

    transport: asyncio.Transport

    def __init__(self, server: HttpServer) -> None:
        self._server = server
        self._assembler = RequestAssembler(server.limits, server.arriving, server.memo, hop=server.hop)
        self._phase = IDLE  # the assembler's, as of the last read
        self._since_s = server.now_s  # of a phase; of a body, its last piece
        self._body_since_s = 0.0
        self._current: Reply | None = None
        self._queue: deque[Reply | SteelyardError] = deque()
        self._unfed = b""  # read, but not parsed while the queue is full
        self._read_paused = False
        self._dispatching = False
        self._last = False  # no further request will be taken
        self._ended = False  # nothing more will be written; input is thrown away until the client closes
        self.write_paused = False
        self.drain_waiters: list[asyncio.Future[None]] = []

    @property
    def closing(self) -> bool:
        """True when the server drains: the reply in progress is the connection's last."""
        return self._server.stopping

    # --- transport callbacks

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        server = self._server
        if len(server.connections) >= server.limits.max_connections:
            server.turned_away += 1
            self._ended = True
            self.transport.abort()
            return
        server.connections.add(self)

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
        if self._last or self._ended:
            return
        if self._unfed:
            self._unfed += data
        elif len(data) <= self._server.slice_bytes:
            self._feed(data)
        else:
            self._feed_slices(data)

    # --- requests in

    def _feed_slices(self, data: bytes) -> None:
        size = self._server.slice_bytes
        for start in range(0, len(data), size):
            if self._last or self._ended:
                return
            if self._is_full():
                self._unfed = data[start:]
                self._pause_reading()
                return
            self._feed(data[start : start + size])

    def _feed(self, data: bytes) -> None:
        assembler = self._assembler
        try:
            assembler.feed(data)
        except SteelyardError as error:
            self._take_ready()
            self._refuse(error)
            return
        ready = assembler.ready
        completed = bool(ready)
        if completed:
            self._phase = IDLE
            if len(ready) == 1 and self._current is None and not self._queue and not self.write_paused:
                request, keep_alive, http10 = ready.pop()  # the usual case, without the queue
                self._last = not keep_alive
                self._handle(Reply(self, request, keep_alive, http10))
            else:
                self._take_ready()
                if self._current is None:
                    self._next()
                if self._is_full():  # a reply is awaited, or the client does not read the ones it has
                    self._pause_reading()
        if assembler.phase is not IDLE:
            self._note_partial(began=completed)

    def _take_ready(self) -> None:
        ready = self._assembler.ready
        for request, keep_alive, http10 in ready:
            if not self._last:
                self._queue.append(Reply(self, request, keep_alive, http10))
                self._last = not keep_alive
        ready.clear()

    def _note_partial(self, *, began: bool) -> None:
        """Time what is unfinished: a head from its first byte, a body from its last piece and as a whole."""
        phase = self._assembler.phase
        began = began or self._phase is not phase
        if phase is BODY:
            self._since_s = self._server.now_s
            if began:
                self._body_since_s = self._since_s
                if not self._admit_body():
                    return
            self._send_continue()
        elif began:
            self._since_s = self._server.now_s
        self._phase = phase

    def _admit_body(self) -> bool:
        """Ask before a body is taken that did not come with its head; False when it is refused."""
        check = self._server.on_head
        if check is not None:
            try:
                check(*self._assembler.head)
            except SteelyardError as error:
                self._phase = BODY
                self._refuse(error)
                return False
        return True

    def _send_continue(self) -> None:
        """Invite the body that a client holds back, once no earlier reply is owed."""
        if self._assembler.awaits_continue and self._current is None and not self._queue and not self._ended:
            self._assembler.awaits_continue = False
            self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def _is_full(self) -> bool:
        queue = self._queue
        if not queue:
            return False
        limits = self._server.limits
        held_bytes = sum(len(entry.request.body) for entry in queue if isinstance(entry, Reply))
        return len(queue) >= limits.max_pipelined or held_bytes > limits.max_body_bytes

    def _refuse(self, error: SteelyardError) -> None:
        self._assembler.forget_body()
        if not self._last:
            self._last = True
            self._queue.append(error)
        self._next()

    def _pause_reading(self) -> None:
        if not self._read_paused:
            self._read_paused = True
            self.transport.pause_reading()

    def _resume_reading(self) -> None:
        if self._read_paused and not self.transport.is_closing():
            self._read_paused = False
            self.transport.resume_reading()

    # --- one reply after the other

    def _next(self) -> None:
        """Hand the oldest request to the handler; go on while handlers reply at once."""
        if self._dispatching:
            return
        self._dispatching = True
        queue = self._queue
        while queue and self._current is None and not self.write_paused:
            entry = queue.popleft()
            if isinstance(entry, SteelyardError):
                self._answer_fault(entry)
                break
            self._handle(entry)
        self._dispatching = False
        if self._read_paused and not self._ended and not self._is_full():
            unfed, self._unfed = self._unfed, b""
            self._resume_reading()
            self._feed_slices(unfed)

    def _handle(self, reply: Reply) -> None:
        self._current = reply
        try:
            self._server.handler(reply.request, reply)
        except Exception:
            log.exception("request_handler_failed", path=reply.request.path)
            if reply.started:
                reply.abort()
            else:
                reply.send_error(InternalError("The request could not be handled."))

    def finished(self, keep_alive: bool) -> None:
        """For `Reply`: the current reply is written; the next one may begin, or the connection ends."""
        reply = self._current
        if reply is not None:
            reply.on_disconnect = reply.on_pause = reply.on_resume = None
            self._current = None
        self._since_s = self._server.now_s
        if not keep_alive:
            self._end()
            self.transport.close()
        elif self._queue or self._unfed:
            self._next()
        elif self._phase is BODY:
            self._send_continue()

    def cut(self, *, flush: bool) -> None:
        """For `Reply`: close at once; with `flush`, after what was written."""
        if self._current is not None:
            self._current.on_disconnect = None
            self._current = None
        self._end()
        if flush:
            self.transport.close()
            return
        sock = self.transport.get_extra_info("socket")
        if sock is not None and sock.family != socket.AF_UNIX:  # reset: a plain end looks like a complete reply
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.transport.abort()

    def _answer_fault(self, error: SteelyardError) -> None:
        assembler = self._assembler
        path = assembler.head[0] if assembler.phase is BODY else ""  # before that it is not known
        body = error_body(error, path)
        tail = b"content-length: %d\r\nconnection: close\r\n\r\n" % len(body)
        self.transport.write(head_lines(error.status, error.headers()) + tail + body)
        self._end()
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self._resume_reading()

    def _end(self) -> None:
        self._ended = True
        self._since_s = self._server.now_s
        self._queue.clear()
        self._unfed = b""
        self._assembler.forget_body()

    def _gone(self) -> None:
        self._end()
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

    def close_if_idle(self) -> None:
        """Drain: a connection without a request in progress or half-read ends now."""
        if self._current is None and not self._queue and self._phase is IDLE and not self._ended:
            self.transport.close()

    def sweep(self, now_s: float) -> None:
        """Once a second: end what has waited too long. Does nothing while a request is being served."""
        limits = self._server.limits
        waited_s = now_s - self._since_s
        if self._ended:
            unsent = self.transport.get_write_buffer_size() > 0
            if waited_s > (limits.write_stall_s if unsent else _LINGER_S):
                self.transport.abort()
        elif self.write_paused:
            if waited_s > limits.write_stall_s:
                self._gone()
                self.transport.abort()
        elif self._current is not None or not self._server.idle_timeouts:
            return
        elif self._phase is IDLE:
            if waited_s > limits.keep_alive_s:
                self.transport.close()
        elif self._phase is HEAD:
            if waited_s > limits.head_timeout_s:
                self._refuse(RequestTimeout("The request's headers did not arrive in time."))
        elif waited_s > limits.body_idle_timeout_s or now_s - self._body_since_s > limits.body_timeout_s:
            self._refuse(RequestTimeout("The request's body did not arrive in time."))
