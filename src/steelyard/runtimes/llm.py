"""The LLM runtime: tokenises, asks the engine process for tokens, and turns them into text.

A replica owns one. The forward pass lives in another process (`steelyard.engine`), so that HTTP, tokenising and
health never wait for it; this module never imports torch. It lives on one asyncio loop and is not thread-safe.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import sys
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from steelyard.engine.chat import ChatTemplate
from steelyard.engine.checkpoint import Checkpoint
from steelyard.engine.detokenize import Detokenizer, Released, TokenBytes, readable
from steelyard.engine.formats import open_checkpoint
from steelyard.engine.messages import (
    AddRequest,
    Cancel,
    Command,
    EngineOptions,
    Event,
    Failed,
    FinishReason,
    FrameReader,
    Limits,
    Loaded,
    Loading,
    Rejected,
    Shutdown,
    Stats,
    StepDone,
    Token,
    TopLogprobs,
    frame,
)
from steelyard.engine.tokenizer import TextEncoder
from steelyard.errors import (
    BadRequest,
    BadUpstream,
    ContextTooLong,
    DeadlineExceeded,
    InvalidParameter,
    ModelFailed,
    ModelLoadError,
    SteelyardError,
)
from steelyard.observe.logs import get_logger
from steelyard.runtimes.base import GenerateRequest, GenerationLoad, TextDelta, TokenChoice, TokenLogprob

_SHORT_TEXT = 4096  # characters that are tokenised on the loop itself (about a millisecond); more goes to a thread
_STOP_TIMEOUT_S = 5.0
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
        self._text: _Text | None = None
        self._limits: Limits | None = None
        self._engine: _EngineProcess | None = None
        self._tokenising = ThreadPoolExecutor(1, "tokenise")
        self._generations: dict[int, _Generation] = {}
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
        self._text = await asyncio.get_running_loop().run_in_executor(self._tokenising, _Text, checkpoint)
        if self._text.chat is not None:
            self.task = "llm/v1/chat"
        self._engine = _EngineProcess(self._options, self._on_event, self._on_end)
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
        generation = _Generation(text, request)
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

    def _add_request(self, request_id: int, request: GenerateRequest, text: _Text) -> AddRequest:
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

    def _ready_text(self) -> _Text:
        if self._text is None:
            raise BadUpstream("The model is not loaded.")
        return self._text

    def _ready_engine(self) -> _EngineProcess:
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


class _Text:
    """All that turns a model's text into ids and back."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        self.encoder = TextEncoder(checkpoint.tokenizer)
        self.bytes = TokenBytes(checkpoint.tokenizer)
        self.eos_token_ids = checkpoint.eos_token_ids
        self.chat = (
            ChatTemplate(checkpoint.chat_template, self.encoder, checkpoint.special_tokens)
            if checkpoint.chat_template
            else None
        )

    def choice(self, token_id: int, logprob: float) -> TokenChoice:
        data = self.bytes.shown(token_id)
        return TokenChoice(token_id, readable(data), data, logprob)

    def logprob(self, token_id: int, report: TopLogprobs) -> TokenLogprob:
        chosen = self.choice(token_id, report.chosen)
        pairs = zip(report.token_ids, report.logprobs, strict=True)
        return TokenLogprob(chosen, [self.choice(other, logprob) for other, logprob in pairs])


