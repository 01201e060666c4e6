"""Answers queries of a generate runtime: chat and text completions, whole or streamed, one or several choices.

Called by `app.py`; each request is one task of the replica's task group, cancelled when its client goes or its
deadline passes, which cancels its generations in the engine. A stream starts with its first text, so that anything
refused before that has a proper status.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from steelyard.contracts.usage import RequestUsage
from steelyard.errors import BadRequest, DeadlineExceeded, SteelyardError
from steelyard.protocols.media import require_json
from steelyard.protocols.openai import (
    ChatReply,
    ChatRequest,
    Choice,
    CompletionReply,
    CompletionRequest,
    Reply,
    Sampling,
    ScoredToken,
    TokenView,
    Usage,
    parse_chat,
    parse_completion,
)
from steelyard.protocols.strict_json import decode_object
from steelyard.replica.exchange import Exchange
from steelyard.replica.measures import Measures, TokenMeasures
from steelyard.runtimes.base import (
    GenerateRequest,
    GenerateRuntime,
    SamplingParams,
    TextDelta,
    TokenChoice,
    TokenLogprob,
)
from steelyard.wire.sse import DONE

Prompts = Callable[[], Awaitable[list[list[int]]]]


@dataclass(frozen=True, slots=True)
class _Plan:
    """A request as the engine and the writer need it."""

    prompts: Prompts
    reply: Reply
    sampling: Sampling
    n: int
    stop: tuple[str, ...]
    max_tokens: int | None
    stream: bool
    include_usage: bool
    exact_top: bool  # chat reports exactly the top n; completions add the chosen token


class Generations:
    """The way from an OpenAI body to the engine and back."""

    def __init__(self, runtime: GenerateRuntime, model: str, measures: Measures, tasks: asyncio.TaskGroup) -> None:
        self._runtime = runtime
        self._model = model
        self._measures = TokenMeasures(measures)
        self._tasks = tasks

    def refresh(self) -> None:
        """Bring gauges up to date before a scrape."""
        self._measures.kv_occupancy.set(self._runtime.load().kv_occupancy)

    def invocations(self, exchange: Exchange) -> None:
        """`POST /invocations` with `messages` or `prompt`. Raises SteelyardError."""
        body = self._object(exchange)
        if "messages" in body:
            self._begin(exchange, self._plan_chat(body))
        elif "prompt" in body:
            self._begin(exchange, self._plan_completion(body))
        else:
            raise BadRequest("This endpoint serves a language model; send 'messages' or 'prompt'.")

    def chat(self, exchange: Exchange) -> None:
        """`POST /v1/chat/completions`. Raises SteelyardError."""
        self._begin(exchange, self._plan_chat(self._object(exchange)))

    def completions(self, exchange: Exchange) -> None:
        """`POST /v1/completions`. Raises SteelyardError."""
        self._begin(exchange, self._plan_completion(self._object(exchange)))

    def embeddings(self, exchange: Exchange) -> None:
        raise BadRequest("This endpoint serves a generating model; it has no embeddings.")

    def infer(self, exchange: Exchange) -> None:
        raise BadRequest("This endpoint serves a language model; use /v1/chat/completions or /v1/completions.")

    def _object(self, exchange: Exchange) -> dict[str, Any]:
        require_json(exchange.request.header(b"content-type"), exchange.request.body)
        return decode_object(exchange.request.body)

    def _plan_chat(self, body: dict[str, Any]) -> _Plan:
        request: ChatRequest = parse_chat(body)

        async def prompts() -> list[list[int]]:
            return [await self._runtime.render_chat(request.messages)]

        reply = ChatReply(f"chatcmpl-{uuid.uuid4().hex}", self._model, int(time.time()), request.include_usage)
        return _Plan(
            prompts, reply, request.sampling, request.n, request.stop, request.max_tokens,
            request.stream, request.include_usage, exact_top=True,
        )  # fmt: skip

    def _plan_completion(self, body: dict[str, Any]) -> _Plan:
        request: CompletionRequest = parse_completion(body)

        async def prompts() -> list[list[int]]:
            return [item if isinstance(item, list) else await self._runtime.encode(item) for item in request.prompts]

        reply = CompletionReply(f"cmpl-{uuid.uuid4().hex}", self._model, int(time.time()), request.include_usage)
        return _Plan(
            prompts, reply, request.sampling, request.n, request.stop, request.max_tokens,
            request.stream, request.include_usage, exact_top=False,
        )  # fmt: skip

    def _begin(self, exchange: Exchange, plan: _Plan) -> None:
        task = self._tasks.create_task(self._run(exchange, plan))
        exchange.on_end = task.cancel  # a no-op when the task itself ended the exchange on its last line

    async def _run(self, exchange: Exchange, plan: _Plan) -> None:
        left_s = None if exchange.deadline_s is None else exchange.deadline_s - time.monotonic()
        answer = _Answer(exchange, plan, self._runtime, self._measures)
        try:
            async with asyncio.timeout(left_s):
                await (answer.stream() if plan.stream else answer.whole())
            exchange.on_end = None  # this task is the one that ends it
            answer.end()
            return
        except TimeoutError:
            failure: BaseException = DeadlineExceeded("The deadline passed before the answer was complete.")
        except asyncio.CancelledError:
            if not exchange.ended:
                raise
            return
        except Exception as error:
            failure = _first(error)
        exchange.on_end = None
        if isinstance(failure, SteelyardError):
            exchange.fail(failure)
        else:
            exchange.fail_unexpectedly(failure)


class _Answer:
    """One request's choices on their way out."""

    def __init__(self, exchange: Exchange, plan: _Plan, runtime: GenerateRuntime, measures: TokenMeasures) -> None:
        self._exchange = exchange
        self._plan = plan
        self._runtime = runtime
        self._measures = measures
        self._usage = Usage()
        self._prompt_tokens = 0  # known before any answer is
        self._choices: list[Choice] = []
        self._opened: set[int] = set()  # choices of which a stream has told something

    async def whole(self) -> None:
        """Gather every choice."""
        await self._generate(self._keep)

    async def stream(self) -> None:
        """Send every choice as it comes."""
        await self._generate(self._send)

    def end(self) -> None:
        """The last bytes of a successful answer."""
        self._measures.prompt_tokens.inc(self._usage.prompt_tokens)
        self._measures.cached_tokens.inc(self._usage.cached_tokens)
        exchange, plan = self._exchange, self._plan
        usage = self._usage
        exchange.usage = RequestUsage(
            prompt_tokens=usage.prompt_tokens, cached_tokens=usage.cached_tokens, output_tokens=usage.completion_tokens
        ).encode()
        if not plan.stream:
            exchange.send_json(plan.reply.whole(self._choices, self._usage))
            return
        exchange.start_stream()
        tail = plan.reply.usage(self._usage) if plan.include_usage else b""
        exchange.reply.write(tail + DONE)
        exchange.finish_stream()

    async def _generate(self, take: Callable[[int, TextDelta], Awaitable[None]]) -> None:
        plan = self._plan
        prompts = await plan.prompts()
        self._prompt_tokens = sum(map(len, prompts))
        scored: list[ScoredToken] | None = None if plan.sampling.logprobs is None else []
        self._choices = [Choice(scored=None if scored is None else []) for _ in range(len(prompts) * plan.n)]
        async with asyncio.TaskGroup() as choices:
            for place, prompt in enumerate(prompts):
                for number in range(plan.n):
                    choices.create_task(self._one(place * plan.n + number, prompt, number, take))

    async def _one(
        self, index: int, prompt: list[int], number: int, take: Callable[[int, TextDelta], Awaitable[None]]
    ) -> None:
        plan, measures = self._plan, self._measures
        request = GenerateRequest(
            prompt_token_ids=prompt,
            sampling=_sampling_params(plan.sampling, number),
            stop=plan.stop,
            max_tokens=plan.max_tokens,
            priority=self._exchange.priority,
            deadline_s=self._exchange.deadline_s,
        )
        last_s: float | None = None
        counted = 0
        async with aclosing(self._runtime.generate(request)) as deltas:
            async for delta in deltas:
                now_s = time.monotonic()
                if last_s is None:
                    measures.first_token_s.observe(now_s - self._exchange.arrived_s)
                else:
                    measures.inter_token_s.observe(now_s - last_s)
                last_s = now_s
                measures.output_tokens.inc(delta.output_tokens - counted)
                self._usage.completion_tokens += delta.output_tokens - counted
                counted = delta.output_tokens
                if delta.finish_reason is not None and number == 0:
                    self._usage.prompt_tokens += delta.prompt_tokens
                    self._usage.cached_tokens += delta.cached_tokens
                await take(index, delta)

    async def _keep(self, index: int, delta: TextDelta) -> None:
        choice = self._choices[index]
        choice.text += delta.text
        if choice.scored is not None and delta.logprobs:
            choice.scored += self._scored(delta.logprobs)
        choice.finish_reason = delta.finish_reason

    async def _send(self, index: int, delta: TextDelta) -> None:
        exchange, reply, choice = self._exchange, self._plan.reply, self._choices[index]
        parts = b""
        if index not in self._opened:
            self._opened.add(index)
            parts = reply.opening(index)
        if delta.text or delta.logprobs:
            scored = None if choice.scored is None else self._scored(delta.logprobs or [])
            parts += reply.text(index, delta.text, scored)
        if delta.finish_reason is not None:
            parts += reply.finish(index, delta.finish_reason)
        if not exchange.reply.started:
            exchange.usage = self._known_so_far(delta)
            exchange.start_stream()
        exchange.reply.write(parts)
        await exchange.reply.drained()

    def _known_so_far(self, delta: TextDelta) -> bytes:
        """With the first token; what was cached of several prompts is known only when all are computed."""
        cached_tokens = delta.cached_tokens if len(self._choices) == 1 else None
        return RequestUsage(prompt_tokens=self._prompt_tokens, cached_tokens=cached_tokens).encode()

    def _scored(self, tokens: list[TokenLogprob]) -> list[ScoredToken]:
        limit = self._plan.sampling.logprobs or 0
        result = []
        for token in tokens:
            top = sorted(token.top, key=lambda item: -item.logprob)
            if self._plan.exact_top:
                top = top[:limit]
            result.append(ScoredToken(_view(token.chosen), [_view(item) for item in top]))
        return result


def _view(token: TokenChoice) -> TokenView:
    return TokenView(token.text, token.bytes, token.logprob)


def _sampling_params(sampling: Sampling, number: int) -> SamplingParams:
    return SamplingParams(
        temperature=sampling.temperature,
        top_p=sampling.top_p,
        top_k=sampling.top_k,
        min_p=sampling.min_p,
        presence_penalty=sampling.presence_penalty,
        frequency_penalty=sampling.frequency_penalty,
        logit_bias=sampling.logit_bias or {},
        seed=None if sampling.seed is None else _wrapped(sampling.seed + number),
        logprobs=sampling.logprobs,
        ignore_eos=sampling.ignore_eos,
    )


def _wrapped(seed: int) -> int:
    """Within 64 bits, signed."""
    return (seed + 2**63) % 2**64 - 2**63


def _first(error: BaseException) -> BaseException:
    """The cause inside the groups that task groups raise."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
