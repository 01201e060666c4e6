"""One pass over a client's headers: what the router wants to know, and the lines that go on to a replica.

Hop-by-hop headers, credentials, and everything named `x-steelyard-*` stop here: a client cannot speak for the router.
"""

from __future__ import annotations

import os
import re
from itertools import count

from steelyard.errors import InvalidParameter
from steelyard.wire.request import Headers

_READ = frozenset((
    b"authorization", b"connection", b"x-request-id", b"x-request-timeout-ms", b"x-steelyard-deadline-ms",
))  # fmt: skip
_STOPS = frozenset((
    b"content-length", b"cookie", b"expect", b"host", b"keep-alive", b"proxy-authorization",
    b"proxy-connection", b"te", b"trailer", b"transfer-encoding", b"upgrade",
))  # fmt: skip
_OURS = b"x-steelyard-"
_X = ord("x")
_pair = b": ".join
_VALID_ID = re.compile(rb"[A-Za-z0-9._:-]{1,128}")
_ID_PREFIX = os.urandom(8).hex().encode() + b"-"
_next_number = count(1).__next__


class Inbound:
    """`lines` are header lines, each with its line end; `timeout_ms` is None when the client named none."""

    __slots__ = ("authorization", "lines", "request_id", "timeout_ms")

    def __init__(self, headers: Headers) -> None:
        self.authorization: bytes | None = None
        self.timeout_ms: int | None = None
        self.request_id = b""
        passed: Headers = []
        for pair in headers:
            name = pair[0]
            if name in _READ:
                if self._read(name, pair[1]):
                    passed = _without_listed(passed, pair[1])
            elif name not in _STOPS and not (name[0] == _X and name.startswith(_OURS)):
                passed.append(pair)
        if not self.request_id:
            self.request_id = _ID_PREFIX + b"%x" % _next_number()
        # joined in C: a format per header costs twice as much
        self.lines = b"\r\n".join(map(_pair, passed)) + b"\r\n" if passed else b""

    def _read(self, name: bytes, value: bytes) -> bool:
        """Take in one header that does not go on. True when it names further ones that must not."""
        if name == b"authorization":
            self.authorization = value if self.authorization is None else b""  # two of them: neither
        elif name == b"x-request-id":
            if _VALID_ID.fullmatch(value):
                self.request_id = value
        elif name == b"connection":
            return value.lower() not in {b"keep-alive", b"close"}
        else:
            self.timeout_ms = _milliseconds(value)
        return False


def _milliseconds(value: bytes) -> int:
    """Raises InvalidParameter unless it is a whole number of milliseconds above zero."""
    if not value.isdigit() or len(value) > 12 or not int(value):
        raise InvalidParameter("The timeout header must be a whole number of milliseconds above 0.", param="timeout")
    return int(value)


def _without_listed(passed: Headers, connection: bytes) -> Headers:
    """A client may name further hop-by-hop headers in `Connection`; those seen so far are taken out."""
    listed = {name.strip().lower() for name in connection.split(b",")}
    return [pair for pair in passed if pair[0] not in listed]
