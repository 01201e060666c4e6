"""Bytes in, complete requests out: llhttp's events, held to our limits while a request is still arriving.

`connection.py` owns one per client connection and feeds it; every violation is raised from `feed` as the error to
answer with, after which the assembler must not be fed again. Framing that could be read in two ways (and so could
smuggle a second request past a proxy) is refused here, by llhttp's strict rules and our own.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

import httptools

from steelyard.errors import (
    BadRequest,
    ExpectationFailed,
    HeadersTooLarge,
    InternalError,
    MethodNotImplemented,
    PayloadTooLarge,
    SteelyardError,
    Unavailable,
    UriTooLong,
)
from steelyard.observe.logs import get_logger
from steelyard.settings import HttpLimits
from steelyard.wire.hop import REQUEST_MARK, read_request_tail
from steelyard.wire.memo import HeadMemo, KnownHead
from steelyard.wire.request import Headers, Request, split_target

_METHODS: Final = {name.encode(): name for name in ("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS")}
# Host names, IPv4, bracketed IPv6 and a port: nothing that could be read as a path or as userinfo
_HOST_BYTES: Final = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~[]:%!$&'()*+,;="
_CHUNK_OVERHEAD: Final = 4  # chunk framing and trailers may be so many times the body limit

log = get_logger()


class Phase(Enum):
    """What is awaited. Members are bound to names below: reading one from its class costs too much."""

    IDLE = "the first byte of a request"
    HEAD = "the end of the headers"
    BODY = "the end of the body"


IDLE: Final = Phase.IDLE
HEAD: Final = Phase.HEAD
BODY: Final = Phase.BODY


class Arriving:
    """Bytes of unfinished bodies, over all connections of a server: slow uploads cannot fill the memory."""

    __slots__ = ("held_bytes",)

    def __init__(self) -> None:
        self.held_bytes = 0


class RequestAssembler:
    """`ready` holds complete requests as (request, keep_alive, is_http10); whoever feeds takes them out.

    `awaits_continue` is True while a client waits for `100 Continue` before it sends a body that we would take.
    """

    __slots__ = (
        "_arrived_bytes",
        "_arriving",
        "_at_boundary",
        "_body",
        "_body_bytes",
        "_content_length",
        "_fed_bytes",
        "_head",
        "_head_bytes",
        "_headers",
        "_hop",
        "_http10",
        "_in_pieces",
        "_limits",
        "_memo",
        "_more_body",
        "_parser",
        "_raw_bytes",
        "_taken",
        "_target",
        "_url",
        "awaits_continue",
        "phase",
        "ready",
    )

    def __init__(self, limits: HttpLimits, arriving: Arriving, memo: HeadMemo, *, hop: bool = False) -> None:
        self._limits = limits
        self._memo = memo
        self._hop = hop  # the peer is a router, which writes heads in the form of `hop.py`
        self._at_boundary = True  # llhttp has taken nothing of a request that it has not told
        self._head = b""  # of the request that began at the last boundary; empty: not worth remembering
        self._fed_bytes = 0  # since that boundary
        self._arriving = arriving
        self._arrived_bytes = 0  # ours of them
        self._parser = httptools.HttpRequestParser(self)
        self.ready: list[tuple[Request, bool, bool]] = []
        self.phase = IDLE
        self.awaits_continue = False
        self._url = b""
        self._target: tuple[bytes, str, str] = (b"", "", "")
        self._headers: Headers = []
        self._taken: Headers = []
        self._http10 = False
        self._content_length = -1  # -1: none, or chunked
        self._body = b""
        self._more_body: list[bytes] = []
        self._body_bytes = 0  # of a chunked body
        self._in_pieces = False  # the request needed more than one read
        self._head_bytes = 0  # of the reads before the one that ends the head
        self._raw_bytes = 0  # framing included, of the reads before the one that ends the body

    @property
    def head(self) -> tuple[str, Headers]:
        """Path and headers of the request whose body is arriving; meaningful in that phase only."""
        return self._target[1], self._taken

    def feed(self, data: bytes) -> None:
        """Parse one read. Raises the SteelyardError to answer with; `ready` is valid even then."""
        if self._at_boundary:
            if self._hop and self._feed_hop(data):
                return
            head_bytes = data.find(b"\r\n\r\n") + 4
            head = data[:head_bytes]
            known = self._memo.get(head)
            if known is not None and head_bytes + known.content_length == len(data):
                body = data[head_bytes:]
                request = Request(known.method, known.target, known.path, known.query, known.headers, body, known.notes)
                self.ready.append((request, True, False))
                return
            self._at_boundary = False
            self._head = head if head_bytes > 4 else b""
            self._fed_bytes = 0
        self._fed_bytes += len(data)
        self._parse(data)
        if self.phase is BODY and self._body and not self._arrived_bytes:
            self._hold(len(self._body))  # more is awaited: only now does the first piece count
        if len(self.ready) == 1 and self._head:
            self._remember()

    def _feed_hop(self, data: bytes) -> bool:
        """The same for a head of which only the last lines are new."""
        cut = data.find(REQUEST_MARK)
        known = self._memo.get(data[:cut]) if cut > 0 else None
        if known is None:
            return False
        tail = read_request_tail(data, cut)
        if tail is None:
            return False
        start, headers = tail
        if len(data) - start > self._limits.max_body_bytes:
            return False
        headers = known.headers + headers
        request = Request(known.method, known.target, known.path, known.query, headers, data[start:], known.notes)
        self.ready.append((request, True, False))
        return True

    def _remember(self) -> None:
        """If the reads since the last boundary held one request and no more, it is a boundary again; keep its head."""
        head, self._head = self._head, b""
        request, keep_alive, http10 = self.ready[0]
        by_name = dict(request.headers)
        if b"transfer-encoding" in by_name or len(head) + len(request.body) != self._fed_bytes:
            return
        self._at_boundary = True
        if keep_alive and not http10 and b"expect" not in by_name:
            target = (request.target, request.path, request.query)
            cut = head.find(REQUEST_MARK) if self._hop else -1
            tail = read_request_tail(head + request.body, cut) if cut > 0 else None
            if tail is None:
                self._memo.keep(head, KnownHead(request.method, target, request.headers, len(request.body)))
            else:  # llhttp has just read these headers in this order, so the ones of the tail are the last
                stable = request.headers[: -len(tail[1])]
                self._memo.keep(head[:cut], KnownHead(request.method, target, stable, -1))

    def _parse(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserCallbackError as error:
            cause = error.__context__
            if isinstance(cause, SteelyardError):
                raise cause from None
            log.error("http_parser_callback_failed", exc_info=cause)
            raise InternalError("The request could not be read.") from None
        except httptools.HttpParserInvalidMethodError:
            raise MethodNotImplemented("The request method is not known to this server.") from None
        except httptools.HttpParserUpgrade:
            raise BadRequest("Protocol upgrades are not supported.") from None
        except httptools.HttpParserError as error:
            raise BadRequest(f"The request is not well-formed HTTP/1.1: {error}.") from None
        if not self.ready:
            self._note_unfinished(len(data))

    def _note_unfinished(self, read_bytes: int) -> None:
        self._in_pieces = True
        if self.phase is not BODY:
            self.phase = HEAD
            self._head_bytes += read_bytes
            if self._head_bytes > self._limits.max_head_bytes:
                raise HeadersTooLarge(f"The request's headers are larger than {self._limits.max_head_bytes} bytes.")
        elif self._content_length < 0:
            self._raw_bytes += read_bytes
            if self._raw_bytes - self._body_bytes > _CHUNK_OVERHEAD * self._limits.max_body_bytes + 65536:
                raise PayloadTooLarge("The request's chunk framing or trailers are too large.")

    # --- llhttp's callbacks

    def on_url(self, url: bytes) -> None:
        self._url += url
        if len(self._url) > self._limits.max_uri_bytes:
            raise UriTooLong(f"The request target is longer than {self._limits.max_uri_bytes} bytes.")

    def on_header(self, name: bytes, value: bytes) -> None:
        if self.phase is not BODY:  # a trailer could change what was already decided
            self._headers.append((name.lower(), value.strip()))

    def on_headers_complete(self) -> None:
        parser = self._parser
        headers = self._headers
        limits = self._limits
        version = parser.get_http_version()
        if version != "1.1":
            if version != "1.0":
                raise BadRequest(f"HTTP/{version} is not supported; use HTTP/1.1.")
            self._http10 = True
        if self._head_bytes:  # the head came in several reads: weigh it exactly
            head_bytes = len(self._url) + sum(len(n) + len(v) + 4 for n, v in headers)
            if head_bytes > limits.max_head_bytes:
                raise HeadersTooLarge(f"The request's headers are larger than {limits.max_head_bytes} bytes.")
        if len(headers) > limits.max_headers:
            raise HeadersTooLarge(f"The request has more than {limits.max_headers} headers.")
        if parser.should_upgrade():
            raise BadRequest("Protocol upgrades and CONNECT are not supported.")
        by_name = dict(headers)
        self._check_framing(by_name)
        self._target = split_target(self._url)
        self.phase = BODY
        self._taken = headers
        if b"expect" in by_name and not self._http10:
            if by_name[b"expect"].lower() != b"100-continue":
                raise ExpectationFailed("The only supported expectation is 100-continue.")
            self.awaits_continue = self._content_length > 0 or b"transfer-encoding" in by_name

    def _check_framing(self, by_name: dict[bytes, bytes]) -> None:
        """Who is meant and how long the body is must be said once, and in one way."""
        headers = self._headers
        host = by_name.get(b"host")
        if host is None:
            if not self._http10:
                raise BadRequest("An HTTP/1.1 request needs a Host header.")
        elif host.translate(None, _HOST_BYTES) or (len(by_name) != len(headers) and _count(headers, b"host") != 1):
            raise BadRequest("The Host header is not valid, or there are several.")
        length = by_name.get(b"content-length")  # llhttp has refused anything but one plain number
        if length is not None:
            self._content_length = int(length)
            if self._content_length > self._limits.max_body_bytes:
                raise PayloadTooLarge(f"The body is larger than {self._limits.max_body_bytes} bytes.")
        coding = by_name.get(b"transfer-encoding")
        if coding is not None and (coding.lower() != b"chunked" or _count(headers, b"transfer-encoding") != 1):
            raise BadRequest("Transfer-Encoding must be exactly 'chunked'.")

    def on_body(self, piece: bytes) -> None:
        if self._content_length < 0:
            self._body_bytes += len(piece)
            if self._body_bytes > self._limits.max_body_bytes:
                raise PayloadTooLarge(f"The body is larger than {self._limits.max_body_bytes} bytes.")
        self.awaits_continue = False  # it did not wait
        if not self._body:
            self._body = piece
        else:
            if not self._arrived_bytes:
                self._hold(len(self._body))
            self._more_body.append(piece)
            self._hold(len(piece))

    def _hold(self, piece_bytes: int) -> None:
        self._arrived_bytes += piece_bytes
        self._arriving.held_bytes += piece_bytes
        if self._arriving.held_bytes > self._limits.max_arriving_bytes:
            raise Unavailable("Too many large requests are arriving at once.", retry_after_s=1.0)

    def forget_body(self) -> None:
        """The body is complete, or will never be."""
        self._body = b""
        self._more_body = []
        self._arriving.held_bytes -= self._arrived_bytes
        self._arrived_bytes = 0

    def on_message_complete(self) -> None:
        body = self._body
        if self._more_body:
            body = b"".join((body, *self._more_body))
        if self._arrived_bytes:
            self.forget_body()
        parser = self._parser
        method = parser.get_method()
        target, path, query = self._target
        request = Request(_METHODS.get(method) or method.decode(), target, path, query, self._taken, body)
        self.ready.append((request, parser.should_keep_alive(), self._http10))
        self.phase = IDLE
        self._http10 = self.awaits_continue = False
        self._url = self._body = b""
        self._headers = []
        self._content_length = -1
        if self._in_pieces or self._body_bytes:
            self._in_pieces = False
            self._head_bytes = self._raw_bytes = self._body_bytes = 0


def _count(headers: Headers, name: bytes) -> int:
    return sum(1 for pair in headers if pair[0] == name)
