"""Reads HTTP/1.1 replies from bytes that have arrived: enough for servers that we start ourselves.

Used by the load generator and the soak test. It never reads from a socket.
"""

from __future__ import annotations

from dataclasses import dataclass

_END = b"\r\n\r\n"


@dataclass(frozen=True, slots=True)
class HttpReply:
    status: int
    body: bytes


def whole_reply(data: bytes | bytearray) -> HttpReply | None:
    """The one reply that `data` holds, or None while it is incomplete. Raises ValueError if it is no reply."""
    head_end = data.find(_END)
    if head_end < 0:
        return None
    head = bytes(data[: head_end + 2]).lower()
    if not head.startswith(b"http/1.1 "):
        raise ValueError(f"no HTTP/1.1 reply: {bytes(data[:60])!r}")
    status, begin = int(head[9:12]), head_end + 4
    at = head.find(b"\r\ncontent-length:")
    if at >= 0:
        end = begin + int(head[at + 17 : head.find(b"\r\n", at + 17)])
        return HttpReply(status, bytes(data[begin:end])) if len(data) >= end else None
    if b"\r\ntransfer-encoding: chunked" in head:
        body = _dechunked(data, begin)
        return None if body is None else HttpReply(status, body)
    if status in (204, 304):
        return HttpReply(status, b"")
    raise ValueError("a reply of unknown length")


def _dechunked(data: bytes | bytearray, position: int) -> bytes | None:
    body = b""
    while True:
        line_end = data.find(b"\r\n", position)
        if line_end < 0:
            return None
        size = int(bytes(data[position:line_end]).split(b";")[0], 16)
        position = line_end + 2 + size + 2
        if len(data) < position:
            return None
        if size == 0:
            return body
        body += bytes(data[line_end + 2 : line_end + 2 + size])
