"""The HTTP/1.1 client side of the router: one connection to an upstream, and the pool that keeps them.

A caller hands a request and a `ResponseSink` to `Pool.send` and is called back as the answer arrives; cancelling
closes the connection, which is how an upstream learns that nobody waits any more. Nothing here retries.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from enum import Enum
from typing import Final, cast

import httptools
from mypy_extensions import mypyc_attr

from steelyard.contracts.usage import USAGE_HEADER
from steelyard.wire.hop import REPLY_MARK, read_reply_tail
from steelyard.wire.request import Headers

_MAX_KNOWN_HEADS: Final = 64
_MAX_HEAD_BYTES: Final = 256 * 1024
_STALE_S: Final = 0.05  # a reused connection that dies so soon after a request was written had died before
_JOIN_BYTES: Final = 64 * 1024  # smaller bodies are copied behind their head: one write instead of two
_NOT_PASSED: Final = frozenset((
    b"content-length", b"transfer-encoding",
    b"connection", b"keep-alive", b"proxy-authenticate", b"proxy-connection", b"te", b"trailer", b"upgrade",
))  # fmt: skip


_UNTIL_CLOSE: Final = -1  # lengths of responses that do not declare one
_CHUNKED: Final = -2


class FailureKind(Enum):
    CONNECT = "connect"  # no connection: the request was not sent
    STALE = "stale"  # a kept-alive connection ended right after the request was written, which may have been read
    LOST = "lost"  # the upstream went away while it owed an answer
    MALFORMED = "malformed"  # what came back is not HTTP


@dataclass(frozen=True, slots=True)
class UpstreamFailure:
    kind: FailureKind
    bytes_seen: int  # of the response, head included
    detail: str = ""


@mypyc_attr(allow_interpreted_subclasses=True)
class ResponseSink:
    """Receives one response. Exactly one of `on_whole`, `on_end`, `on_failure` ends it, unless it was cancelled.

    `headers` come without hop-by-hop ones and without content-length, which is an argument (None: not declared).
    """

    __slots__ = ()

    def on_head(self, status: int, headers: Headers, content_length: int | None) -> None:
        raise NotImplementedError

    def on_piece(self, data: bytes) -> None:
        raise NotImplementedError

    def on_end(self) -> None:
        raise NotImplementedError

    def on_failure(self, failure: UpstreamFailure) -> None:
        raise NotImplementedError

    def on_usage(self, usage: bytes) -> None:
        """A trailer says what the request took; before `on_end`, or before `on_whole`."""

    def on_whole(self, status: int, headers: Headers, body: bytes) -> None:
        """A response that came in one read; the usual case on the hot path."""
        self.on_head(status, headers, len(body))
        self.on_piece(body)
        self.on_end()


@mypyc_attr(allow_interpreted_subclasses=True)
class UpstreamConnection:
    """One connection, at most one request at a time. Callers use `cancel`, `pause` and `resume` only.

    An `asyncio.Protocol` by its methods, as `connection.py` is.
    """

    __slots__ = (
        "_complete",
        "_extra",
        "_head_done",
        "_head_told",
        "_headers",
        "_keep_alive",
        "_length",
        "_outgoing",
        "_parser",
        "_paused",
        "_pieces",
        "_pool",
        "_sent_s",
        "_served",
        "_sink",
        "_status",
        "_transport",
        "bytes_seen",
        "closed",
    )

    def __init__(self, pool: Pool, sink: ResponseSink, outgoing: tuple[bytes, bytes]) -> None:
        self._pool = pool
        self._parser = httptools.HttpResponseParser(self)
        self._transport: asyncio.Transport | None = None
        self._sink: ResponseSink | None = sink
        self._outgoing: tuple[bytes, bytes] | None = outgoing  # while connecting
        self.closed = False
        self._paused = False
        self._served = 0
        self._sent_s = 0.0
        self._status = 0
        self._keep_alive = True
        self._extra = False  # more than one response came for a request
        self._reset()

    def _reset(self) -> None:
        """Ready for the next response."""
        self.bytes_seen = 0
        self._headers: Headers = []
        self._pieces: list[bytes] = []
        self._length = _UNTIL_CLOSE
        self._head_done = self._head_told = self._complete = False

    # --- for callers

    def cancel(self) -> None:
        """Forget the sink and close the connection. Safe at any time, also twice."""
        self._sink = None
        if self._transport is not None:
            self.closed = True
            self._transport.abort()

    def pause(self) -> None:
        """Stop reading: the client takes its reply too slowly."""
        if self._transport is not None and not self.closed and self._sink is not None:
            self._paused = True
            self._transport.pause_reading()

    def resume(self) -> None:
        if self._paused and self._transport is not None and not self.closed:
            self._paused = False
            self._transport.resume_reading()

    # --- for the pool

    def send(self, sink: ResponseSink, head: bytes, body: bytes) -> None:
        """Write the next request on an idle connection."""
        self._sink = sink
        self._write(head, body)

    def _write(self, head: bytes, body: bytes) -> None:
        assert self._transport is not None
        self._sent_s = self._pool.loop.time()
        if len(body) <= _JOIN_BYTES:
            self._transport.write(head + body)
        else:
            self._transport.write(head)
            self._transport.write(body)

    def fail_connect(self, detail: str) -> None:
        self.closed = True
        sink, self._sink = self._sink, None
        if sink is not None:
            sink.on_failure(UpstreamFailure(FailureKind.CONNECT, 0, detail))

    def close(self) -> None:
        self.closed = True
        if self._transport is not None:
            self._transport.close()

    # --- transport callbacks

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        outgoing, self._outgoing = self._outgoing, None
        if self._sink is not None and outgoing is not None:
            self._write(*outgoing)
        else:
            self._pool.release(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed = True
        self._pool.forget(self)
        sink = self._sink
        if sink is None:
            return
        if self._head_done and self._length == _UNTIL_CLOSE and exc is None:
            self._complete = True
            self._keep_alive = False
            self._deliver(sink)
            return
        self._sink = None
        kind = FailureKind.LOST
        if self._served and not self.bytes_seen and self._pool.loop.time() - self._sent_s < _STALE_S:
            kind = FailureKind.STALE
        sink.on_failure(UpstreamFailure(kind, self.bytes_seen, str(exc or "closed")))

    def eof_received(self) -> None:
        """The connection closes by itself."""

    def pause_writing(self) -> None:
        """Nothing: what goes out is one request, which is in memory anyway."""

    def resume_writing(self) -> None:
        pass

    def data_received(self, data: bytes) -> None:
        sink = self._sink
        if sink is None:  # an answer that nobody asked for
            self.close()
            return
        if not self.bytes_seen and self._recognise(data, sink):
            return
        self.bytes_seen += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._fail_malformed(sink, str(error))
            return
        if not self._head_done and self.bytes_seen > _MAX_HEAD_BYTES:
            self._fail_malformed(sink, "the response head is too large")
            return
        if self._head_done:
            if self._complete and not self._head_told and self._keep_alive:
                self._remember(data)
            self._deliver(sink)

    def _recognise(self, data: bytes, sink: ResponseSink) -> bool:
        """A whole reply whose head was parsed before, but for its tail: llhttp would say the same and cost far more.

        It is at the boundary between two messages then, and stays there.
        """
        cut = data.find(REPLY_MARK)
        known = self._pool.heads.get(data[:cut]) if cut > 0 else None
        if known is None:
            return False
        tail = read_reply_tail(data, cut)
        if tail is None:
            return False
        start, headers = tail
        self.bytes_seen = len(data)
        self._keep_alive = True
        self._finish()
        sink.on_whole(known[0], known[1] + headers, data[start:])
        return True

    def _remember(self, data: bytes) -> None:
        """Keep the stable part of a reply's head, if the reply came in this one read and has the form of `hop.py`."""
        cut = data.find(REPLY_MARK) if self.bytes_seen == len(data) and self._length >= 0 else -1
        tail = read_reply_tail(data, cut) if cut > 0 else None
        if tail is None or self._status in {204, 304}:
            return
        heads = self._pool.heads
        if len(heads) >= _MAX_KNOWN_HEADS:
            heads.clear()
        heads[data[:cut]] = (self._status, self._headers[: -len(tail[1])])

    def _fail_malformed(self, sink: ResponseSink, detail: str) -> None:
        self.cancel()
        sink.on_failure(UpstreamFailure(FailureKind.MALFORMED, self.bytes_seen, detail))

    def _deliver(self, sink: ResponseSink) -> None:
        """Pass on what one read brought. A finished connection is released first, so that the sink can reuse it."""
        pieces = self._pieces
        body = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        if self._complete:
            told, status, headers = self._head_told, self._status, self._headers
            self._finish()
            if not told:
                sink.on_whole(status, headers, body)
                return
            if body:
                sink.on_piece(body)
            sink.on_end()
            return
        self._pieces = []
        if not self._head_told:
            self._head_told = True
            sink.on_head(self._status, self._headers, self._length if self._length >= 0 else None)
        if body and self._sink is sink:
            sink.on_piece(body)

    def _finish(self) -> None:
        self._sink = None
        self._served += 1
        if not self._keep_alive or self._extra or self.closed:
            self.close()
        elif self._transport is not None and self._transport.get_write_buffer_size():
            self.close()  # it answered before it had read the request
        else:
            if self._paused:
                self.resume()
            self._reset()
            self._pool.release(self)

    # --- parser callbacks

    def on_message_begin(self) -> None:
        if self._complete:
            self._extra = True

    def on_header(self, name: bytes, value: bytes) -> None:
        name = name.lower()
        if self._head_done:  # a trailer
            if name == USAGE_HEADER and not self._complete and self._sink is not None:
                self._sink.on_usage(value.strip())
            return
        if name not in _NOT_PASSED:
            self._headers.append((name, value.strip()))
        elif name == b"content-length":
            self._length = int(value)
        elif name == b"transfer-encoding":
            self._length = _CHUNKED

    def on_headers_complete(self) -> None:
        if self._complete:
            return
        self._status = self._parser.get_status_code()
        if self._status < 200:
            return
        if self._status in {204, 304}:
            self._length = 0
        self._head_done = True

    def on_body(self, piece: bytes) -> None:
        if not self._complete:  # of a second response, nobody's
            self._pieces.append(piece)

    def on_message_complete(self) -> None:
        if self._status < 200:
            self._headers = []
            self._length = _UNTIL_CLOSE
            return
        self._keep_alive = self._parser.should_keep_alive()
        self._complete = True


