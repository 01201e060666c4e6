"""Paths, methods, tokens and bodies: who gets in, and what the others are told."""

from __future__ import annotations

import base64
import json

import pytest

from steelyard.settings import HttpLimits
from steelyard.wire.server import HttpServer
from support.raw_http import RawClient, ask, until
from support.router_world import INVOCATIONS, TOKEN, world

pytestmark = pytest.mark.anyio

BEARER = f"Bearer {TOKEN}"


async def test_without_a_valid_token_nothing_but_health_is_answered(tmp_path):
    async with world(tmp_path) as w:
        basic = "Basic " + base64.b64encode(f"token:{TOKEN}".encode()).decode()
        wrong = ["Bearer nope", "Bearer", "Basic !!!", "Basic " + base64.b64encode(b"me:pw").decode(), TOKEN]
        for value in wrong:
            reply = await ask(w.address, "POST", INVOCATIONS, b"{}", authorization=value)
            assert reply.status == 401
            assert "Bearer" in json.loads(reply.body)["message"]
            assert b"nope" not in reply.body
            assert TOKEN.encode() not in reply.body
        for path in (INVOCATIONS, "/v1/models", "/api/2.0/serving-endpoints", "/metrics", "/internal/x", "/nothing"):
            assert (await ask(w.address, "POST", path, b"{}")).status == 401
        for value in (BEARER, basic, f"bearer {TOKEN}"):
            assert (await ask(w.address, "POST", INVOCATIONS, b"{}", authorization=value)).status == 200
        for path, status in (("/livez", 200), ("/readyz", 200), ("/.well-known/databricks-config", 200)):
            assert (await ask(w.address, "GET", path)).status == status


@pytest.mark.parametrize("path", ["/livez", "/readyz", "/.well-known/databricks-config"])
async def test_open_paths_are_only_read(tmp_path, path):
    async with world(tmp_path) as w:
        for method in ("GET", "HEAD"):
            assert (await ask(w.address, method, path)).status == 200
        for method in ("POST", "PUT", "DELETE", "OPTIONS"):
            reply = await ask(w.address, method, path)
            assert (reply.status, reply.headers["allow"]) == (405, "GET, HEAD")


async def test_without_a_token_no_body_is_invited_or_taken(tmp_path):
    async with world(tmp_path) as w:
        two = f"authorization: {BEARER}\r\n" * 2
        for path, extra, status in (
            (INVOCATIONS, "", 401),
            ("/v1/chat/completions", "authorization: Bearer nope\r\n", 401),
            (INVOCATIONS, two, 401),
            ("/livez", "", 413),
        ):
            for rest in (b"expect: 100-continue\r\n\r\n", b"\r\n{"):
                client = await RawClient.open(w.address)
                client.send(f"POST {path} HTTP/1.1\r\nhost: t\r\n{extra}content-length: 16000000\r\n".encode() + rest)
                reply = await client.reply()
                assert (reply.status, reply.informational) == (status, [])
                assert ("error" in json.loads(reply.body)) == path.startswith("/v1/")
                assert await client.ended()
                client.close()
        assert 'requests_total{code="401",endpoint=""} 6.0' in w.router.measures.set.render().decode()
        client = await RawClient.open(w.address)
        head = f"POST {INVOCATIONS} HTTP/1.1\r\nhost: t\r\nauthorization: {BEARER}\r\ncontent-length: 2\r\n"
        client.send(head.encode() + b"expect: 100-continue\r\n\r\n")
        assert await client.reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        client.send(b"{}")
        assert (await client.reply()).status == 200
        client.close()


async def test_two_authorization_headers_are_neither(tmp_path):
    async with world(tmp_path) as w:
        client = await RawClient.open(w.address)
        line = f"authorization: {BEARER}\r\n"
        client.send(f"POST {INVOCATIONS} HTTP/1.1\r\nhost: t\r\n{line}{line}content-length: 2\r\n\r\n{{}}".encode())
        assert (await client.reply()).status == 401
        client.close()


async def test_a_revoked_token_is_refused_from_the_next_snapshot_on(tmp_path):
    async with world(tmp_path) as w:
        assert (await w.ask({})).status == 200
        w.router.identity.replace(True, [])
        assert (await w.ask({})).status == 401
        w.router.identity.replace(False, [])
        assert (await w.ask({})).status == 200


