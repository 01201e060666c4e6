"""One pass over a client's headers: what the router wants to know, and the lines that go on to a replica.

Hop-by-hop headers, credentials, and everything named `x-steelyard-*` stop here: a client cannot speak for the router.
"""

from __future__ import annotations

import os
import re
from itertools import count

from steelyard.errors import InvalidParameter
from steelyard.wire.request import Headers

_STOPS = frozenset((
    b"connection", b"content-length", b"cookie", b"expect", b"host", b"keep-alive", b"proxy-authorization",
    b"proxy-connection", b"te", b"trailer", b"transfer-encoding", b"upgrade",
))  # fmt: skip
_OURS = b"x-steelyard-"
_VALID_ID = re.compile(rb"[A-Za-z0-9._:-]{1,128}")
_ID_PREFIX = os.urandom(8).hex().encode() + b"-"
_next_number = count(1).__next__


class Inbound:
    """`lines` are header lines, each with its line end; `timeout_ms` is None when the client named none."""

    __slots__ = ("authorization", "lines", "request_id", "timeout_ms")

    def __init__(self, headers: Headers) -> None:
        self.authorization: bytes | None = None
        self.timeout_ms: int | None = None
        request_id = b""
        lines: list[bytes] = []
        for name, value in headers:
            if name in _STOPS:
                if name == b"connection" and b"," in value:
                    lines = _without_listed(lines, value)
                continue
            if name == b"authorization":
                self.authorization = value if self.authorization is None else b""  # two of them: neither
            elif name == b"x-request-id":
                if _VALID_ID.fullmatch(value):
                    request_id = value
            elif name == b"x-request-timeout-ms":
                self.timeout_ms = _milliseconds(value)
            elif name.startswith(_OURS):
                if name == b"x-steelyard-deadline-ms":
                    self.timeout_ms = _milliseconds(value)
            else:
                lines.append(b"%b: %b\r\n" % (name, value))
        self.request_id = request_id or _ID_PREFIX + b"%x" % _next_number()
        self.lines = b"".join(lines)


def _milliseconds(value: bytes) -> int:
    """Raises InvalidParameter unless it is a whole number of milliseconds above zero."""
    if not value.isdigit() or len(value) > 12 or not int(value):
        raise InvalidParameter("The timeout header must be a whole number of milliseconds above 0.", param="timeout")
    return int(value)


def _without_listed(lines: list[bytes], connection: bytes) -> list[bytes]:
    """A client may name further hop-by-hop headers in `Connection`; those seen so far are taken out."""
    listed = tuple(name.strip().lower() + b":" for name in connection.split(b","))
    return [line for line in lines if not line.startswith(listed)]
