"""The client pool against upstreams that keep, drop, stall and break connections."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

import pytest

from steelyard.errors import BadUpstream, DeadlineExceeded
from steelyard.settings import HttpLimits
from steelyard.wire.client import FailureKind, Pool, ResponseSink
from steelyard.wire.fetch import encode_head, fetch
from steelyard.wire.server import HttpServer
from support.raw_http import until

pytestmark = pytest.mark.anyio


class Recorder(ResponseSink):
    """Notes every call in order."""

    def __init__(self) -> None:
        self.status = None
        self.length = None
        self.headers = []
        self.pieces = []
        self.ended = False
        self.failure = None

    def on_head(self, status, headers, content_length) -> None:
        self.status, self.headers, self.length = status, headers, content_length

    def on_piece(self, data) -> None:
        self.pieces.append(data)

    def on_end(self) -> None:
        self.ended = True

    def on_failure(self, failure) -> None:
        self.failure = failure

    @property
    def over(self) -> bool:
        return self.ended or self.failure is not None


@asynccontextmanager
async def scripted(*answers: bytes | None, path):
    """An upstream whose n-th connection sends the n-th answer at the first byte and closes (None: stays silent)."""
    connections = []

    async def serve(reader, writer) -> None:
        connections.append(writer)
        answer = answers[len(connections) - 1]
        await reader.read(65536)
        if answer is not None:
            writer.write(answer)
            writer.close()
        else:
            await reader.read()
            writer.close()

    server = await asyncio.start_unix_server(serve, str(path))
    pool = Pool(f"unix:{path}")
    try:
        yield pool, connections
    finally:
        pool.close()
        server.close()


def get(pool: Pool, **options):
    sink = Recorder()
    sink.connection = pool.send(sink, encode_head("GET", b"/", [(b"host", b"u")], 0), b"", **options)
    return sink


OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX-Up: 1 \r\nConnection: keep-alive\r\n\r\nok"


async def test_headers_arrive_lower_cased_and_without_hop_by_hop_ones(tmp_path):
    async with scripted(OK, path=tmp_path / "u") as (pool, _):
        sink = get(pool)
        await until(lambda: sink.over)
        assert (sink.status, sink.length, sink.headers) == (200, 2, [(b"x-up", b"1")])
        assert b"".join(sink.pieces) == b"ok"


async def test_a_second_answer_to_one_request_is_nobodys(tmp_path):
    async with scripted(OK + OK.replace(b"ok", b"no"), path=tmp_path / "u") as (pool, _):
        sink = get(pool)
        await until(lambda: sink.over)
        assert (sink.status, sink.length, b"".join(sink.pieces)) == (200, 2, b"ok")
        assert pool.idle_count == 0


@pytest.mark.parametrize(
    ("answer", "kind", "seen"),
    [
        (b"", FailureKind.LOST, 0),
        (b"HTTP/1.1 200", FailureKind.LOST, 12),
        (OK[:-1], FailureKind.LOST, len(OK) - 1),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n", FailureKind.LOST, 54),
        (b"garbage\r\n\r\n", FailureKind.MALFORMED, 11),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\ntransfer-encoding: chunked\r\n\r\n", FailureKind.MALFORMED, 66),
        (b"HTTP/1.1 101 Switching\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n", FailureKind.MALFORMED, 59),
    ],
)
async def test_a_broken_answer_is_one_failure_that_says_how_much_was_seen(tmp_path, answer, kind, seen):
    async with scripted(answer, path=tmp_path / "u") as (pool, _):
        sink = get(pool)
        await until(lambda: sink.over)
        assert not sink.ended
        assert sink.failure.kind is kind
        assert sink.failure.bytes_seen == seen


async def test_informational_answers_are_skipped_and_close_delimited_ones_end_at_the_close(tmp_path):
    answers = (b"HTTP/1.1 103 Early\r\nlink: x\r\n\r\n" + OK, b"HTTP/1.0 200 OK\r\n\r\nall of it")
    async with scripted(*answers, path=tmp_path / "u") as (pool, _):
        first = get(pool)
        await until(lambda: first.over)
        assert (first.status, first.headers) == (200, [(b"x-up", b"1")])
        second = get(pool, fresh=True)
        await until(lambda: second.over)
        assert second.ended
        assert b"".join(second.pieces) == b"all of it"


async def test_nothing_listening_is_a_connect_failure(tmp_path):
    sink = get(Pool(f"unix:{tmp_path / 'nobody'}"))
    await until(lambda: sink.over)
    assert sink.failure.kind is FailureKind.CONNECT


async def test_a_host_that_does_not_answer_is_a_connect_failure_in_bounded_time():
    sink = get(Pool("tcp:192.0.2.1:9", connect_timeout_s=0.2))
    await until(lambda: sink.over, 3)
    assert sink.failure.kind is FailureKind.CONNECT


async def test_cancelling_closes_the_connection_and_calls_nobody(tmp_path):
    async with scripted(None, path=tmp_path / "u") as (pool, accepted):
        sink = get(pool)
        await until(lambda: accepted)
        await asyncio.sleep(0.02)
        sink.connection.cancel()
        await until(accepted[0].is_closing)
        assert not sink.over


async def test_cancelling_while_connecting_leaves_a_usable_connection(tmp_path):
    async with upstream(tmp_path) as (pool, site):
        sink = get(pool)
        sink.connection.cancel()
        await until(lambda: pool.idle_count == 1)
        assert not sink.over
        assert site.requests == 0
        assert (await fetch(pool, "GET", b"/")).body == b"ok"


class Upstream:
    def __init__(self) -> None:
        self.requests = 0
        self.open_reply = None

    def handle(self, request, reply) -> None:
        self.requests += 1
        if request.path == "/hold":
            self.open_reply = reply
        elif request.path == "/big":
            reply.start(200, [], content_length=4_000_000)
            for _ in range(4):
                reply.write(b"x" * 1_000_000)
            reply.finish()
        else:
            reply.send(200, [], request.body or b"ok")


@asynccontextmanager
async def upstream(tmp_path, **limits):
    site = Upstream()
    site.server = HttpServer(site.handle, HttpLimits(**limits))
    await site.server.listen(f"unix:{tmp_path / 'u'}")
    pool = Pool(f"unix:{tmp_path / 'u'}")
    try:
        yield pool, site
    finally:
        pool.close()
        await site.server.stop(0.0)


async def test_connections_are_reused_last_in_first_out(tmp_path):
    async with upstream(tmp_path) as (pool, site):
        for _ in range(5):
            assert (await fetch(pool, "POST", b"/", body=b"x" * 200_000)).body == b"x" * 200_000
        assert len(site.server.connections) == 1
        await asyncio.gather(*(fetch(pool, "GET", b"/") for _ in range(4)))
        assert pool.idle_count <= 4


async def test_a_connection_that_died_idle_is_told_from_one_that_died_serving(tmp_path):
    async with upstream(tmp_path) as (pool, site):
        assert (await fetch(pool, "GET", b"/")).status == 200
        for connection in list(site.server.connections):
            connection.transport.abort()
        sink = get(pool)  # before the loop has seen the end
        await until(lambda: sink.over)
        assert sink.failure.kind is FailureKind.STALE

        assert (await fetch(pool, "GET", b"/")).status == 200
        sink = Recorder()
        pool.send(sink, encode_head("GET", b"/hold", [(b"host", b"u")], 0), b"")
        await until(lambda: site.open_reply is not None)
        await asyncio.sleep(0.1)
        site.open_reply.abort()
        await until(lambda: sink.over)
        assert sink.failure.kind is FailureKind.LOST


async def test_pausing_stops_the_flow_and_a_paused_connection_is_reusable_afterwards(tmp_path):
    async with upstream(tmp_path) as (pool, _):
        sink = Recorder()
        connection = pool.send(sink, encode_head("GET", b"/big", [(b"host", b"u")], 0), b"")
        await until(lambda: sink.pieces)
        connection.pause()
        await asyncio.sleep(0.02)
        count = len(sink.pieces)
        await asyncio.sleep(0.05)
        assert len(sink.pieces) == count
        connection.resume()
        await until(lambda: sink.ended)
        assert sum(map(len, sink.pieces)) == 4_000_000
        assert (await fetch(pool, "GET", b"/")).body == b"ok"


async def test_fetch_times_out_and_reports_failures_as_errors(tmp_path):
    async with upstream(tmp_path) as (pool, site):
        with pytest.raises(DeadlineExceeded):
            await fetch(pool, "GET", b"/hold", timeout_s=0.05)
        await until(lambda: site.open_reply.closed)
    with pytest.raises(BadUpstream):
        await fetch(pool, "GET", b"/")


HOP_REPLY = (
    b"HTTP/1.1 %d X\r\ncontent-type: a/b\r\nendpoint-load-metrics: JSON %d\r\nx-request-id: i%d\r\n"
    b"content-length: %d\r\n\r\n%b"
)


async def test_a_remembered_reply_head_says_what_the_parser_said(tmp_path):
    answers = [
        HOP_REPLY % (200, 1, 1, 2, b"ok"),
        HOP_REPLY % (200, 2, 2, 5, b"later"),
        HOP_REPLY % (503, 3, 3, 4, b"busy"),
        HOP_REPLY % (200, 4, 4, 0, b""),
        (HOP_REPLY % (200, 5, 5, 3, b"cut"))[:-1],  # its last byte comes in another read
        HOP_REPLY % (200, 6, 6, 2, b"ok"),
    ]

    async def serve(reader, writer) -> None:
        for answer in answers:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(answer)
            if answer.endswith(b"cu"):
                await writer.drain()
                await asyncio.sleep(0.05)
                writer.write(b"t")

    address = tmp_path / "s"
    server = await asyncio.start_unix_server(serve, str(address))
    pool = Pool(f"unix:{address}")
    seen = []
    for _ in answers:
        sink = Recorder()
        pool.send(sink, b"GET / HTTP/1.1\r\nhost: t\r\n\r\n", b"")
        await until(lambda sink=sink: sink.over)
        seen.append((sink.status, dict(sink.headers), b"".join(sink.pieces)))
    pool.close()
    server.close()
    for number, (status, headers, body) in enumerate(seen, start=1):
        assert status == (503 if number == 3 else 200)
        assert headers == {
            b"content-type": b"a/b",
            b"endpoint-load-metrics": b"JSON %d" % number,
            b"x-request-id": b"i%d" % number,
        }
        assert body == [b"ok", b"later", b"busy", b"", b"cut", b"ok"][number - 1]
    assert len(pool.heads) == 2