@mypyc_attr(allow_interpreted_subclasses=True)
class Pool:
    """Connections to one address (`unix:/path` or `tcp:host:port`). The most recently used one serves next.

    Raises ValueError when the address cannot be read.
    """

    def __init__(self, address: str, *, connect_timeout_s: float = 3.0, max_idle: int = 512) -> None:
        scheme, _, rest = address.partition(":")
        if not (scheme == "unix" and rest) and not (scheme == "tcp" and rest.rpartition(":")[2].isdecimal()):
            raise ValueError(f"Address {address!r} must be 'unix:/path' or 'tcp:host:port'.")
        self.address = address
        self.loop = asyncio.get_running_loop()
        self._connect_timeout_s = connect_timeout_s
        self._max_idle = max_idle
        self.heads: dict[bytes, tuple[int, Headers]] = {}  # of replies, parsed before
        self._idle: list[UpstreamConnection] = []
        self._connecting: set[asyncio.Task[None]] = set()
        self._closed = False

    @property
    def idle_count(self) -> int:
        return len(self._idle)

    def send(self, sink: ResponseSink, head: bytes, body: bytes, *, fresh: bool = False) -> UpstreamConnection:
        """Send one request; `fresh` never reuses a connection. The result is the handle to cancel it by.

        Never calls the sink before it has returned.
        """
        while self._idle and not fresh:
            connection = self._idle.pop()
            if not connection.closed:
                connection.send(sink, head, body)
                return connection
        connection = UpstreamConnection(self, sink, (head, body))
        task = self.loop.create_task(self._connect(connection))
        self._connecting.add(task)
        task.add_done_callback(self._connecting.discard)
        return connection

    async def _connect(self, connection: UpstreamConnection) -> None:
        scheme, _, rest = self.address.partition(":")

        def protocol() -> asyncio.Protocol:
            return cast(asyncio.Protocol, connection)

        try:
            async with asyncio.timeout(self._connect_timeout_s):
                if scheme == "unix":
                    await self.loop.create_unix_connection(protocol, rest)
                else:
                    host, _, port = rest.rpartition(":")
                    await self.loop.create_connection(protocol, host.strip("[]"), int(port))
        except (OSError, TimeoutError) as error:
            connection.fail_connect(str(error) or "connecting took too long")

    def release(self, connection: UpstreamConnection) -> None:
        """For connections: idle again."""
        if self._closed or len(self._idle) >= self._max_idle:
            connection.close()
        else:
            self._idle.append(connection)

    def forget(self, connection: UpstreamConnection) -> None:
        """For connections: closed."""
        if connection in self._idle:
            self._idle.remove(connection)

    def discard_idle(self) -> None:
        """Close what is idle (the upstream was seen to die); what is in use goes on."""
        idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def close(self) -> None:
        """Close what is idle, and what is in use once it is done."""
        self._closed = True
        self.discard_idle()
