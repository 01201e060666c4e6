"""A language model's engine dies in the middle of a stream: the client learns of it, and the endpoint comes back."""

import json

import httpx

from support.ledger import at_rest
from support.processes import processes_of
from support.waiting import wait_until

ASK = {
    "model": "smollm2",
    "messages": [{"role": "user", "content": "Tell me a long story about a lighthouse."}],
    "max_tokens": 400,
    "temperature": 0,
}


def test_kill_of_the_engine_ends_the_stream_with_an_error_and_the_endpoint_recovers(platform):
    headers = {"authorization": f"Bearer {platform.token}"}
    with httpx.Client(base_url=platform.url, headers=headers, timeout=60) as http:
        (engine,) = processes_of(platform.home, "steelyard.engine")
        events: list[str] = []
        with http.stream("POST", "/v1/chat/completions", json={**ASK, "stream": True}) as reply:
            assert reply.status_code == 200
            try:
                for line in reply.iter_lines():
                    if line:
                        events.append(line)
                    if len(events) == 4:
                        engine.kill()
            except httpx.RemoteProtocolError:
                pass  # the chunked body ends without its last chunk, so that it cannot be taken for complete
            else:
                raise AssertionError("the broken stream ended cleanly")
        assert "[DONE]" not in events[-1]
        assert json.loads(events[-1].removeprefix("data: "))["error"]["message"]
        wait_until(lambda: at_rest(platform), timeout_s=10)

        def whole() -> int:
            return http.post("/v1/chat/completions", json={**ASK, "max_tokens": 2}).status_code

        assert wait_until(lambda: whole() == 200, timeout_s=90, every_s=0.5)
        successors = processes_of(platform.home, "steelyard.engine")
        assert [process.pid for process in successors] != [engine.pid]


def test_a_client_that_leaves_a_stream_frees_the_engine_at_once(platform):
    headers = {"authorization": f"Bearer {platform.token}"}
    with httpx.Client(base_url=platform.url, headers=headers, timeout=60) as http:
        for _ in range(10):
            with http.stream("POST", "/v1/chat/completions", json={**ASK, "stream": True}) as reply:
                next(reply.iter_lines())
        wait_until(lambda: at_rest(platform), timeout_s=5)

        def engine_idle() -> bool:
            lines = http.get("/metrics").text.splitlines()
            gauges = [line for line in lines if line.startswith("steelyard_replica_in_flight") and "smollm2" in line]
            return bool(gauges) and all(float(line.rsplit(" ", 1)[1]) == 0 for line in gauges)

        wait_until(engine_idle, timeout_s=10)
