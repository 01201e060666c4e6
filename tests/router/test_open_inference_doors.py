"""The Open Inference paths at the router: where they lead, what goes through untouched, how refusals look."""

from __future__ import annotations

import json

import pytest

from steelyard import __version__
from steelyard.contracts.snapshot import EndpointView, ServedEntityView
from support.raw_http import RawClient, ask, until
from support.router_world import TOKEN, World, charge_of, world

pytestmark = pytest.mark.anyio

BEARER = f"Bearer {TOKEN}"
INFER = "/v2/models/m/infer"


async def get(w: World, path: str, **headers: str):
    return await ask(w.address, "GET", path, authorization=BEARER, **headers)


def split(w: World, *shares: tuple[str, int], stopped: bool = False) -> None:
    """Endpoint `m` with these entities, each with the replica of its place."""
    entities = [
        ServedEntityView(name=name, traffic_percentage=share, replicas=w.endpoint(replica).served_entities[0].replicas)
        for (name, share), replica in zip(shares, w.replicas, strict=False)
    ]
    view = EndpointView(name="m", creation_timestamp=0, creator="me", stopped=stopped, served_entities=entities)
    w.apply_endpoints(view)


async def test_infer_goes_to_a_replica_with_body_and_header_length_untouched(tmp_path):
    async with world(tmp_path) as w:
        seen = []

        def replica(request, reply):
            seen.append(request)
            headers = [(b"content-type", b"application/octet-stream"), (b"inference-header-content-length", b"2")]
            reply.send(200, headers, b"{}\x00\xff")

        w.replicas[0].server.handler = replica
        body = b'{"inputs": []}\x00\xff\r\n\r\n'
        for version in ("", "/versions/m-1"):
            reply = await ask(
                w.address,
                "POST",
                f"/v2/models/m{version}/infer",
                body,
                authorization=BEARER,
                inference_header_content_length="14",
            )
            assert (reply.status, reply.body) == (200, b"{}\x00\xff")
            assert reply.headers["inference-header-content-length"] == "2"
            assert reply.headers["content-type"] == "application/octet-stream"
            assert reply.headers["served-model-name"] == "m-1"
            assert (seen[-1].method, seen[-1].path, seen[-1].body) == ("POST", "/v2/infer", body)
            assert seen[-1].header(b"inference-header-content-length") == b"14"
            assert seen[-1].header(b"authorization") is None
            assert int(seen[-1].header(b"x-steelyard-deadline-ms")) > 0
        assert w.router.ledger.settled_total_mmu == 2 * charge_of(body)


async def test_metadata_comes_from_a_replica_and_is_a_query_like_any_other(tmp_path):
    async with world(tmp_path) as w:
        seen = []

        def replica(request, reply):
            seen.append(request)
            reply.send(200, [(b"content-type", b"application/json")], b'{"name":"m"}')

        w.replicas[0].server.handler = replica
        for path in ("/v2/models/m", "/v2/models/m/versions/m-1"):
            reply = await get(w, path)
            assert (reply.status, reply.body) == (200, b'{"name":"m"}')
            assert (seen[-1].method, seen[-1].path, seen[-1].body) == ("GET", "/v2/model", b"")
        client = await RawClient.open(w.address)
        client.request("HEAD", "/v2/models/m", authorization=BEARER)
        reply = await client.reply(bodyless=True)
        assert (reply.status, reply.headers["content-length"]) == (200, "12")
        client.close()
        assert w.router.ledger.settled_total_mmu == 3 * charge_of(b"")


async def test_a_version_is_a_served_entity(tmp_path):
    async with world(tmp_path, 2) as w:
        split(w, ("a", 100), ("b", 0))
        for name, replica in zip("ab", w.replicas, strict=True):
            reply = await w.ask({}, f"/v2/models/m/versions/{name}/infer")
            assert (reply.status, reply.headers["served-model-name"]) == (200, name)
            assert reply.headers["x-replica"] == replica.name
            assert (await get(w, f"/v2/models/m/versions/{name}/ready")).status == 200
        assert (await w.ask({}, INFER)).headers["served-model-name"] == "a"


async def test_health_needs_no_token_and_everything_else_does(tmp_path):
    async with world(tmp_path) as w:
        for path, body in (("/v2/health/live", {"live": True}), ("/v2/health/ready", {"ready": True})):
            reply = await ask(w.address, "GET", path)
            assert (reply.status, json.loads(reply.body)) == (200, body)
            refused = await ask(w.address, "POST", path)
            assert (refused.status, refused.headers["allow"]) == (405, "GET, HEAD")
            assert set(json.loads(refused.body)) == {"error"}
        for method, path in (("GET", "/v2"), ("GET", "/v2/models/m"), ("GET", "/v2/models/m/ready"), ("POST", INFER)):
            reply = await ask(w.address, method, path)
            assert reply.status == 401
            assert "Bearer" in json.loads(reply.body)["error"]
        w.router.draining = True
        reply = await ask(w.address, "GET", "/v2/health/ready")
        assert (reply.status, set(json.loads(reply.body))) == (503, {"error"})
        assert (await ask(w.address, "GET", "/v2/health/live")).status == 200