@pytest.mark.parametrize(
    ("method", "path", "status", "word"),
    [
        ("POST", "/serving-endpoints/ghost/invocations", 404, "ghost"),
        ("POST", "/serving-endpoints/m/served-models/ghost/invocations", 404, "ghost"),
        ("POST", "/serving-endpoints/m", 404, "Nothing"),
        ("GET", INVOCATIONS, 405, "POST"),
        ("GET", "/v1/chat/completions", 405, "POST"),
        ("POST", "/v1/models", 405, "GET"),
        ("GET", "/v1/models/ghost", 404, "ghost"),
        ("GET", "/internal/snapshot", 404, "Nothing"),
        ("GET", "/", 404, "Nothing"),
        ("GET", "/api/2.0/serving-endpoints", 503, "control plane"),
        ("TRACE", "/api/2.0/serving-endpoints", 405, "TRACE"),
        ("OPTIONS", "*", 405, "OPTIONS"),
    ],
)
async def test_what_is_not_served_is_named(tmp_path, method, path, status, word):
    async with world(tmp_path) as w:
        reply = await ask(w.address, method, path, b"{}" if method == "POST" else b"", authorization=BEARER)
        assert reply.status == status
        body = json.loads(reply.body)
        assert word in body["message"]
        assert ("error" in body) == path.startswith("/v1/"), "each dialect reads errors in its own shape"
        assert body["error_code"]
        assert "x-request-id" in reply.headers
        assert ("allow" in reply.headers) == (status == 405)
        assert method not in reply.headers.get("allow", "").split(", ")


@pytest.mark.parametrize(
    ("body", "status", "word"),
    [
        (b'{"model": "m"}', 200, ""),
        (b"{not json", 400, "JSON"),
        (b"", 400, "JSON"),
        (b"[]", 400, "model"),
        (b"{}", 400, "model"),
        (b'{"model": 7}', 400, "model"),
        (b'{"model": "ghost"}', 404, "ghost"),
        (b'{"model": "\xff"}', 400, "JSON"),
        (b"[" * 100_000, 400, "JSON"),
        (b'{"model": "m", "x": ' + b"[" * 100_000, 400, "nested"),
    ],
)
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/serving-endpoints/completions"])
async def test_openai_requests_name_their_endpoint_in_the_body(tmp_path, path, body, status, word):
    async with world(tmp_path) as w:
        reply = await ask(w.address, "POST", path, body, authorization=BEARER)
        assert reply.status == status
        if word:
            assert word in json.loads(reply.body)["message"]


async def test_each_openai_path_keeps_its_name_at_the_replica(tmp_path):
    async with world(tmp_path) as w:
        for name in ("chat/completions", "completions", "embeddings", "responses"):
            for prefix in ("/v1", "/serving-endpoints"):
                assert (await w.ask({"model": "m"}, f"{prefix}/{name}?a=b")).status == 200
                assert w.replicas[0].requests[-1].target == f"/v1/{name}?a=b".encode()


async def test_models_are_the_endpoints_that_can_be_queried(tmp_path):
    async with world(tmp_path) as w:
        w.apply_endpoints(w.endpoint(w.replicas[0]), w.endpoint(name="off", stopped=True))
        listed = json.loads((await ask(w.address, "GET", "/v1/models", authorization=BEARER)).body)
        assert listed == {
            "object": "list",
            "data": [{"id": "m", "object": "model", "created": 1_700_000_000, "owned_by": "me"}],
        }
        one = json.loads((await ask(w.address, "GET", "/v1/models/m", authorization=BEARER)).body)
        assert one == listed["data"][0]
        assert (await w.ask({}, "/serving-endpoints/off/invocations")).status == 400


async def test_traffic_is_split_by_percentage_and_a_named_entity_gets_its_own(tmp_path):
    async with world(tmp_path, 2) as w:
        first, second = (w.endpoint(replica).served_entities[0] for replica in w.replicas)
        kind = type(first)
        view = w.endpoint()
        entities = [
            kind(name="a", traffic_percentage=80, replicas=first.replicas),
            kind(name="b", traffic_percentage=20, replicas=second.replicas),
        ]
        w.apply_endpoints(type(view)(name="m", creation_timestamp=0, creator="me", served_entities=entities))
        for _ in range(100):
            await w.ask({})
        counts = [len(replica.requests) for replica in w.replicas]
        assert sum(counts) == 100
        assert 65 <= counts[0] <= 95
        reply = await w.ask({}, "/serving-endpoints/m/served-models/b/invocations")
        assert reply.headers["served-model-name"] == "b"


