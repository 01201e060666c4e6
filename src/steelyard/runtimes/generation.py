"""One running generation of a language model: tokens in, text out.

`llm.LlmRuntime` keeps one `Generation` per request and one `ModelText` per model. No I/O; nothing here knows the
engine process.
"""

from __future__ import annotations

import asyncio

from steelyard.engine.chat import ChatTemplate
from steelyard.engine.checkpoint import Checkpoint
from steelyard.engine.detokenize import Detokenizer, Released, TokenBytes, readable
from steelyard.engine.messages import FinishReason, Token, TopLogprobs
from steelyard.engine.tokenizer import TextEncoder
from steelyard.errors import SteelyardError
from steelyard.runtimes.base import GenerateRequest, TextDelta, TokenChoice, TokenLogprob


class ModelText:
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


class Generation:
    """One running request: tokens come in from the engine's frames, deltas go out to whoever iterates."""

    def __init__(self, text: ModelText, request: GenerateRequest) -> None:
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
