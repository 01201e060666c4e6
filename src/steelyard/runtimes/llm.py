"""The LLM runtime: tokenises, asks the engine process for tokens, and turns them into text.

A replica owns one. The forward pass lives in another process (`steelyard.engine`), so that HTTP, tokenising and
health never wait for it; this module never imports torch. It lives on one asyncio loop and is not thread-safe.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from steelyard.engine.formats import open_checkpoint
from steelyard.engine.messages import (
    AddRequest,
    Cancel,
    EngineOptions,
    Event,
    Limits,
    Rejected,
    Stats,
    StepDone,
)
from steelyard.errors import (
    BadRequest,
    BadUpstream,
    ContextTooLong,
    DeadlineExceeded,
    InvalidParameter,
    ModelFailed,
    SteelyardError,
)
from steelyard.observe.logs import get_logger
from steelyard.runtimes.base import GenerateRequest, GenerationLoad, TextDelta
from steelyard.runtimes.engine_process import EngineProcess
from steelyard.runtimes.generation import Generation, ModelText

_SHORT_TEXT = 4096  # characters that are tokenised on the loop itself (about a millisecond); more goes to a thread
_ERRORS: dict[str, type[SteelyardError]] = {
    kind.code: kind for kind in (BadRequest, InvalidParameter, ContextTooLong, DeadlineExceeded, ModelFailed)
}
T = TypeVar("T")


class LlmRuntime:
    """A `GenerateRuntime` over one engine process."""

    name = "llm"

    def __init__(self, path: Path, *, max_concurrency: int | None = None, options: EngineOptions | None = None) -> None:
        """`max_concurrency`: sequences in one step. `options`: for tests and small machines; their path is ignored."""
        chosen = msgspec.structs.replace(options or EngineOptions(""), path=str(path))
        self._options = msgspec.structs.replace(chosen, max_sequences=max_concurrency or chosen.max_sequences)
        self.task = "llm/v1/completions"
        self.max_concurrency = self._options.max_sequences
        self.context_length = 0
        self.detail = "starting"  # what it is doing before it is ready
        self._text: ModelText | None = None
        self._limits: Limits | None = None
        self._engine: EngineProcess | None = None
        self._tokenising = ThreadPoolExecutor(1, "tokenise")
        self._generations: dict[int, Generation] = {}
        self._next_id = 0
        self._stats = Stats()
        self._dead: str | None = None
        self._died = asyncio.Event()

    async def start(self) -> None:
        """Raises ModelLoadError."""
        self.detail = "reading the tokenizer"
        checkpoint = await asyncio.get_running_loop().run_in_executor(
            self._tokenising, open_checkpoint, Path(self._options.path)
        )
        self._text = await asyncio.get_running_loop().run_in_executor(self._tokenising, ModelText, checkpoint)
        if self._text.chat is not None:
            self.task = "llm/v1/chat"
        self._engine = EngineProcess(self._options, self._on_event, self._on_end)
        try:
            self._limits = await self._engine.start(self._on_loading)
        except BaseException:
            await self.stop()
            raise
        self.context_length = self._limits.max_model_len
        self.detail = "ready"

    async def render_chat(self, messages: list[dict[str, Any]], tools: list[dict[str, Any]] | None = None) -> list[int]:
        """Raises BadRequest, also when the model has no chat template."""
        chat = self._ready_text().chat
        if chat is None:
            raise BadRequest("This model has no chat template; use completions.")
        size = sum(len(str(message.get("content", ""))) for message in messages) + (len(str(tools)) if tools else 0)
        return await self._compute(size, lambda: chat.render(messages, tools))

    async def encode(self, text: str) -> list[int]:
        encoder = self._ready_text().encoder
        return await self._compute(len(text), lambda: encoder.encode_prompt(text))

    async def generate(self, request: GenerateRequest) -> AsyncGenerator[TextDelta, None]:
        """See `GenerateRuntime.generate`."""
        text, engine = self._ready_text(), self._ready_engine()
        generation = Generation(text, request)
        self._next_id += 1
        command = self._add_request(self._next_id, request, text)
        self._generations[command.id] = generation
        try:
            engine.send(command)
            while (delta := await generation.next_delta()) is not None:
                yield delta
                if delta.finish_reason is not None:
                    return
        finally:
            del self._generations[command.id]
            if not generation.ended:
                engine.send(Cancel(command.id))

    def load(self) -> GenerationLoad:
        stats = self._stats
        return GenerationLoad(
            in_flight=len(self._generations),
            queue_depth=stats.waiting,
            kv_occupancy=stats.blocks_used / stats.blocks_total if stats.blocks_total else 0.0,
            prompt_tokens_total=stats.prompt_tokens_total,
            output_tokens_total=stats.output_tokens_total,
            steps_total=stats.steps_total,
            preemptions_total=stats.preemptions_total,
        )

    async def died(self) -> str:
        await self._died.wait()
        return self._dead or ""

    async def stop(self) -> None:
        self._fail_all("The replica is stopping.")
        if self._engine is not None:
            await self._engine.stop()
        self._tokenising.shutdown(wait=False)

    def _add_request(self, request_id: int, request: GenerateRequest, text: ModelText) -> AddRequest:
        """Checks what the engine would refuse, with messages for a client."""
        prompt_tokens = len(request.prompt_token_ids)
        room = self.context_length - prompt_tokens
        if prompt_tokens == 0:
            raise BadRequest("The prompt is empty.")
        if room < 1:
            raise ContextTooLong(
                f"The prompt has {prompt_tokens} tokens; the model's context of {self.context_length} tokens has no "
                "room for it and an answer."
            )
        if request.max_tokens is not None and request.max_tokens < 1:
            raise InvalidParameter("max_tokens must be at least 1.", param="max_tokens")
        vocab_size = self._limits.vocab_size if self._limits else 0
        for token_id in request.sampling.logit_bias:
            if not 0 <= token_id < vocab_size:
                message = f"logit_bias names the token {token_id}; ids are below {vocab_size}."
                raise InvalidParameter(message, param="logit_bias")
        return AddRequest(
            id=request_id,
            prompt_token_ids=request.prompt_token_ids,
            sampling=request.sampling,
            max_tokens=min(room, request.max_tokens or room),
            stop_token_ids=list(text.eos_token_ids),
            priority=request.priority,
            deadline_s=request.deadline_s,
        )

    async def _compute(self, size: int, work: Callable[[], T]) -> T:
        """Text work: here if it is short, else in the one thread for it (more would only fight for the lock)."""
        if size <= _SHORT_TEXT:
            return work()
        return await asyncio.get_running_loop().run_in_executor(self._tokenising, work)

    def _ready_text(self) -> ModelText:
        if self._text is None:
            raise BadUpstream("The model is not loaded.")
        return self._text

    def _ready_engine(self) -> EngineProcess:
        if self._engine is None or self._dead is not None:
            raise BadUpstream(self._dead or "The model is not loaded.")
        return self._engine

    def _on_loading(self, detail: str) -> None:
        self.detail = detail

    def _on_event(self, event: Event) -> None:
        if isinstance(event, Stats):
            self._stats = event
        elif isinstance(event, StepDone):
            self._stats = event.stats
            # A token of a request that is gone here was already under way when its cancellation was sent.
            for token in event.tokens:
                if generation := self._generations.get(token.id):
                    generation.push(token)
            for rejected in event.rejected:
                if generation := self._generations.get(rejected.id):
                    generation.fail(_error(rejected))

    def _on_end(self, reason: str) -> None:
        self._fail_all(reason)
        get_logger().error("engine_died", reason=reason)
        self._died.set()

    def _fail_all(self, reason: str) -> None:
        self._dead = self._dead or reason
        for generation in self._generations.values():
            generation.fail(BadUpstream(reason))


def _error(rejected: Rejected) -> SteelyardError:
    return _ERRORS.get(rejected.code, ModelFailed)(rejected.message)