@pytest.mark.parametrize(("coding", "status"), [("gzip", 415), ("br, gzip", 415), ("identity", 200), ("Identity", 200)])
async def test_a_compressed_body_is_refused_by_name(tmp_path, coding, status):
    async with world(tmp_path) as w:
        headers = {"authorization": BEARER, "content-encoding": coding}
        for _ in range(2):  # the second time the head is remembered
            reply = await ask(w.address, "POST", INVOCATIONS, b"{}", **headers)
            assert reply.status == status
            assert status == 200 or "Content-Encoding" in json.loads(reply.body)["message"]


async def test_control_gets_its_paths_with_the_principal_and_without_the_token(tmp_path):
    async with world(tmp_path) as w:
        seen = []

        def control(request, reply):
            seen.append(request)
            reply.send(201, [(b"content-type", b"application/json")], b'{"ok": true}')

        w.router.settings.sockets.mkdir(mode=0o700, parents=True, exist_ok=True)
        server = HttpServer(control, HttpLimits())
        await server.listen(w.router.settings.control_address)
        try:
            reply = await ask(
                w.address,
                "POST",
                "/api/2.0/serving-endpoints?x=1",
                b'{"name": "n"}',
                authorization=BEARER,
                x_steelyard_principal="root",
            )
            assert (reply.status, reply.body) == (201, b'{"ok": true}')
            assert seen[0].target == b"/api/2.0/serving-endpoints?x=1"
            assert seen[0].header(b"x-steelyard-principal") == b"me"
            assert seen[0].header(b"authorization") is None
            reply = await ask(w.address, "HEAD", "/metrics", authorization=BEARER)
            assert (reply.status, reply.body) == (201, b"")
        finally:
            await server.stop(0.0)


async def test_endpoints_that_come_and_go_leave_no_series_and_do_not_use_up_the_bound(tmp_path):
    async with world(tmp_path) as w:
        client = None
        for n in range(1200):
            w.apply_endpoints(w.endpoint(w.replicas[0], name=f"e{n}"))
            measures = w.router.table.endpoints[f"e{n}"].measures
            measures.count(200 if n % 2 else 503)
            measures.retried("lost")
            if n == 7:
                client = await w.begin({"do": "hold"}, "/serving-endpoints/e7/invocations")
                await until(lambda: w.replicas[0].held)
        w.apply_endpoints(w.endpoint(w.replicas[0], name="last"))
        w.replicas[0].release()
        assert (await client.reply()).status == 200, "it outlives its endpoint, and is not counted"
        assert (await w.ask({}, "/serving-endpoints/last/invocations")).status == 200
        text = w.router.measures.set.render().decode()
        assert 'steelyard_router_requests_total{code="200",endpoint="last"} 1.0' in text
        assert 'steelyard_router_request_seconds_count{endpoint="last"} 1.0' in text
        assert '"other"' not in text
        assert 'endpoint="e' not in text


async def test_metrics_count_requests_and_keep_their_labels_bounded(tmp_path):
    async with world(tmp_path) as w:
        await w.ask({})
        await w.ask({"do": "stream", "model": "m"}, "/v1/chat/completions")
        for n in range(50):
            await w.ask({}, f"/serving-endpoints/ghost-{n}/invocations")
        w.apply(w.replicas[0], await w.add_replica())
        await w.ask({})
        text = w.router.measures.set.render().decode()
        assert 'steelyard_router_requests_total{code="200",endpoint="m"} 3.0' in text
        decisions = [line for line in text.splitlines() if line.startswith("steelyard_router_decisions_total{reason=")]
        assert sum(float(line.rpartition(" ")[2]) for line in decisions) == 3
        assert 'steelyard_router_requests_total{code="404",endpoint=""} 50.0' in text
        assert "ghost" not in text
        assert 'steelyard_router_time_to_first_token_seconds_count{endpoint="m"} 1.0' in text
