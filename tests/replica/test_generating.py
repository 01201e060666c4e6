"""Chat and completions over a scripted engine, so that every way of failing can be had at will; real HTTP around it."""

import asyncio
import json
import time
from contextlib import asynccontextmanager

import httpx
import openai
import pytest

from steelyard.contracts.replica import ReplicaSpec
from steelyard.errors import BadRequest, BadUpstream, ContextTooLong
from steelyard.replica.app import App
from steelyard.replica.generations import Generations
from steelyard.runtimes.base import GenerationLoad, TextDelta, TokenChoice, TokenLogprob
from steelyard.settings import HttpLimits
from steelyard.wire.server import HttpServer

pytestmark = pytest.mark.anyio
HELLO = [{"role": "user", "content": "hello"}]


class ScriptedEngine:
    """Says the words of `words`; the seed is added to each when there is one. `script` maps a word to what happens."""

    name, task, max_concurrency, context_length = "llm", "llm/v1/chat", 4, 100

    def __init__(self, words="one two three", pause_s=0.0, fail_at=None, failure=None):
        self.words, self.pause_s, self.fail_at, self.failure = words.split(), pause_s, fail_at, failure
        self.requests, self.running, self.closed = [], 0, 0

    async def render_chat(self, messages, tools=None):
        if messages[0]["content"] == "refuse":
            raise BadRequest("The template refuses these messages.")
        return list(range(5))

    async def encode(self, text):
        return list(range(len(text.split())))

    async def generate(self, request):
        self.requests.append(request)
        self.running += 1
        try:
            if len(request.prompt_token_ids) > self.context_length:
                raise ContextTooLong("The prompt is too long.")
            words = self.words[: request.max_tokens]
            for number, word in enumerate(words, start=1):
                if self.fail_at == number:
                    raise self.failure
                await asyncio.sleep(self.pause_s)
                text = f"{word}{request.sampling.seed if request.sampling.seed is not None else ''} "
                last = number == len(words)
                yield TextDelta(
                    text=text,
                    token_ids=[number],
                    logprobs=self._logprobs(text, request.sampling.logprobs),
                    finish_reason=("length" if len(words) < len(self.words) else "stop") if last else None,
                    prompt_tokens=len(request.prompt_token_ids),
                    output_tokens=number,
                    cached_tokens=2,
                )
        finally:
            self.running -= 1
            self.closed += 1

    @staticmethod
    def _logprobs(text, count):
        if count is None:
            return None
        chosen = TokenChoice(1, text, text.encode(), -0.1)
        others = [TokenChoice(2 + n, f"o{n}", b"o", -1.0 - n) for n in range(max(0, count - 1))]
        return [TokenLogprob(chosen, [*others, chosen])]

    def load(self):
        return GenerationLoad(self.running, 0, 0.25, 10, 20, 5, 0)


@asynccontextmanager
async def serving(engine, tmp_path):
    spec = ReplicaSpec(
        id="r", endpoint="chatty", served_entity="chatty-1", address=f"unix:{tmp_path / 's'}", model_uri="x"
    )
    app = App(spec)
    server = HttpServer(app.handle, HttpLimits(), idle_timeouts=False, hop=True)
    await server.listen(spec.address)
    async with asyncio.TaskGroup() as tasks:
        app.handlers = Generations(engine, spec.endpoint, app.measures, tasks)
        app.load.generation = engine.load
        app.state, app.task, app.load.max_concurrency = "ready", engine.task, engine.max_concurrency
        transport = httpx.AsyncHTTPTransport(uds=str(tmp_path / "s"))
        async with httpx.AsyncClient(transport=transport, base_url="http://replica") as http:
            yield app, http
        await server.stop(1.0)
    assert app.load.open_requests == 0
    assert engine.running == 0


def sdk(http) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url="http://replica/v1", api_key="k", http_client=http, max_retries=0)


