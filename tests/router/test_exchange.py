"""One request's life: every way in which it can go, and in each of them exactly one settlement.

`world` checks at its end that the ledger is at rest and that what was charged was settled.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress

import pytest

from steelyard.router.queue import WaitingLine
from steelyard.settings import HttpLimits
from steelyard.wire.client import Pool, UpstreamConnection
from support.raw_http import RawClient, until
from support.router_world import INVOCATIONS, TOKEN, charge_of, world

pytestmark = pytest.mark.anyio

CHAT = "/v1/chat/completions"


async def test_a_request_goes_to_the_replica_and_its_answer_comes_back(tmp_path):
    async with world(tmp_path) as w:
        reply = await w.ask({"do": "echo", "x": 1}, cookie="secret", x_custom="kept", accept="*/*")
        assert (reply.status, json.loads(reply.body)) == (200, {"do": "echo", "x": 1})
        assert reply.headers["served-model-name"] == "m-1"
        assert reply.headers["x-replica"] == "m-1-0"
        (request,) = w.replicas[0].requests
        assert request.path == "/invocations"
        assert request.header(b"x-custom") == b"kept"
        assert request.header(b"authorization") is None
        assert request.header(b"cookie") is None
        assert request.header(b"x-steelyard-priority") == b"interactive"
        assert 290_000 < int(request.header(b"x-steelyard-deadline-ms")) <= 297_000
        assert request.header(b"x-request-id").decode() == reply.headers["x-request-id"]


async def test_a_clients_request_id_is_kept_and_its_steelyard_headers_are_not(tmp_path):
    async with world(tmp_path) as w:
        ours = {"x_steelyard_principal": "root", "x_steelyard_priority": "probe", "x_steelyard_deadline_ms": "9"}
        reply = await w.ask({}, x_request_id="abc-1", **ours)
        assert reply.headers["x-request-id"] == "abc-1"
        (request,) = w.replicas[0].requests
        assert request.header(b"x-request-id") == b"abc-1"
        assert request.header(b"x-steelyard-principal") is None
        assert request.header(b"x-steelyard-priority") == b"interactive"
        assert int(request.header(b"x-steelyard-deadline-ms")) > 9
        reply = await w.ask({}, x_request_id="not valid!")
        assert reply.headers["x-request-id"] != "not valid!"


@pytest.mark.parametrize("command", [{"do": "echo"}, {"do": "stream"}])
async def test_what_a_replica_tells_the_router_of_its_usage_stays_there(tmp_path, command):
    async with world(tmp_path) as w:
        client = await w.begin(command | {"usage": "prompt=7;cached=2", "last_usage": "prompt=7;cached=2;output=3"})
        said = await client.reader.readuntil(b"0\r\n\r\n" if command["do"] == "stream" else b"}")
        assert b"HTTP/1.1 200" in said
        assert b"x-steelyard-usage" not in said.lower()
        client.close()


async def test_headers_that_the_client_lists_in_connection_stop_at_the_router(tmp_path):
    async with world(tmp_path) as w:
        await w.ask({}, connection="keep-alive, x-hop", x_hop="1", x_kept="1")
        (request,) = w.replicas[0].requests
        assert request.header(b"x-hop") is None
        assert request.header(b"x-kept") == b"1"


async def test_every_connection_header_is_heard(tmp_path):
    async with world(tmp_path) as w:
        client = await RawClient.open(w.address)
        client.send(
            f"POST {INVOCATIONS} HTTP/1.1\r\nhost: t\r\nauthorization: Bearer {TOKEN}\r\nconnection: x-hop\r\n"
            "x-hop: 1\r\nconnection: keep-alive\r\ncontent-length: 2\r\n\r\n{}".encode()
        )
        assert (await client.reply()).status == 200
        client.close()
        assert w.replicas[0].requests[0].header(b"x-hop") is None


@pytest.mark.parametrize("status", [200, 400, 422, 429, 500, 503])
async def test_a_replicas_own_status_passes_through(tmp_path, status):
    async with world(tmp_path) as w:
        assert (await w.ask({"do": "status", "status": status})).status == status
        assert len(w.replicas[0].requests) == 1


async def test_events_pass_through_one_by_one_as_they_come(tmp_path):
    async with world(tmp_path) as w:
        client = await w.begin({"do": "stream", "events": 5, "stall_after": 2})
        head = await client.reader.readuntil(b"\r\n\r\n")
        assert b"transfer-encoding: chunked" in head
        assert b'"n":1' in await client.reader.readuntil(b'{"n":1}\n\n')  # before the stream has ended
        client.close()
        await until(lambda: w.replicas[0].gone == 1)


async def test_a_whole_stream_ends_with_done(tmp_path):
    async with world(tmp_path) as w:
        reply = await w.ask({"do": "stream", "model": "m"}, CHAT)
        assert reply.complete
        assert reply.body.endswith(b"data: [DONE]\n\n")
        assert reply.body.count(b"data: ") == 4


# --- the settle matrix: outcome × stream or not (each world checks one settlement per charge)

STREAM = [False, True]


@pytest.mark.parametrize("stream", STREAM)
async def test_an_upstream_error_is_settled_once(tmp_path, stream):
    async with world(tmp_path) as w:
        command = {"do": "status", "status": 500, "stream": stream}
        await w.ask(command)
        assert w.router.ledger.settled_total_mmu == charge_of(command)
        assert w.router.ledger.known_total_mmu == 0


@pytest.mark.parametrize("stream", STREAM)
async def test_the_deadline_ends_a_request_that_the_replica_holds(tmp_path, stream):
    async with world(tmp_path) as w:
        command = {"do": "stream", "stall_after": 1} if stream else {"do": "hold"}
        reply = await w.ask(command, x_request_timeout_ms="150")
        if stream:
            assert reply.status == 200
            assert not reply.complete
            assert b"DEADLINE_EXCEEDED" in reply.body
            assert b"[DONE]" not in reply.body
        else:
            assert reply.status == 504
            assert json.loads(reply.body)["error_code"] == "DEADLINE_EXCEEDED"
        await until(lambda: w.replicas[0].gone == 1)


async def test_a_timeout_above_the_settings_is_capped(tmp_path):
    async with world(tmp_path, request_timeout_s=0.15) as w:
        assert (await w.ask({"do": "hold"}, x_request_timeout_ms="60000")).status == 504


@pytest.mark.parametrize("value", ["-1", "0", "soon", "1.5", "9" * 30])
async def test_a_timeout_that_cannot_be_read_is_refused(tmp_path, value):
    async with world(tmp_path) as w:
        assert (await w.ask({}, x_request_timeout_ms=value)).status == 400


@pytest.mark.parametrize("stream", STREAM)
async def test_a_client_that_leaves_while_the_replica_works_is_noticed_by_the_replica(tmp_path, stream):
    async with world(tmp_path) as w:
        client = await w.begin({"do": "stream", "stall_after": 2} if stream else {"do": "hold"})
        await until(lambda: w.replicas[0].held)
        client.close()
        await until(lambda: w.replicas[0].gone == 1, 1.0)
        await w.settled()
        assert b'code="499"' in w.router.measures.set.render()


async def test_a_client_that_leaves_the_queue_is_never_sent(tmp_path):
    async with world(tmp_path, max_concurrency=1) as w:
        first = await w.begin({"do": "hold"})
        await until(lambda: w.replicas[0].held)
        second = await w.begin({"do": "hold"})
        await until(lambda: w.queued == 1)
        second.close()
        await until(lambda: w.queued == 0)
        w.replicas[0].release()
        assert (await first.reply()).status == 200
        assert len(w.replicas[0].requests) == 1


async def test_a_client_that_leaves_while_connecting_is_never_sent(tmp_path):
    async with world(tmp_path) as w:
        client = await w.begin({"do": "hold"})
        client.close()
        await w.settled()
        await until(lambda: w.replicas[0].gone == len(w.replicas[0].requests))


@pytest.mark.parametrize("stream", STREAM)
async def test_a_replica_that_dies_before_its_first_byte_is_replaced_by_another(tmp_path, stream):
    async with world(tmp_path, 2) as w:
        w.replicas[0].always = "die"
        command = {"do": "stream" if stream else "echo"}
        for _ in range(6):
            reply = await w.ask(command)
            assert (reply.status, reply.complete) == (200, True)
        assert w.router.ledger.charged_total_mmu == charge_of(command) * sum(len(r.requests) for r in w.replicas)


async def test_a_request_is_retried_once_and_not_more(tmp_path):
    async with world(tmp_path, 3) as w:
        for replica in w.replicas:
            replica.always = "die"
        reply = await w.ask({})
        assert reply.status == 502
        assert json.loads(reply.body)["error_code"] == "REPLICA_FAILED"
        assert sum(len(replica.requests) for replica in w.replicas) == 2


async def test_a_request_that_kills_replicas_on_kept_connections_kills_two_and_not_more(tmp_path):
    async with world(tmp_path, 4, max_concurrency=1) as w:
        clients = [await w.begin({"do": "hold"}) for _ in w.replicas]
        await until(lambda: all(replica.held for replica in w.replicas))
        for replica in w.replicas:
            replica.release()
        for client in clients:
            assert (await client.reply()).status == 200
            client.close()
        assert (await w.ask({"do": "die"})).status == 502
        assert sum(json.loads(request.body)["do"] == "die" for r in w.replicas for request in r.requests) == 2


async def test_when_the_only_replica_dies_its_requests_wait_for_the_next_one(tmp_path):
    async with world(tmp_path, 1) as w:
        clients = [await w.begin({"do": "hold", "n": n}) for n in range(5)]
        await until(lambda: len(w.replicas[0].held) == 5)
        await w.replicas[0].kill()
        await until(lambda: w.queued == 5)
        w.apply(recovering=True)
        new = await w.add_replica()
        new.always = "echo"
        w.apply(new)
        for n, client in enumerate(clients):
            reply = await client.reply()
            assert (reply.status, json.loads(reply.body)["n"]) == (200, n)


async def test_a_replica_that_refuses_connections_costs_no_retry_and_comes_back_when_its_mark_expires(tmp_path):
    async with world(tmp_path, 1) as w:
        await w.replicas[0].kill()
        client = await w.begin({"n": 1})
        await until(lambda: w.queued == 1)
        await w.replicas[0].start()
        reply = await client.reply()
        assert reply.status == 200


async def test_stale_connections_are_replaced_without_the_client_noticing(tmp_path):
    async with world(tmp_path, 1) as w:
        for _ in range(5):
            assert (await w.ask({})).status == 200
            w.replicas[0].drop_idle_connections()
            assert (await w.ask({})).status == 200


async def test_a_draining_replicas_refusal_goes_elsewhere(tmp_path):
    async with world(tmp_path, 2) as w:
        w.replicas[0].always = "drain"
        for _ in range(8):
            reply = await w.ask({})
            assert reply.status == 200
            assert "x-steelyard-draining" not in reply.headers
        assert len(w.replicas[0].requests) <= 1  # marked after the first


@pytest.mark.parametrize("do", ["half_head", "garbage"])
async def test_an_answer_that_is_not_http_is_502_and_not_retried(tmp_path, do):
    async with world(tmp_path, 2) as w:
        for replica in w.replicas:
            replica.always = do
        assert (await w.ask({})).status == 502
        assert sum(len(replica.requests) for replica in w.replicas) == 1


async def test_a_body_cut_after_its_first_byte_is_cut_for_the_client_too(tmp_path):
    async with world(tmp_path, 2) as w:
        reply = await w.ask({"do": "cut_body"})
        assert reply.status == 200
        assert not reply.complete
        assert sum(len(replica.requests) for replica in w.replicas) == 1


@pytest.mark.parametrize("how", [{"cut_after": 2}, {"cut_inside": True}])
async def test_a_cut_stream_ends_with_an_error_event_and_without_done(tmp_path, how):
    async with world(tmp_path, 2) as w:
        reply = await w.ask({"do": "stream", "model": "m", **how}, CHAT)
        assert reply.status == 200
        assert not reply.complete
        *_, last, rest = reply.body.split(b"\n\n")
        assert rest == b""
        error = json.loads(last.removeprefix(b"data: "))["error"]
        assert error["code"] == "REPLICA_FAILED"
        assert b"[DONE]" not in reply.body
        assert sum(len(replica.requests) for replica in w.replicas) == 1


async def test_an_openai_stream_that_ends_without_done_is_not_passed_off_as_complete(tmp_path):
    async with world(tmp_path) as w:
        reply = await w.ask({"do": "stream", "model": "m", "no_done": True}, CHAT)
        assert not reply.complete
        assert b'"error"' in reply.body
        plain = await w.ask({"do": "stream", "no_done": True})  # other dialects have other ends
        assert plain.complete


async def test_a_slow_client_holds_its_replica_back_and_loses_nothing(tmp_path):
    async with world(tmp_path) as w:
        client = await w.begin({"do": "big", "bytes": 30_000_000})
        await until(lambda: w.replicas[0].requests)
        await asyncio.sleep(0.3)
        buffered = sum(c.transport.get_write_buffer_size() for c in w.replicas[0].server.connections)
        assert buffered > 10_000_000  # the router did not take it all in
        reply = await client.reply()
        assert len(reply.body) == 30_000_000
        assert (await w.ask({})).status == 200


async def test_a_large_request_body_arrives_whole(tmp_path):
    async with world(tmp_path) as w:
        text = "x" * 5_000_000
        reply = await w.ask({"text": text})
        assert json.loads(reply.body)["text"] == text


def _fail(*args, **options):
    raise RuntimeError("secret")


def _fail_once(monkeypatch, owner, name) -> None:
    original = getattr(owner, name)

    def fails(self, *args):
        monkeypatch.setattr(owner, name, original)
        raise RuntimeError("secret")

    monkeypatch.setattr(owner, name, fails)


class BrokenPool(Pool):
    """Takes a place of its own, since compiled classes cannot be patched."""

    def send(self, *args, **options):
        _fail()


class BrokenChooser:
    choose = _fail


class BrokenUpstream(UpstreamConnection):
    cancel = _fail


def _break_pool(w, patch) -> None:
    replica = w.router.table.endpoints["m"].entities[0].replicas[0]
    patch.setattr(replica, "pool", BrokenPool(replica.address))


def _break_chooser(w, patch) -> None:
    patch.setattr(w.router.table.endpoints["m"].entities[0], "chooser", BrokenChooser())


def _break_line(w, patch) -> None:
    patch.setattr(WaitingLine, "offer", _fail)


@pytest.mark.parametrize("breaks", [_break_pool, _break_chooser, _break_line])
async def test_a_fault_that_nobody_expected_is_a_500_and_leaves_nothing(tmp_path, monkeypatch, breaks):
    async with world(tmp_path, 1, max_concurrency=1) as w:
        if breaks is _break_line:
            holding = await w.begin({"do": "hold"})
            await until(lambda: w.replicas[0].held)
        with monkeypatch.context() as patch:
            breaks(w, patch)
            reply = await w.ask({})
        assert reply.status == 500
        assert b"secret" not in reply.body
        if breaks is _break_line:
            w.replicas[0].release()
            await holding.reply()
        await w.settled()
        assert (await w.ask({})).status == 200


async def test_faults_of_waiting_requests_end_these_and_no_other(tmp_path, monkeypatch):
    async with world(tmp_path, 1, max_concurrency=1) as w:
        holding = await w.begin({"do": "hold"})
        await until(lambda: w.replicas[0].held)
        waiting = [await w.begin({}) for _ in range(5)]
        await until(lambda: w.queued == 5)
        with monkeypatch.context() as patch:
            _break_pool(w, patch)
            w.replicas[0].release()
            assert (await holding.reply()).status == 200
            assert {(await client.reply()).status for client in waiting} == {500}
        await w.settled()
        assert (await w.ask({})).status == 200


@pytest.mark.parametrize("where", ["upstream", "measures"])
async def test_a_fault_at_one_deadline_does_not_stop_the_others(tmp_path, monkeypatch, where):
    async with world(tmp_path, 1, request_timeout_s=0.2) as w:
        clients = [await w.begin({"do": "hold", "n": n}) for n in range(3)]
        await until(lambda: len(w.replicas[0].held) == 3)
        broken = next(iter(w.router.live))
        if where == "upstream":
            broken._upstream = BrokenUpstream(broken._replica.pool, broken, (b"", b""))
        else:
            _fail_once(monkeypatch, type(broken.endpoint.measures), "count")
        statuses = []
        for client in clients:
            with suppress(EOFError):
                statuses.append((await client.reply()).status)
        assert sorted(statuses) == [500 if where == "upstream" else 504, 504, 504]
        w.replicas[0].release()
        await until(lambda: not w.in_flight)


@pytest.mark.parametrize(("headers", "length"), [(97, 1), (31, 2080)])
async def test_a_request_at_the_routers_limits_is_within_the_replicas(tmp_path, headers, length):
    limits = HttpLimits()
    extra = {f"x_{n:03}": "v" * length for n in range(headers - 1)}
    async with world(tmp_path) as w:
        head_bytes = len(INVOCATIONS) + sum(len(n) + len(v) + 4 for n, v in extra.items())
        rest = {"host": "test", "authorization": f"Bearer {TOKEN}", "content-length": "2", "x_last": ""}
        head_bytes += sum(len(n) + len(v) + 4 for n, v in rest.items())
        last = "v" * (limits.max_head_bytes - head_bytes if length > 1 else 1)
        reply = await w.ask({}, **extra, x_last=last)
        assert reply.status == 200
        assert len(extra) + 1 == headers
        beyond = {"x_last": last + "v" * 200} if length > 1 else {"x_last": "v", "x_more": "v"}
        assert (await w.ask({}, **extra, **beyond)).status == 431, "it was at the router's limit"
        assert len(w.replicas[0].requests) == 1


async def test_pipelined_queries_are_answered_in_order(tmp_path):
    async with world(tmp_path) as w:
        client = await w.begin({"n": 0})
        for n in range(1, 10):
            client.request(
                "POST", "/serving-endpoints/m/invocations", b'{"n":%d}' % n, authorization="Bearer test-token"
            )
        for n in range(10):
            assert json.loads((await client.reply()).body)["n"] == n
        client.close()
