"""One whole request to an upstream, awaited: for control traffic and tests, never on the hot path."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass

from steelyard.errors import BadUpstream, DeadlineExceeded
from steelyard.wire.client import Pool, ResponseSink, UpstreamFailure
from steelyard.wire.request import Headers


@dataclass(frozen=True, slots=True)
class Response:
    status: int
    headers: Headers
    body: bytes


class _Collector(ResponseSink):
    __slots__ = ("_body", "_headers", "_status", "result")

    def __init__(self) -> None:
        self.result: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
        self._status = 0
        self._headers: Headers = []
        self._body = bytearray()

    def on_head(self, status: int, headers: Headers, content_length: int | None) -> None:
        self._status = status
        self._headers = headers

    def on_piece(self, data: bytes) -> None:
        self._body += data

    def on_end(self) -> None:
        if not self.result.done():
            self.result.set_result(Response(self._status, self._headers, bytes(self._body)))

    def on_failure(self, failure: UpstreamFailure) -> None:
        if not self.result.done():
            self.result.set_exception(BadUpstream(f"The upstream failed: {failure.kind.value} ({failure.detail})."))


def encode_head(method: str, target: bytes, headers: Iterable[tuple[bytes, bytes]], body_bytes: int) -> bytes:
    """A request head with its content length; `headers` must not hold one."""
    lines = [b"%b %b HTTP/1.1\r\n" % (method.encode(), target), *(b"%b: %b\r\n" % pair for pair in headers)]
    lines.append(b"content-length: %d\r\n\r\n" % body_bytes)
    return b"".join(lines)


async def fetch(
    pool: Pool,
    method: str,
    target: bytes,
    *,
    headers: Iterable[tuple[bytes, bytes]] = (),
    body: bytes = b"",
    timeout_s: float = 30.0,
) -> Response:
    """Send and await the whole response. Raises BadUpstream or DeadlineExceeded; cancelling closes the connection."""
    collector = _Collector()
    head = encode_head(method, target, [(b"host", b"steelyard"), *headers], len(body))
    connection = pool.send(collector, head, body)
    try:
        async with asyncio.timeout(timeout_s):
            return await collector.result
    except TimeoutError as error:
        raise DeadlineExceeded(f"No answer within {timeout_s:g} s.") from error
    finally:
        if not collector.result.done() or collector.result.cancelled():
            connection.cancel()