async def test_whole_and_streamed_answers_agree_through_the_official_sdk(tmp_path):
    engine = ScriptedEngine()
    async with serving(engine, tmp_path) as (_, http):
        client = sdk(http)
        whole = await client.chat.completions.create(model="chatty", messages=HELLO)
        assert whole.model == "chatty"
        assert whole.choices[0].message.content == "one two three "
        assert whole.choices[0].finish_reason == "stop"
        assert (whole.usage.prompt_tokens, whole.usage.completion_tokens, whole.usage.total_tokens) == (5, 3, 8)
        assert whole.usage.prompt_tokens_details.cached_tokens == 2
        stream = await client.chat.completions.create(
            model="chatty", messages=HELLO, stream=True, stream_options={"include_usage": True}
        )
        chunks = [chunk async for chunk in stream]
        assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == "one two three "
        assert chunks[0].choices[0].delta.role == "assistant"
        assert chunks[-1].usage == whole.usage
        assert chunks[-2].choices[0].finish_reason == "stop"


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
async def test_the_router_learns_what_a_request_took_with_the_head_and_after_a_stream(tmp_path, path):
    body = {"model": "chatty", "messages": HELLO, "prompt": "a b c d e"}
    body.pop("prompt" if "chat" in path else "messages")
    async with serving(ScriptedEngine(), tmp_path) as (_, http):
        whole = await http.post(path, json=body)
        assert whole.headers["x-steelyard-usage"] == "prompt=5;cached=2;output=3"
        async with asyncio.timeout(5):
            reader, writer = await asyncio.open_unix_connection(str(tmp_path / "s"))
            data = json.dumps(body | {"stream": True}).encode()
            writer.write(
                b"POST %b HTTP/1.1\r\nhost: t\r\ncontent-length: %d\r\n\r\n" % (path.encode(), len(data)) + data
            )
            head = await reader.readuntil(b"\r\n\r\n")
            assert b"\r\nx-steelyard-usage: prompt=5;cached=2\r\n" in head
            trailer = (await reader.readuntil(b"\r\n0\r\n")) and await reader.readuntil(b"\r\n\r\n")
            assert trailer == b"x-steelyard-usage: prompt=5;cached=2;output=3\r\n\r\n"
            writer.close()


async def test_n_choices_are_n_generations_with_their_own_seeds(tmp_path):
    engine = ScriptedEngine()
    async with serving(engine, tmp_path) as (_, http):
        reply = await sdk(http).chat.completions.create(model="m", messages=HELLO, n=3, seed=7, max_tokens=1)
        assert [choice.message.content for choice in reply.choices] == ["one7 ", "one8 ", "one9 "]
        assert [choice.finish_reason for choice in reply.choices] == ["length"] * 3
        assert (reply.usage.prompt_tokens, reply.usage.completion_tokens) == (5, 3)
        stream = await sdk(http).chat.completions.create(model="m", messages=HELLO, n=2, stream=True)
        texts = {0: "", 1: ""}
        async for chunk in stream:
            texts[chunk.choices[0].index] += chunk.choices[0].delta.content or ""
        assert set(texts.values()) == {"one two three "}


async def test_completions_take_several_prompts(tmp_path):
    async with serving(ScriptedEngine(), tmp_path) as (_, http):
        reply = await sdk(http).completions.create(model="m", prompt=["a b", "c"], n=2, max_tokens=2, logprobs=2)
        assert [choice.index for choice in reply.choices] == [0, 1, 2, 3]
        assert reply.choices[0].text == "one two "
        assert reply.choices[0].logprobs.tokens == ["one ", "two "]
        assert reply.choices[0].logprobs.text_offset == [0, 4]
        assert reply.usage.prompt_tokens == 3
        assert reply.usage.completion_tokens == 8


@pytest.mark.parametrize("top", [0, 1, 3])
async def test_chat_logprobs_hold_exactly_the_top_asked_for_best_first(tmp_path, top):
    async with serving(ScriptedEngine(), tmp_path) as (_, http):
        arguments = {"model": "m", "messages": HELLO, "logprobs": True, "top_logprobs": top}
        reply = await sdk(http).chat.completions.create(**arguments)
        content = reply.choices[0].logprobs.content
        assert len(content) == 3
        for token in content:
            assert token.logprob == -0.1
            values = [item.logprob for item in token.top_logprobs]
            assert len(values) == top
            assert values == sorted(values, reverse=True)
        stream = await sdk(http).chat.completions.create(**arguments, stream=True)
        parts = [chunk.choices[0].logprobs async for chunk in stream]
        assert [token for part in parts if part for token in part.content] == content


