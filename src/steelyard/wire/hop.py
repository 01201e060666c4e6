"""The hop between router and replica: what changes with every message stands last in its head, in one fixed form.

Both ends may then remember what all the lines before it mean, byte for byte, and parse only these few. A message in
any other form is parsed as HTTP always is; nothing here decides anything but how a head may be cut in two.
"""

from __future__ import annotations

import re
from typing import Final

from steelyard.contracts.usage import USAGE_HEADER
from steelyard.wire.request import Headers

REQUEST_MARK: Final = b"\r\ncontent-length: "
_REQUEST_TAIL: Final = re.compile(
    rb"\r\ncontent-length: ([0-9]{1,15})\r\n"
    rb"x-request-id: ([A-Za-z0-9._:-]{1,128})\r\n"
    rb"x-steelyard-deadline-ms: ([0-9]{1,15})\r\n\r\n"
)
REPLY_MARK: Final = b"\r\nendpoint-load-metrics: "
_REPLY_TAIL: Final = re.compile(
    rb"\r\nendpoint-load-metrics: ([\x20-\x7e]{0,512})\r\n"
    rb"(?:x-steelyard-usage: ([a-z0-9=;]{1,128})\r\n)?"
    rb"x-request-id: ([A-Za-z0-9._:-]{1,128})\r\n"
    rb"content-length: ([0-9]{1,15})\r\n\r\n"
)


def request_tail(content_length: int, request_id: bytes, deadline_ms: int) -> bytes:
    """The last lines of a request's head, with the empty line that ends it."""
    return b"content-length: %d\r\nx-request-id: %b\r\nx-steelyard-deadline-ms: %d\r\n\r\n" % (
        content_length, request_id, deadline_ms,
    )  # fmt: skip


def read_request_tail(data: bytes, cut: int) -> tuple[int, Headers] | None:
    """Where the body begins and the headers of the tail at `cut`; None unless the body ends where the data does."""
    found = _REQUEST_TAIL.match(data, cut)
    if found is None or found.end() + int(found[1]) != len(data):
        return None
    length, request_id, deadline_ms = found.groups()
    return found.end(), [
        (b"content-length", length),
        (b"x-request-id", request_id),
        (b"x-steelyard-deadline-ms", deadline_ms),
    ]


def read_reply_tail(data: bytes, cut: int) -> tuple[int, Headers] | None:
    """The same of a reply; content-length is not among the headers, for the caller has the body."""
    found = _REPLY_TAIL.match(data, cut)
    if found is None or found.end() + int(found[4]) != len(data):
        return None
    load, usage, request_id, _ = found.groups()
    if usage is None:
        return found.end(), [(b"endpoint-load-metrics", load), (b"x-request-id", request_id)]
    return found.end(), [(b"endpoint-load-metrics", load), (USAGE_HEADER, usage), (b"x-request-id", request_id)]