class _Generation:
    """One running request: tokens come in from the engine's frames, deltas go out to whoever iterates."""

    def __init__(self, text: _Text, request: GenerateRequest) -> None:
        self._text = text
        self._detokenizer: Detokenizer[Token] = Detokenizer(text.bytes, request.stop)
        self._prompt_tokens = len(request.prompt_token_ids)
        self._wants_logprobs = request.sampling.logprobs is not None
        self._ends = set() if request.sampling.ignore_eos else set(text.eos_token_ids)
        self._output_tokens = 0
        self._arrived: list[Token] = []
        self._error: SteelyardError | None = None
        self._wake = asyncio.Event()
        self.ended = False  # the engine has nothing of it any more

    def push(self, token: Token) -> None:
        self._arrived.append(token)
        self.ended = token.finish_reason is not None
        self._wake.set()

    def fail(self, error: SteelyardError) -> None:
        self._error = self._error or error
        self.ended = True
        self._wake.set()

    async def next_delta(self) -> TextDelta | None:
        """The next one with text or an end in it. What arrived together is one delta."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            tokens, self._arrived = self._arrived, []
            delta = self._delta(tokens)
            if delta.finish_reason is not None or delta.token_ids or delta.text:
                if self._error is not None:
                    self._wake.set()
                return delta
            if self._error is not None:
                raise self._error

    def _delta(self, tokens: list[Token]) -> TextDelta:
        text = ""
        shown: list[Token] = []
        finish_reason: FinishReason | None = None
        for token in tokens:
            self._output_tokens += 1
            for released in self._advance(token):
                text += released.text
                shown += released.tokens
                if released.stopped:
                    finish_reason = "stop"
            finish_reason = finish_reason or token.finish_reason
            if finish_reason is not None:
                break
        logprobs = None
        if self._wants_logprobs:
            logprobs = [self._text.logprob(t.token_id, t.logprobs) for t in shown if t.logprobs is not None]
        ids = [token.token_id for token in shown]
        return TextDelta(text, ids, logprobs, finish_reason, self._prompt_tokens, self._output_tokens)

    def _advance(self, token: Token) -> list[Released[Token]]:
        parts = []
        if token.token_id not in self._ends:
            parts.append(self._detokenizer.push(token.token_id, token))
        if token.finish_reason is not None and not (parts and parts[-1].stopped):
            parts.append(self._detokenizer.finish())
        return parts


class _EngineProcess:
    """The child process and its socket."""

    def __init__(
        self, options: EngineOptions, on_event: Callable[[Event], None], on_end: Callable[[str], None]
    ) -> None:
        self._options = options
        self._on_event = on_event
        self._on_end = on_end
        self._process: asyncio.subprocess.Process | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._reading: asyncio.Task[None] | None = None
        self._stopping = False

    async def start(self, on_loading: Callable[[str], None]) -> Limits:
        """Raises ModelLoadError."""
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable, "-P", "-m", "steelyard.engine",
                str(theirs.fileno()), msgspec.json.encode(self._options).decode(),
                pass_fds=[theirs.fileno()],
                stdin=asyncio.subprocess.DEVNULL,
                env={**os.environ, "OMP_WAIT_POLICY": "PASSIVE"},
            )  # fmt: skip
        reader, self._writer = await asyncio.open_connection(sock=ours)
        events = _events(reader)
        async for event in events:
            match event:
                case Loading():
                    on_loading(event.detail)
                case Failed():
                    raise ModelLoadError(event.message)
                case Loaded():
                    self._reading = asyncio.create_task(self._read(events), name="engine-events")
                    return event.limits
        raise ModelLoadError(f"The engine process ended while it loaded the model ({await self._exit_reason()}).")

    def send(self, command: Command) -> None:
        if self._writer is not None and not self._writer.is_closing():
            self._writer.write(frame(command))

    async def stop(self) -> None:
        self._stopping = True
        self.send(Shutdown())
        if self._writer is not None:
            self._writer.close()
        if self._process is not None:
            try:
                await asyncio.wait_for(self._process.wait(), _STOP_TIMEOUT_S)
            except TimeoutError:
                self._process.kill()
                await self._process.wait()
        if self._reading is not None:
            self._reading.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._reading

    async def _read(self, events: AsyncGenerator[Event, None]) -> None:
        reason = "it broke its protocol"
        try:
            async for event in events:
                self._on_event(event)
            reason = await self._exit_reason()
        except (ValueError, msgspec.MsgspecError) as error:
            reason = f"it broke its protocol: {error}"
        finally:
            if not self._stopping:
                self._on_end(f"The engine process ended unexpectedly ({reason}).")

    async def _exit_reason(self) -> str:
        if self._process is None:
            return "it did not start"
        status = await self._process.wait()
        if status == -9:
            return "killed; was it out of memory?"
        return f"signal {-status}" if status < 0 else f"exit status {status}"


async def _events(reader: asyncio.StreamReader) -> AsyncGenerator[Event, None]:
    """Until end of file."""
    frames = FrameReader()
    decoder = msgspec.msgpack.Decoder(Event)
    while True:
        try:
            data = await reader.read(1 << 16)
        except ConnectionError:
            return
        if not data:
            return
        for body in frames.feed(data):
            yield decoder.decode(body)


def _error(rejected: Rejected) -> SteelyardError:
    return _ERRORS.get(rejected.code, ModelFailed)(rejected.message)