async def test_the_server_describes_itself(tmp_path):
    async with world(tmp_path) as w:
        reply = await get(w, "/v2")
        assert json.loads(reply.body) == {
            "name": "steelyard",
            "version": __version__,
            "extensions": ["binary_tensor_data"],
        }
        assert reply.headers["x-request-id"]


async def test_a_model_is_ready_while_all_that_take_traffic_have_a_replica(tmp_path):
    async with world(tmp_path, 2) as w:
        assert json.loads((await get(w, "/v2/models/m/ready")).body) == {"name": "m", "ready": True}
        split(w, ("a", 50), ("b", 50))
        assert (await get(w, "/v2/models/m/ready")).status == 200
        w.apply()
        reply = await get(w, "/v2/models/m/ready")
        assert (reply.status, reply.headers["retry-after"]) == (503, "1")
        assert "no ready replica" in json.loads(reply.body)["error"]
        split(w, ("a", 100), stopped=True)
        assert "stopped" in json.loads((await get(w, "/v2/models/m/ready")).body)["error"]
        w.apply(*w.replicas)


@pytest.mark.parametrize(
    ("method", "path", "status", "word"),
    [
        ("POST", "/v2/models/ghost/infer", 404, "ghost"),
        ("GET", "/v2/models/ghost", 404, "ghost"),
        ("GET", "/v2/models/ghost/ready", 404, "ghost"),
        ("POST", "/v2/models/m/versions/9/infer", 404, "'9'"),
        ("GET", "/v2/models/m/versions/9", 404, "'9'"),
        ("GET", "/v2/models/m/versions/9/ready", 404, "'9'"),
        ("GET", "/v2/models/m/config", 404, "Nothing"),
        ("POST", "/v2/repository/index", 404, "Nothing"),
        ("GET", "/v2/models//ready", 404, "Nothing"),
        ("GET", INFER, 405, "POST"),
        ("POST", "/v2/models/m", 405, "GET"),
        ("DELETE", "/v2/models/m/ready", 405, "GET"),
        ("POST", "/v2", 405, "GET"),
        ("TRACE", "/v2", 405, "TRACE"),
    ],
)
async def test_refusals_have_one_sentence_under_error(tmp_path, method, path, status, word):
    async with world(tmp_path) as w:
        reply = await ask(w.address, method, path, b"{}" if method == "POST" else b"", authorization=BEARER)
        assert reply.status == status
        body = json.loads(reply.body)
        assert set(body) == {"error"}
        assert word in body["error"]
        assert "x-request-id" in reply.headers
        assert ("allow" in reply.headers) == (status == 405)


async def test_faults_of_framing_in_a_body_are_told_in_the_paths_dialect(tmp_path):
    async with world(tmp_path) as w:
        client = await RawClient.open(w.address)
        head = f"POST {INFER} HTTP/1.1\r\nhost: t\r\nauthorization: {BEARER}\r\ntransfer-encoding: chunked\r\n\r\n"
        client.send(head.encode() + b"zz\r\n")
        reply = await client.reply()
        assert (reply.status, set(json.loads(reply.body))) == (400, {"error"})
        client.close()


async def test_infer_waits_in_line_and_has_a_deadline_and_a_second_chance(tmp_path):
    async with world(tmp_path, 2, max_concurrency=1) as w:
        held = [await w.begin({"do": "hold"}, INFER) for _ in range(2)]
        await until(lambda: all(replica.held for replica in w.replicas))
        waiting = await w.begin({}, INFER, x_request_timeout_ms="5000")
        late = await w.begin({}, INFER, x_request_timeout_ms="50")
        await until(lambda: w.queued == 2)
        reply = await late.reply()
        assert (reply.status, "deadline" in json.loads(reply.body)["error"].lower()) == (504, True)
        for replica in w.replicas:
            replica.release()
        assert [(await client.reply()).status for client in held] == [200, 200]
        assert (await waiting.reply()).status == 200
        w.replicas[0].always = "die"
        for _ in range(3):
            assert (await w.ask({}, INFER)).status == 200
        for replica in w.replicas:
            replica.always = "die"
        reply = await w.ask({}, INFER)
        assert (reply.status, set(json.loads(reply.body))) == (502, {"error"})
        for client in (*held, waiting, late):
            client.close()