async def test_invocations_take_chat_and_completion_bodies_whole_and_streamed(tmp_path):
    async with serving(ScriptedEngine(), tmp_path) as (_, http):
        chat = (await http.post("/invocations", json={"messages": HELLO})).json()
        assert chat["choices"][0]["message"]["content"] == "one two three "
        text = (await http.post("/invocations", json={"prompt": "x"})).json()
        assert text["object"] == "text_completion"
        reply = await http.post("/invocations", json={"messages": HELLO, "stream": True})
        data = [line.removeprefix("data: ") for line in reply.text.splitlines() if line]
        assert data[-1] == "[DONE]"
        assert all(json.loads(item)["object"] == "chat.completion.chunk" for item in data[:-1])
        refused = await http.post("/invocations", json={"inputs": [1]})
        assert refused.status_code == 400
        assert "messages" in refused.json()["message"]


@pytest.mark.parametrize("stream", [False, True])
async def test_refusals_before_the_first_token_have_a_status_even_when_streaming(tmp_path, stream):
    async with serving(ScriptedEngine(), tmp_path) as (_, http):
        for body, code in (
            ({"messages": [{"role": "user", "content": "refuse"}]}, "BAD_REQUEST"),
            ({"messages": HELLO, "temperature": 9}, "INVALID_PARAMETER_VALUE"),
            ({"prompt": "word " * 200}, "context_length_exceeded"),
        ):
            reply = await http.post("/invocations", json={**body, "stream": stream})
            assert reply.status_code == 400
            assert reply.json()["error_code"] == code


async def test_a_failure_of_one_choice_before_text_is_its_error_and_ends_the_others(tmp_path):
    engine = ScriptedEngine(pause_s=0.01, fail_at=1, failure=BadUpstream("The engine died."))
    async with serving(engine, tmp_path) as (_, http):
        reply = await http.post("/v1/chat/completions", json={"messages": HELLO, "n": 4})
        assert reply.status_code == 502
    assert engine.closed == len(engine.requests)


@pytest.mark.parametrize(
    ("failure", "code"),
    [(BadUpstream("The engine died."), "REPLICA_FAILED"), (RuntimeError("a bug, with a secret"), "INTERNAL_ERROR")],
)
async def test_a_failure_after_text_ends_the_stream_with_an_error_and_no_done(tmp_path, failure, code):
    async with serving(ScriptedEngine(fail_at=2, failure=failure), tmp_path) as (_, http):
        received, broken = b"", False
        async with http.stream("POST", "/v1/chat/completions", json={"messages": HELLO, "stream": True}) as reply:
            assert reply.status_code == 200
            try:
                async for piece in reply.aiter_raw():
                    received += piece
            except httpx.RemoteProtocolError:
                broken = True
        assert broken
        assert b'"content":"one "' in received
        assert code.encode() in received
        assert b"secret" not in received
        assert b"[DONE]" not in received


async def test_the_sdk_raises_when_a_stream_breaks(tmp_path):
    engine = ScriptedEngine(fail_at=2, failure=BadUpstream("The engine died."))
    async with serving(engine, tmp_path) as (_, http):
        stream = await sdk(http).chat.completions.create(model="m", messages=HELLO, stream=True)
        with pytest.raises(openai.APIError, match="engine died"):
            async for _ in stream:
                pass


@pytest.mark.parametrize("stream", [False, True])
async def test_a_client_that_leaves_cancels_every_generation(tmp_path, stream):
    engine = ScriptedEngine("word " * 1000, pause_s=0.01)
    async with serving(engine, tmp_path) as (app, _):
        reader, writer = await asyncio.open_unix_connection(str(tmp_path / "s"))
        body = json.dumps({"messages": HELLO, "n": 3, "stream": stream}).encode()
        writer.write(
            b"POST /v1/chat/completions HTTP/1.1\r\nhost: r\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)
        )
        if stream:
            await reader.readuntil(b"word")
        async with asyncio.timeout(5):
            while engine.running < 3:
                await asyncio.sleep(0.01)
        writer.close()
        async with asyncio.timeout(0.5):
            while engine.running or app.load.open_requests:
                await asyncio.sleep(0.01)
        assert app.load.report(time.monotonic()).completed_total == 0
        assert b'status="499"' in app.measures.render(0, 0)


