"""One pass over a client's headers: what the router wants to know, and the lines that go on to a replica.

Hop-by-hop headers, credentials, and everything named `x-steelyard-*` stop here: a client cannot speak for the router.
It may say that nobody waits for an answer (`x-steelyard-priority: batch`), but nothing that puts it before others.
"""

from __future__ import annotations

import os
import re
from itertools import count
from typing import Final

from steelyard.errors import InvalidParameter, UnsupportedMediaType
from steelyard.policy.waiting import Priority
from steelyard.wire.request import Headers, Request

_STOPS: Final = frozenset((
    b"authorization", b"connection", b"content-length", b"cookie", b"expect", b"host", b"keep-alive",
    b"proxy-authorization", b"proxy-connection", b"te", b"trailer", b"transfer-encoding", b"upgrade",
    b"x-request-id", b"x-request-timeout-ms",
))  # fmt: skip
_RARE: Final = frozenset((b"connection", b"content-encoding", b"x-request-timeout-ms"))
_OURS: Final = b"x-steelyard-"
_INTERACTIVE: Final = int(Priority.INTERACTIVE)
_BATCH: Final = int(Priority.BATCH)
_pair: Final = b": ".join
_VALID_ID: Final = re.compile(rb"[A-Za-z0-9._:-]{1,128}")
_ID_PREFIX: Final = os.urandom(8).hex().encode() + b"-"
_next_number: Final = count(1).__next__


class Inbound:
    """`lines` are header lines, each with its line end; `timeout_ms` is None when the client named none.

    `request_id` is the client's, if it is a valid one, else empty.
    """

    __slots__ = ("authorization", "lines", "priority", "request_id", "session", "timeout_ms")

    def __init__(self, headers: Headers) -> None:
        by_name = dict(headers)  # found by C, not by a loop here; a repeated name is rare and looked at below
        self.authorization = _authorization(by_name, headers)
        self.timeout_ms: int | None = None
        self.priority = _INTERACTIVE
        self.session = by_name.get(b"x-session")  # requests of one session like to meet the same replica
        request_id = by_name.get(b"x-request-id", b"")
        self.request_id = request_id if _VALID_ID.fullmatch(request_id) else b""
        passed = [pair for pair in headers if pair[0] not in _STOPS]
        if not _RARE.isdisjoint(by_name):
            if by_name.get(b"content-encoding", b"identity").lower() not in (b"identity", b""):
                raise UnsupportedMediaType("A compressed body is not read; send it without Content-Encoding.")
            if b"x-request-timeout-ms" in by_name:
                self.timeout_ms = _milliseconds(by_name[b"x-request-timeout-ms"])
            passed = _without_listed(passed, headers)
        # joined in C: a format per header costs twice as much
        self.lines = b"\r\n".join(map(_pair, passed)) + b"\r\n" if passed else b""
        if _OURS in self.lines:  # looked for once, not per header
            if by_name.get(b"x-steelyard-priority") == b"batch":
                self.priority = _BATCH
            passed = [pair for pair in passed if not pair[0].startswith(_OURS)]
            self.lines = b"\r\n".join(map(_pair, passed)) + b"\r\n" if passed else b""


def read_inbound(request: Request) -> Inbound:
    """The request's `Inbound`, made once per distinct head. Raises InvalidParameter for a timeout that is none,
    UnsupportedMediaType for a compressed body."""
    notes = request.notes
    if notes is None:
        return Inbound(request.headers)
    inbound: Inbound | None = notes.get("inbound")
    if inbound is None:
        inbound = notes["inbound"] = Inbound(request.headers)
    return inbound


def read_authorization(headers: Headers) -> bytes | None:
    """The Authorization header; empty, and so no valid one, when there are several."""
    return _authorization(dict(headers), headers)


def new_request_id() -> bytes:
    """Unique among all routers: a random prefix per process, and a number."""
    return _ID_PREFIX + b"%x" % _next_number()


def _authorization(by_name: dict[bytes, bytes], headers: Headers) -> bytes | None:
    if len(by_name) != len(headers) and sum(pair[0] == b"authorization" for pair in headers) > 1:
        return b""
    return by_name.get(b"authorization")


def _milliseconds(value: bytes) -> int:
    """Raises InvalidParameter unless it is a whole number of milliseconds above zero."""
    if not value.isdigit() or len(value) > 12 or not int(value):
        raise InvalidParameter("The timeout header must be a whole number of milliseconds above 0.", param="timeout")
    return int(value)


def _without_listed(passed: Headers, headers: Headers) -> Headers:
    """A client may name further hop-by-hop headers in one or several `Connection` headers; they are taken out."""
    connection = b",".join(value for name, value in headers if name == b"connection")
    listed = {name.strip().lower() for name in connection.split(b",")}
    return [pair for pair in passed if pair[0] not in listed]
