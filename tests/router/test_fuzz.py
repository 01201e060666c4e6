"""Hostile bytes against a real router: only documented statuses, no traceback, nothing left in the ledger."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from support.raw_http import RawClient, ask
from support.router_process import BEARER, INVOCATIONS, fake_replicas, router_process, snapshot_of

DOCUMENTED = {200, 400, 401, 404, 405, 408, 413, 414, 415, 417, 429, 431, 501, 502, 503, 504}

BODY = b'{"do": "echo", "model": "m"}'
HEAD = f"POST {INVOCATIONS} HTTP/1.1\r\nhost: t\r\nauthorization: {BEARER}\r\n".encode()
SEEDS = [
    HEAD + b"content-length: %d\r\n\r\n" % len(BODY) + BODY,
    HEAD + b"transfer-encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n\r\n" % (len(BODY), BODY),
    HEAD + b"expect: 100-continue\r\ncontent-length: %d\r\n\r\n" % len(BODY) + BODY,
    HEAD.replace(INVOCATIONS.encode(), b"/v1/chat/completions") + b"content-length: %d\r\n\r\n" % len(BODY) + BODY,
    b"GET /v1/models HTTP/1.1\r\nhost: t\r\nauthorization: " + BEARER.encode() + b"\r\n\r\n",
    b"GET /livez HTTP/1.0\r\n\r\n",
    b"GET /api/2.0/serving-endpoints HTTP/1.1\r\nhost: t\r\nauthorization: " + BEARER.encode() + b"\r\n\r\n",
]
TOKENS = [
    b"\r\n", b"\n", b"\r", b"\x00", b" ", b"\t", b":", b"/", b"%", b"%00", b"%2e%2e", b"..", b"?", b"#", b"HTTP/1.1",
    b"HTTP/2.0", b"content-length: 5\r\n", b"content-length: -1\r\n", b"transfer-encoding: chunked\r\n", b"0\r\n\r\n",
    b"ffffffffffffffff\r\n", b"host: a\r\n", b"connection: close\r\n", b"connection: upgrade\r\nupgrade: h2c\r\n",
    b"expect: x\r\n", b"GET ", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"\xff\xfe", b"{", b"[" * 500, b"a" * 9000,
    b"x-request-timeout-ms: 1\r\n", b"x-steelyard-deadline-ms: x\r\n", b"x-request-id: \xff\r\n",
]  # fmt: skip


@st.composite
def hostile(draw) -> bytes:
    """A valid request with some bytes cut, repeated, replaced or inserted, perhaps several in a row."""
    data = b"".join(draw(st.lists(st.sampled_from(SEEDS), min_size=1, max_size=3)))
    for _ in range(draw(st.integers(0, 6))):
        at = draw(st.integers(0, len(data)))
        end = min(len(data), at + draw(st.integers(0, 40)))
        piece = draw(st.one_of(st.sampled_from(TOKENS), st.binary(max_size=6)))
        data = data[:at] + draw(st.sampled_from([piece, data[at:end] * 2, b""])) + data[end:]
    return data


async def _provoke(address: str, data: bytes, cuts: list[int]) -> None:
    """Send it, perhaps in pieces, read what comes until it ends or nothing more comes, and leave."""
    client = await RawClient.open(address)
    try:
        start = 0
        for cut in sorted(cut % (len(data) + 1) for cut in cuts):
            client.send(data[start:cut])
            start = max(start, cut)
            await asyncio.sleep(0)
        client.send(data[start:])
        with suppress(EOFError, TimeoutError, ConnectionError):
            async with asyncio.timeout(0.03):
                while True:
                    reply = await client.reply()
                    assert reply.status in DOCUMENTED, (reply.status, data)
                    assert b"Traceback" not in reply.body
    finally:
        client.close()


class Fuzzing:
    """One router and one loop for all examples."""

    def __init__(self, folder) -> None:
        self.runner = asyncio.Runner()
        self.folder = folder

    def __enter__(self):
        self.replicas = fake_replicas(self.folder)
        (replica,) = self.runner.run(self.replicas.__aenter__())
        self.process = router_process(self.folder / "h", snapshot_of(replica))
        self.router = self.runner.run(self.process.__aenter__())
        return self

    def __exit__(self, *args) -> None:
        self.runner.run(self.process.__aexit__(None, None, None))
        self.runner.run(self.replicas.__aexit__(None, None, None))
        self.runner.close()


@pytest.fixture(scope="module")
def fuzzing(tmp_path_factory):
    with Fuzzing(tmp_path_factory.mktemp("fuzz")) as made:
        yield made
        made.runner.run(made.router.at_rest())
        assert made.runner.run(ask(made.router.address, "GET", "/livez")).status == 200
        log = made.router.log.read_text()
        assert "Traceback" not in log
        assert "_failed" not in log


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(hostile(), st.lists(st.integers(0, 2000), max_size=3))
@example(b"\r\n" * 10_000, [])
@example(b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 5000 + b"\r\n", [])
@example(b"\x16\x03\x01" + b"\x00" * 300, [])
def test_mutated_requests_get_documented_statuses_and_leave_nothing(fuzzing, data, cuts):
    fuzzing.runner.run(_provoke(fuzzing.router.address, data, cuts))


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=300))
def test_random_bytes_get_documented_statuses_and_leave_nothing(fuzzing, data):
    fuzzing.runner.run(_provoke(fuzzing.router.address, data, []))