@pytest.mark.parametrize("stream", [False, True])
async def test_an_answer_that_cannot_be_rendered_fails_alone(tmp_path, stream):
    engine = ScriptedEngine("\ud800")  # half of a surrogate pair: no UTF-8 for it
    async with serving(engine, tmp_path) as (_, http):
        body = {"messages": HELLO, "stream": stream}
        assert (await http.post("/v1/chat/completions", json=body)).status_code == 500
        engine.words = ["fine"]
        assert (await http.post("/v1/chat/completions", json=body)).status_code == 200


@pytest.mark.parametrize("stream", [False, True])
async def test_a_deadline_ends_the_generation(tmp_path, stream):
    engine = ScriptedEngine("word " * 1000, pause_s=0.02)
    async with serving(engine, tmp_path) as (_, http):
        began_s = time.monotonic()
        body, headers = {"messages": HELLO, "stream": stream}, {"x-steelyard-deadline-ms": "200"}
        if stream:
            with pytest.raises(httpx.RemoteProtocolError):
                await http.post("/v1/chat/completions", json=body, headers=headers)
        else:
            reply = await http.post("/v1/chat/completions", json=body, headers=headers)
            assert reply.status_code == 504
        assert time.monotonic() - began_s < 2
        assert engine.running == 0
        assert engine.requests[0].deadline_s == pytest.approx(began_s + 0.2, abs=0.15)


async def test_priority_and_sampling_reach_the_engine(tmp_path):
    engine = ScriptedEngine()
    async with serving(engine, tmp_path) as (_, http):
        body = {"messages": HELLO, "temperature": 0, "top_k": 5, "stop": "x", "logit_bias": {"3": -5}, "max_tokens": 2}
        await http.post("/v1/chat/completions", json=body, headers={"x-steelyard-priority": "probe"})
    request = engine.requests[0]
    assert request.priority == "probe"
    assert (request.stop, request.max_tokens) == (("x",), 2)
    assert (request.sampling.temperature, request.sampling.top_k) == (0, 5)
    assert request.sampling.logit_bias == {3: -5}


async def test_load_and_metrics_count_tokens_and_nothing_stays_open(tmp_path):
    async with serving(ScriptedEngine(), tmp_path) as (_, http):
        reply = await http.post("/v1/chat/completions", json={"messages": HELLO})
        assert '"kv_occupancy":0.25' in reply.headers["endpoint-load-metrics"]
        load = (await http.get("/load")).json()
        assert (load["in_flight"], load["completed_total"], load["kv_occupancy"]) == (0, 1, 0.25)
        text = (await http.get("/metrics")).text
        for name in ("output_tokens_total", "prompt_tokens_total", "time_to_first_token_seconds_count"):
            assert f"steelyard_replica_{name}{{" in text
        assert 'steelyard_replica_output_tokens_total{endpoint="chatty",served_entity="chatty-1"} 3.0' in text


async def test_a_slow_reader_holds_the_generation_back(tmp_path):
    engine = ScriptedEngine("x" * 100_000 + (" " + "x" * 100_000) * 200)
    async with serving(engine, tmp_path) as (app, _):
        reader, writer = await asyncio.open_unix_connection(str(tmp_path / "s"), limit=1024)
        body = json.dumps({"messages": HELLO, "stream": True}).encode()
        writer.write(
            b"POST /v1/chat/completions HTTP/1.1\r\nhost: r\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)
        )
        await asyncio.sleep(0.5)
        assert app.load.open_requests == 1  # 20 MB do not fit in the buffers: the generation waits for the reader
        total = 0
        while b"[DONE]" not in (piece := await reader.read(1 << 20)):
            total += len(piece)
        assert total > 19_000_000
        writer.close()
