"""The server against raw bytes: framing, limits, timeouts, pipelining, streaming, the end of connections."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager, suppress
from dataclasses import replace

import pytest

from steelyard.errors import Unauthenticated
from steelyard.settings import HttpLimits
from steelyard.wire.server import HttpServer
from support.raw_http import RawClient, ask, until

pytestmark = pytest.mark.anyio

LIMITS = HttpLimits(max_body_bytes=100_000, max_head_bytes=8_000, max_headers=20, max_uri_bytes=1_000, max_pipelined=4)
GET = b"GET /a HTTP/1.1\r\nhost: t\r\n\r\n"


class Site:
    """A handler that echoes, holds, streams or fails, by path; `seen` is every request that reached it."""

    def __init__(self) -> None:
        self.seen = []
        self.held = []
        self.gone = 0

    def handle(self, request, reply) -> None:
        self.seen.append(request)
        if request.path == "/hold":
            self.held.append(reply)
            reply.on_disconnect = self._note_gone
        elif request.path == "/stream":
            reply.start(200, [(b"content-type", b"text/plain")])
            reply.write(b"one")
            reply.write(b"two")
            reply.finish()
        elif request.path == "/cut":
            reply.start(200, [(b"content-type", b"text/plain")])
            reply.write(b"one")
            reply.abort()
        elif request.path == "/short":
            reply.start(200, [], content_length=10)
            reply.write(b"four")
            reply.finish()
        elif request.path == "/long":
            reply.start(200, [], content_length=2)
            reply.write(b"four")
        elif request.path == "/fail":
            raise RuntimeError("secret detail")
        else:
            reply.send(200, [(b"content-type", b"text/plain")], request.body or b"ok")

    def _note_gone(self) -> None:
        self.gone += 1


@asynccontextmanager
async def serving(limits=LIMITS, **options):
    site = Site()
    server = HttpServer(site.handle, limits, **options)
    await server.listen("tcp:127.0.0.1:0")
    site.server = server
    site.address = f"tcp:127.0.0.1:{server.port}"
    try:
        yield site
    finally:
        await server.stop(0.0)


@asynccontextmanager
async def connected(limits=LIMITS, **options):
    async with serving(limits, **options) as site:
        client = await RawClient.open(site.address)
        try:
            yield site, client
        finally:
            client.close()


async def test_a_request_is_answered_and_the_connection_kept():
    async with connected() as (site, client):
        for _ in range(3):
            client.request("POST", "/echo?x=1", b"hello")
            reply = await client.reply()
            assert (reply.status, reply.body, reply.complete) == (200, b"hello", True)
        assert site.seen[0].path == "/echo"
        assert site.seen[0].query == "x=1"
        assert len(site.server.connections) == 1


POST = b"POST / HTTP/1.1\r\nhost: t\r\n"
REFUSED = {
    "both lengths": (POST + b"content-length: 3\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n", 400),
    "lengths in the other order": (POST + b"transfer-encoding: chunked\r\ncontent-length: 3\r\n\r\n", 400),
    "two lengths": (POST + b"content-length: 3\r\ncontent-length: 4\r\n\r\nabcd", 400),
    "the same length twice": (POST + b"content-length: 3\r\ncontent-length: 3\r\n\r\nabc", 400),
    "length list": (POST + b"content-length: 3, 3\r\n\r\nabc", 400),
    "signed length": (POST + b"content-length: +3\r\n\r\nabc", 400),
    "hex length": (POST + b"content-length: 0x3\r\n\r\nabc", 400),
    "huge length": (POST + b"content-length: 99999999999999999999999\r\n\r\n", 400),
    "unknown coding": (POST + b"transfer-encoding: gzip\r\n\r\n", 400),
    "coding list": (POST + b"transfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 400),
    "two codings": (POST + b"transfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n", 400),
    "obscured coding": (POST + b"transfer-encoding: \x0bchunked\r\n\r\n0\r\n\r\n", 400),
    "coding with a space before the colon": (POST + b"transfer-encoding : chunked\r\n\r\n", 400),
    "length in a trailer": (
        POST + b"transfer-encoding: chunked\r\n\r\n1\r\na\r\n0\r\ncontent-length: 5\r\n\r\n", 400),
    "bad chunk size": (POST + b"transfer-encoding: chunked\r\n\r\nzz\r\n", 400),
    "chunk without its end": (POST + b"transfer-encoding: chunked\r\n\r\n1\r\nabc\r\n", 400),
    "folded header": (b"GET / HTTP/1.1\r\nhost: t\r\nx: a\r\n b\r\n\r\n", 400),
    "bare line feeds": (b"GET / HTTP/1.1\nhost: t\n\n", 400),
    "zero byte": (b"GET / HTTP/1.1\r\nhost: t\r\nx: a\x00b\r\n\r\n", 400),
    "bare carriage return": (b"GET / HTTP/1.1\r\nhost: t\r\nx: a\rb\r\n\r\n", 400),
    "no host": (b"GET / HTTP/1.1\r\nx: y\r\n\r\n", 400),
    "two hosts": (b"GET / HTTP/1.1\r\nhost: a\r\nhost: b\r\n\r\n", 400),
    "host with a path": (b"GET / HTTP/1.1\r\nhost: a/b\r\n\r\n", 400),
    "host with a user": (b"GET / HTTP/1.1\r\nhost: a@b\r\n\r\n", 400),
    "wrong version": (b"GET / HTTP/1.2\r\nhost: t\r\n\r\n", 400),
    "no version": (b"GET /\r\n\r\n", 400),
    "second protocol version": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400),
    "upgrade": (b"GET / HTTP/1.1\r\nhost: t\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n", 400),
    "tunnel": (b"CONNECT a:1 HTTP/1.1\r\nhost: a\r\n\r\n", 400),
    "unknown method": (b"FROB / HTTP/1.1\r\nhost: t\r\n\r\n", 501),
    "not HTTP": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 501),
    "dot segments": (b"GET /a/../b HTTP/1.1\r\nhost: t\r\n\r\n", 400),
    "encoded dot segments": (b"GET /a/%2e%2e/b HTTP/1.1\r\nhost: t\r\n\r\n", 400),
    "encoded zero byte": (b"GET /a%00 HTTP/1.1\r\nhost: t\r\n\r\n", 400),
    "broken UTF-8": (b"GET /a%ff HTTP/1.1\r\nhost: t\r\n\r\n", 400),
    "fragment": (b"GET /a#b HTTP/1.1\r\nhost: t\r\n\r\n", 400),
    "long target": (b"GET /" + b"a" * 2000 + b" HTTP/1.1\r\nhost: t\r\n\r\n", 414),
    "large header": (b"GET / HTTP/1.1\r\nhost: t\r\nx: " + b"a" * 9000 + b"\r\n\r\n", 431),
    "endless header": (b"GET / HTTP/1.1\r\nhost: t\r\nx: " + b"a" * 9000, 431),
    "many headers": (b"GET / HTTP/1.1\r\nhost: t\r\n" + b"x: y\r\n" * 30 + b"\r\n", 431),
    "large body declared": (POST + b"content-length: 100001\r\n\r\n", 413),
    "large body in chunks": (
        POST + b"transfer-encoding: chunked\r\n\r\n" + (b"ffff\r\n" + b"a" * 65535 + b"\r\n") * 2, 413),
    "large body expected": (POST + b"content-length: 100001\r\nexpect: 100-continue\r\n\r\n", 413),
    "unknown expectation": (POST + b"content-length: 1\r\nexpect: tea\r\n\r\n", 417),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
async def test_a_malformed_request_is_refused_once_and_the_connection_closed(name):
    data, status = REFUSED[name]
    async with connected() as (site, client):
        client.send(data)
        reply = await client.reply()
        assert reply.status == status
        assert reply.headers["connection"] == "close"
        body = json.loads(reply.body)
        assert body["message"].endswith(".")
        assert await client.ended()
        assert site.seen == []


async def test_a_refused_client_that_does_not_close_is_cut_off():
    async with connected() as (site, client):
        client.send(b"NONSENSE\r\n\r\n")
        await client.reply()
        assert len(site.server.connections) == 1
        await until(lambda: not site.server.connections)


async def test_a_second_request_cannot_be_smuggled_behind_two_lengths():
    smuggled = b"POST / HTTP/1.1\r\nhost: t\r\ncontent-length: 6\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\nG" + GET
    async with connected() as (site, client):
        client.send(GET + smuggled)
        assert (await client.reply()).status == 200
        assert (await client.reply()).status == 400
        assert await client.ended()
        assert [request.path for request in site.seen] == ["/a"]


async def test_trailers_are_dropped():
    async with connected() as (site, client):
        client.send(
            b"POST / HTTP/1.1\r\nhost: t\r\ntransfer-encoding: chunked\r\n\r\n"
            b"3;name=value\r\nabc\r\n2\r\nde\r\n0\r\nx-evil: 1\r\nhost: other\r\n\r\n"
        )
        reply = await client.reply()
        assert (reply.status, reply.body) == (200, b"abcde")
        assert site.seen[0].header(b"x-evil") is None
        client.send(GET)
        assert (await client.reply()).status == 200


async def test_endless_chunk_framing_is_refused():
    async with connected() as (_, client):
        client.send(b"POST / HTTP/1.1\r\nhost: t\r\ntransfer-encoding: chunked\r\n\r\n1\r\na\r\n0\r\n")
        for _ in range(100):
            client.send(b"t: " + b"x" * 8000 + b"\r\n")
        reply = await client.reply()
        assert reply.status in {413, 431}


async def test_bodies_that_are_still_arriving_are_bounded_together():
    async with serving(replace(LIMITS, max_arriving_bytes=150_000)) as site:
        clients = [await RawClient.open(site.address) for _ in range(4)]
        for client in clients:
            client.send(POST + b"content-length: 90000\r\n\r\n" + b"x" * 80_000)
        statuses = []
        for client in clients:
            with suppress(TimeoutError):
                async with asyncio.timeout(0.3):
                    statuses.append((await client.reply()).status)
        assert statuses
        assert set(statuses) == {503}
        assert len(statuses) < 4
        for client in clients:
            client.close()
        await until(lambda: site.server.arriving.held_bytes == 0)


async def test_the_first_piece_of_every_body_counts_as_arriving():
    async with serving(replace(LIMITS, max_arriving_bytes=25_000)) as site:
        clients = [await RawClient.open(site.address) for _ in range(3)]
        for client in clients[:2]:
            client.send(POST + b"content-length: 90000\r\n\r\n" + b"x" * 10_000)
        await until(lambda: site.server.arriving.held_bytes == 20_000)
        clients[2].send(GET + POST + b"content-length: 90000\r\n\r\n" + b"x" * 10_000)
        assert (await clients[2].reply()).status == 200
        assert (await clients[2].reply()).status == 503
        clients[0].send(b"x" * 3_000)
        await until(lambda: site.server.arriving.held_bytes == 23_000)
        for client in clients:
            client.close()
        await until(lambda: site.server.arriving.held_bytes == 0)


def refuse_secrets(path, headers):
    if path.endswith("/secret") and (b"key", b"1") not in headers:
        raise Unauthenticated("No key was sent.")


async def test_a_head_that_is_refused_gets_no_100_continue_and_its_body_is_not_taken():
    async with serving(on_head=refuse_secrets) as site:
        late = b"POST /secret HTTP/1.1\r\nhost: t\r\ncontent-length: 90000\r\n"
        for extra in (b"expect: 100-continue\r\n\r\n", b"\r\n" + b"x" * 5_000):
            client = await RawClient.open(site.address)
            client.send(late + extra)
            reply = await client.reply()
            assert (reply.status, reply.informational, reply.headers["connection"]) == (401, [], "close")
            client.send(b"x" * 50_000)
            assert await client.ended()
            assert site.server.arriving.held_bytes == 0
            client.close()
        assert site.seen == []
        client = await RawClient.open(site.address)
        client.send(late + b"key: 1\r\nexpect: 100-continue\r\n\r\n")
        assert await client.reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        client.send(b"x" * 90_000)
        assert len((await client.reply()).body) == 90_000
        client.close()


async def test_a_refused_head_is_answered_after_the_replies_before_it_and_in_its_paths_dialect():
    async with connected(on_head=refuse_secrets) as (site, client):
        client.send(GET.replace(b"/a", b"/hold") + POST.replace(b"/ ", b"/v1/secret ") + b"content-length: 9\r\n\r\nab")
        await until(lambda: site.held)
        site.held[0].send(200, [], b"first")
        assert (await client.reply()).body == b"first"
        reply = await client.reply()
        assert reply.status == 401
        assert json.loads(reply.body)["error"]["code"] == "UNAUTHENTICATED"
        assert await client.ended()
        assert len(site.seen) == 1


async def test_beyond_the_limit_the_newest_connection_is_closed_at_once():
    async with serving(replace(LIMITS, max_connections=2)) as site:
        first, second, third = [await RawClient.open(site.address) for _ in range(3)]
        assert await third.ended()
        for client in (first, second):
            client.request("GET", "/a")
            assert (await client.reply()).status == 200
        first.close()
        await until(lambda: len(site.server.connections) == 1)
        assert (await ask(site.address, "GET", "/a")).status == 200
        second.close()


async def test_a_head_split_byte_by_byte_is_one_request():
    async with connected() as (site, client):
        for byte in b"POST /echo HTTP/1.1\r\nHost: t\r\nContent-Length: 3\r\nX-A:  b \t\r\n\r\nabc":
            client.send(bytes([byte]))
            await client.writer.drain()
            await asyncio.sleep(0)
        assert (await client.reply()).body == b"abc"
        assert site.seen[0].header(b"x-a") == b"b"


async def test_pipelined_requests_are_answered_in_order_and_their_number_held_is_bounded():
    async with connected() as (site, client):
        client.send(GET.replace(b"/a", b"/hold"))
        await until(lambda: site.held)
        for number in range(40):
            client.send(b"POST /echo HTTP/1.1\r\nhost: t\r\ncontent-length: 5\r\n\r\n%05d" % number)
            await asyncio.sleep(0.001)
        (connection,) = site.server.connections
        assert len(connection._queue) <= LIMITS.max_pipelined + 1
        site.held[0].send(200, [], b"first")
        assert (await client.reply()).body == b"first"
        for number in range(40):
            assert (await client.reply()).body == b"%05d" % number


async def test_requests_of_a_client_that_reads_no_reply_are_bounded_and_answered_once_it_reads():
    async with connected() as (site, client):
        client.writer.transport.pause_reading()
        client.request("GET", "/hold")
        await until(lambda: site.held)
        site.held[0].send(200, [], bytes(20_000_000))
        (connection,) = site.server.connections
        assert connection.write_paused
        for _ in range(40):
            client.send(GET)
            await asyncio.sleep(0.001)
        assert len(connection._queue) <= LIMITS.max_pipelined + 1
        client.writer.transport.resume_reading()
        assert len((await client.reply()).body) == 20_000_000
        for _ in range(40):
            assert (await client.reply()).body == b"ok"


async def test_many_pipelined_requests_in_one_segment_are_all_answered():
    async with connected() as (_, client):
        client.send(GET * 2000)
        for _ in range(2000):
            assert (await client.reply()).status == 200


async def test_replies_owed_come_before_the_answer_to_a_malformed_request():
    async with connected() as (site, client):
        client.send(GET.replace(b"/a", b"/hold") + b"NONSENSE\r\n\r\n")
        await until(lambda: site.held)
        site.held[0].send(200, [], b"first")
        assert (await client.reply()).body == b"first"
        assert (await client.reply()).status in {400, 501}
        assert await client.ended()


async def test_connection_close_and_http_1_0_end_the_connection_and_its_keep_alive_does_not():
    async with connected() as (_, client):
        client.send(b"GET / HTTP/1.1\r\nhost: t\r\nconnection: close\r\n\r\n" + GET)
        assert (await client.reply()).headers["connection"] == "close"
        assert await client.ended()
    async with connected() as (_, client):
        client.send(b"GET / HTTP/1.0\r\nconnection: keep-alive\r\n\r\n")
        assert (await client.reply()).headers["connection"] == "keep-alive"
        client.send(b"GET / HTTP/1.0\r\n\r\n")
        assert (await client.reply()).headers["connection"] == "close"
        assert await client.ended()


async def test_earlier_pipelined_replies_do_not_close_for_a_later_connection_close():
    async with connected() as (site, client):
        client.send(GET.replace(b"/a", b"/hold") + b"GET / HTTP/1.1\r\nhost: t\r\nconnection: close\r\n\r\n")
        await until(lambda: site.held)
        site.held[0].send(200, [], b"first")
        assert "connection" not in (await client.reply()).headers
        assert (await client.reply()).headers["connection"] == "close"


async def test_streams_are_chunked_for_http_1_1_and_close_delimited_for_http_1_0():
    async with connected() as (_, client):
        client.request("GET", "/stream")
        reply = await client.reply()
        assert reply.headers["transfer-encoding"] == "chunked"
        assert (reply.body, reply.complete) == (b"onetwo", True)
        client.send(b"GET /stream HTTP/1.0\r\n\r\n")
        reply = await client.reply()
        assert "transfer-encoding" not in reply.headers
        assert reply.body == b"onetwo"


async def test_head_is_answered_without_a_body_and_the_connection_stays_in_step():
    async with connected() as (_, client):
        client.request("HEAD", "/a")
        reply = await client.reply(bodyless=True)
        assert reply.headers["content-length"] == "2"
        client.request("HEAD", "/stream")
        await client.reply(bodyless=True)
        client.request("GET", "/a")
        assert (await client.reply()).body == b"ok"


@pytest.mark.parametrize("path", ["/cut", "/short", "/long"])
async def test_an_aborted_or_miscounted_reply_never_looks_complete(path):
    async with connected() as (_, client):
        client.request("GET", path)
        with suppress(EOFError):
            assert not (await client.reply()).complete


async def test_an_aborted_close_delimited_reply_is_reset():
    async with connected() as (_, client):
        client.send(b"GET /cut HTTP/1.0\r\n\r\n")
        with pytest.raises(ConnectionResetError):
            await client.reader.readexactly(10_000)


async def test_a_failing_handler_gives_500_without_its_detail():
    async with connected() as (_, client):
        client.request("GET", "/fail")
        reply = await client.reply()
        assert reply.status == 500
        assert b"secret" not in reply.body
        client.send(GET)
        assert (await client.reply()).status == 200


async def test_100_continue_is_sent_only_for_an_acceptable_body():
    async with connected() as (_, client):
        client.send(b"POST /echo HTTP/1.1\r\nhost: t\r\ncontent-length: 3\r\nexpect: 100-continue\r\n\r\n")
        assert await client.reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        client.send(b"abc")
        assert (await client.reply()).body == b"abc"
        client.send(b"POST /echo HTTP/1.1\r\nhost: t\r\ncontent-length: 3\r\nexpect: 100-continue\r\n\r\nabc")
        assert (await client.reply()).informational in ([], [100])
        client.send(b"POST /echo HTTP/1.1\r\nhost: t\r\ncontent-length: 100001\r\nexpect: 100-continue\r\n\r\n")
        reply = await client.reply()
        assert (reply.status, reply.informational) == (413, [])


async def test_100_continue_waits_for_the_reply_before_it():
    async with connected() as (site, client):
        client.send(
            GET.replace(b"/a", b"/hold")
            + b"POST /echo HTTP/1.1\r\nhost: t\r\ncontent-length: 3\r\nexpect: 100-continue\r\n\r\n"
        )
        await until(lambda: site.held)
        site.held[0].send(200, [], b"first")
        assert (await client.reply()).body == b"first"
        assert await client.reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        client.send(b"abc")
        assert (await client.reply()).body == b"abc"


async def test_a_client_that_leaves_is_noticed_at_once_and_once():
    async with connected() as (site, client):
        client.request("GET", "/hold")
        await until(lambda: site.held)
        client.close()
        await until(lambda: site.gone == 1)
        assert site.held[0].closed
        site.held[0].send(200, [], b"too late")
    assert site.gone == 1


async def test_a_half_closed_client_counts_as_gone():
    async with connected() as (site, client):
        client.request("GET", "/hold")
        await until(lambda: site.held)
        client.writer.write_eof()
        await until(lambda: site.gone == 1)


async def test_slow_heads_slow_bodies_and_idle_connections_time_out():
    limits = replace(LIMITS, head_timeout_s=0.5, body_idle_timeout_s=0.5, keep_alive_s=0.5)
    async with serving(limits) as site:
        head, body, idle = [await RawClient.open(site.address) for _ in range(3)]
        head.send(b"GET / HTT")
        body.send(b"POST / HTTP/1.1\r\nhost: t\r\ncontent-length: 9\r\n\r\nab")
        assert (await head.reply()).status == 408
        assert (await body.reply()).status == 408
        assert await idle.ended()
        await until(lambda: not site.server.connections)
        for client in (head, body, idle):
            client.close()


async def test_a_dripping_head_cannot_restart_its_timer():
    async with connected(replace(LIMITS, head_timeout_s=1.0)) as (_, client):

        async def drip() -> None:
            client.send(b"GET / HTTP/1.1\r\n")
            while True:
                client.send(b"x: y\r\n")
                await asyncio.sleep(0.2)

        async with asyncio.TaskGroup() as tasks:
            dripping = tasks.create_task(drip())
            assert (await client.reply()).status == 408
            dripping.cancel()


async def test_without_idle_timeouts_an_idle_connection_stays():
    async with connected(replace(LIMITS, keep_alive_s=0.1), idle_timeouts=False) as (_, client):
        await asyncio.sleep(1.3)
        client.send(GET)
        assert (await client.reply()).status == 200


async def test_a_running_request_is_never_timed_out_by_the_server():
    async with connected(replace(LIMITS, head_timeout_s=0.1, keep_alive_s=0.1)) as (site, client):
        client.request("GET", "/hold")
        await until(lambda: site.held)
        await asyncio.sleep(1.3)
        site.held[0].send(200, [], b"late")
        assert (await client.reply()).body == b"late"


async def test_a_slow_reader_pauses_the_writer_and_resumes_it():
    async with connected() as (site, client):
        events = []
        client.request("GET", "/hold")
        await until(lambda: site.held)
        reply = site.held[0]
        reply.on_pause = lambda: events.append("pause")
        reply.on_resume = lambda: events.append("resume")
        reply.start(200, [], content_length=8_000_000)
        for _ in range(8):
            reply.write(b"x" * 1_000_000)
        await until(lambda: "pause" in events)
        waiting = asyncio.ensure_future(reply.drained())
        await asyncio.sleep(0.05)
        assert not waiting.done()
        got = await client.reply()
        await waiting
        reply.finish()
        assert len(got.body) == 8_000_000
        assert events[-1] == "resume"


async def test_stop_refuses_new_connections_and_lets_running_requests_finish():
    async with serving() as site:
        running, idle = await RawClient.open(site.address), await RawClient.open(site.address)
        running.request("GET", "/hold")
        await until(lambda: site.held)
        stopping = asyncio.ensure_future(site.server.stop(5.0))
        assert await idle.ended()
        with pytest.raises(OSError):  # noqa: PT011 - refused or reset
            await RawClient.open(site.address)
        site.held[0].send(200, [], b"done")
        reply = await running.reply()
        assert (reply.body, reply.headers["connection"]) == (b"done", "close")
        await asyncio.wait_for(stopping, 2)


async def test_stop_cuts_off_what_outlives_the_drain():
    async with serving() as site:
        client = await RawClient.open(site.address)
        client.request("GET", "/hold")
        await until(lambda: site.held)
        await site.server.stop(0.05)
        await until(lambda: site.gone == 1)
        assert await client.ended()


async def test_a_unix_socket_is_private_replaces_a_stale_one_and_is_removed(tmp_path):
    path = tmp_path / "s.sock"
    for _ in range(2):
        site = Site()
        server = HttpServer(site.handle, LIMITS)
        await server.listen(f"unix:{path}")
        assert path.stat().st_mode & 0o777 == 0o600
        assert (await ask(f"unix:{path}", "GET", "/a")).status == 200
    await server.stop(0.0)
    assert not path.exists()


async def test_an_absolute_form_target_is_a_path():
    async with connected() as (site, client):
        client.send(b"GET http://other/b?c=d HTTP/1.1\r\nhost: t\r\n\r\n")
        assert (await client.reply()).status == 200
        assert (site.seen[0].path, site.seen[0].query, site.seen[0].target) == ("/b", "c=d", b"/b?c=d")
