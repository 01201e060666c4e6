"""The assembler: remembered heads must never change what a stream of bytes means."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from steelyard.errors import SteelyardError
from steelyard.settings import HttpLimits
from steelyard.wire.assembly import Arriving, RequestAssembler
from steelyard.wire.hop import request_tail
from steelyard.wire.memo import HeadMemo

LIMITS = HttpLimits(max_body_bytes=1000, max_head_bytes=2000)
HOP = b"POST /a HTTP/1.1\r\nhost: t\r\nx: y\r\n"
POST = b"POST /a?b HTTP/1.1\r\nhost: t\r\ncontent-length: 3\r\n\r\n"
GET = b"GET /a HTTP/1.1\r\nhost: t\r\n\r\n"
PIECES = [
    GET,
    POST + b"abc",
    POST + b"xyz",
    POST,
    b"abc",
    POST + b"ab",
    b"X",
    b"\r\n",
    b"GE",
    b"POST /c HTTP/1.1\r\nhost: t\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
    b"POST /c HTTP/1.1\r\nhost: t\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nx: y\r\n\r\n",
    b"0\r\n\r\n",
    b"GET /a HTTP/1.0\r\nconnection: keep-alive\r\n\r\n",
    b"GET /a HTTP/1.1\r\nhost: t\r\nconnection: close\r\n\r\n",
    b"POST /e HTTP/1.1\r\nhost: t\r\nexpect: 100-continue\r\ncontent-length: 3\r\n\r\nabc",
    b"GET /a HTTP/1.1\r\nhost: t\r\n\r\n"[:-1],
    HOP + request_tail(3, b"id-1", 900) + b"abc",
    HOP + request_tail(2, b"id-2", 901) + b"ab",
    HOP + request_tail(0, b"id-3", 902),
    HOP + request_tail(4, b"id-4", 903) + b"abc",
    HOP + b"content-length: 3\r\nx-request-id: id-5\r\n\r\nabc",
    HOP + b"content-length: 3\r\nx-request-id: id-6\r\nx-steelyard-deadline-ms: 9\r\nmore: 1\r\n\r\nabc",
    HOP + b"content-length: 3\r\nx-request-id: id 7\r\nx-steelyard-deadline-ms: 9\r\n\r\nabc",
    HOP + b"content-length: 9999\r\nx-request-id: i\r\nx-steelyard-deadline-ms: 9\r\n\r\n" + b"a" * 9999,
]


class Forgetful(HeadMemo):
    __slots__ = ()

    def keep(self, head, known) -> None:
        pass


def meaning(reads, memo, hop=False):
    """Everything that an assembler says about these reads."""
    assembler = RequestAssembler(LIMITS, Arriving(), memo, hop=hop)
    said = []
    for read in reads:
        error = None
        try:
            assembler.feed(read)
        except SteelyardError as raised:
            error = raised.body()
        for request, keep_alive, http10 in assembler.ready:
            facts = (request.method, request.target, request.path, request.query, request.headers, request.body)
            said.append((facts, keep_alive, http10))
        closed = any(not keep_alive for _, keep_alive, _ in assembler.ready)
        assembler.ready.clear()
        said.append((error, assembler.phase, assembler.awaits_continue))
        if error or closed:
            break
    return said


@settings(max_examples=500)
@given(st.lists(st.lists(st.sampled_from(PIECES), min_size=1, max_size=3).map(b"".join), max_size=8), st.booleans())
def test_a_warm_memo_says_what_the_parser_says(reads, hop):
    warm = HeadMemo()
    for piece in PIECES:
        meaning([piece], warm, hop)
    meaning(reads, warm, hop)
    assert meaning(reads, warm, hop) == meaning(reads, Forgetful())


def test_requests_of_a_router_share_their_notes_whatever_their_length_id_and_deadline():
    memo = HeadMemo()
    assembler = RequestAssembler(LIMITS, Arriving(), memo, hop=True)
    seen = []
    for number in range(1, 5):
        assembler.feed(HOP + request_tail(number, b"id-%d" % number, 100 * number) + b"a" * number)
        seen.append(assembler.ready.pop()[0])
    assert len(memo._heads) == 1
    assert seen[1].notes is seen[2].notes is seen[3].notes is not None
    tail = [(b"content-length", b"4"), (b"x-request-id", b"id-4"), (b"x-steelyard-deadline-ms", b"400")]
    assert seen[3].headers == seen[0].headers[:-3] + tail


def test_a_known_head_behind_leftover_bytes_is_not_taken_for_a_request():
    memo = HeadMemo()
    meaning([GET], memo)
    facts, *_ = meaning([GET + b"X", GET], memo)
    assert facts[0][0] == "GET"
    assert meaning([GET + b"X", GET], memo)[-1][0] is not None  # "XGET" is no method


def test_requests_with_one_head_share_their_notes_and_nothing_else():
    memo = HeadMemo()
    assembler = RequestAssembler(LIMITS, Arriving(), memo)
    seen = []
    for body in (b"abc", b"xyz", b"123"):
        assembler.feed(POST + body)
        seen.append(assembler.ready.pop()[0])
    assert [request.body for request in seen] == [b"abc", b"xyz", b"123"]
    assert seen[0].notes is None
    assert seen[1].notes is seen[2].notes


def test_the_memo_is_bounded():
    memo = HeadMemo()
    for number in range(2000):
        meaning([b"GET /%d HTTP/1.1\r\nhost: t\r\n\r\n" % number], memo)
    meaning([b"GET / HTTP/1.1\r\nhost: t\r\nx: " + b"a" * 1900 + b"\r\n\r\n"], memo)
    assert len(memo._heads) <= 512
