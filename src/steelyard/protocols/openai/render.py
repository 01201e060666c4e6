"""Replies of the two completion APIs, whole or chunk by chunk, as bytes.

One `ChatReply` or `CompletionReply` per request, driven by the replica. A text chunk is on the path of every token, so
its constant parts are encoded once. Nothing here decides when a chunk is sent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import msgspec

from steelyard.protocols.openai.render_logprobs import ScoredToken, chat_logprobs, completion_logprobs
from steelyard.wire.sse import encode_event

_encode = msgspec.json.Encoder().encode


@dataclass(slots=True)
class Usage:
    """Tokens of a whole request, all of its choices together."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0

    def as_json(self) -> dict[str, Any]:
        return {
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.completion_tokens,
            "total_tokens": self.prompt_tokens + self.completion_tokens,
            "prompt_tokens_details": {"cached_tokens": self.cached_tokens},
        }


@dataclass(slots=True)
class Choice:
    """One finished choice; `scored` is None when no log probabilities were asked for."""

    text: str = ""
    finish_reason: str | None = None
    scored: list[ScoredToken] | None = None


class Reply(Protocol):
    """What the replica drives, whichever API the client spoke."""

    def whole(self, choices: Sequence[Choice], usage: Usage) -> bytes:
        """The JSON body of a reply that is not streamed."""

    def opening(self, index: int) -> bytes:
        """The first event of a choice; empty where the API has none."""

    def text(self, index: int, text: str, scored: Sequence[ScoredToken] | None) -> bytes:
        """An event with new text."""

    def finish(self, index: int, reason: str) -> bytes:
        """The last event of a choice."""

    def usage(self, usage: Usage) -> bytes:
        """The event after all choices that carries the usage."""


@dataclass(slots=True)
class ChatReply:
    """`chat.completion` and `chat.completion.chunk`. `usage_follows` puts `usage: null` into the chunks before it."""

    id: str
    model: str
    created: int  # seconds since the epoch
    usage_follows: bool = False
    _head: bytes = field(init=False)
    _tail: bytes = field(init=False)

    def __post_init__(self) -> None:
        self._head = _head(self.id, "chat.completion.chunk", self.created, self.model)
        self._tail = b'],"usage":null}' if self.usage_follows else b"]}"

    def whole(self, choices: Sequence[Choice], usage: Usage) -> bytes:
        return _encode(
            {
                "id": self.id,
                "object": "chat.completion",
                "created": self.created,
                "model": self.model,
                "choices": [
                    {
                        "index": index,
                        "message": {"role": "assistant", "content": choice.text, "refusal": None},
                        "logprobs": None if choice.scored is None else chat_logprobs(choice.scored),
                        "finish_reason": choice.finish_reason,
                    }
                    for index, choice in enumerate(choices)
                ],
                "usage": usage.as_json(),
            }
        )

    def opening(self, index: int) -> bytes:
        return self._chunk(index, b'{"role":"assistant","content":"","refusal":null}', b"null", b"null")

    def text(self, index: int, text: str, scored: Sequence[ScoredToken] | None) -> bytes:
        logprobs = b"null" if scored is None else _encode(chat_logprobs(scored))
        return self._chunk(index, b'{"content":%b}' % _encode(text), logprobs, b"null")

    def finish(self, index: int, reason: str) -> bytes:
        return self._chunk(index, b"{}", b"null", _encode(reason))

    def usage(self, usage: Usage) -> bytes:
        return encode_event(b'%b],"usage":%b}' % (self._head, _encode(usage.as_json())))

    def _chunk(self, index: int, delta: bytes, logprobs: bytes, reason: bytes) -> bytes:
        return b'data: %b{"index":%d,"delta":%b,"logprobs":%b,"finish_reason":%b}%b\n\n' % (
            self._head, index, delta, logprobs, reason, self._tail,
        )  # fmt: skip


@dataclass(slots=True)
class CompletionReply:
    """`text_completion`, whole and streamed: the same object both times."""

    id: str
    model: str
    created: int  # seconds since the epoch
    usage_follows: bool = False
    _head: bytes = field(init=False)
    _tail: bytes = field(init=False)
    _offsets: dict[int, int] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self._head = _head(self.id, "text_completion", self.created, self.model)
        self._tail = b'],"usage":null}' if self.usage_follows else b"]}"

    def whole(self, choices: Sequence[Choice], usage: Usage) -> bytes:
        return _encode(
            {
                "id": self.id,
                "object": "text_completion",
                "created": self.created,
                "model": self.model,
                "choices": [
                    {
                        "index": index,
                        "text": choice.text,
                        "logprobs": None if choice.scored is None else completion_logprobs(choice.scored, 0),
                        "finish_reason": choice.finish_reason,
                    }
                    for index, choice in enumerate(choices)
                ],
                "usage": usage.as_json(),
            }
        )

    def opening(self, index: int) -> bytes:
        return b""

    def text(self, index: int, text: str, scored: Sequence[ScoredToken] | None) -> bytes:
        offset = self._offsets.get(index, 0)
        self._offsets[index] = offset + len(text)
        logprobs = b"null" if scored is None else _encode(completion_logprobs(scored, offset))
        return self._chunk(index, _encode(text), logprobs, b"null")

    def finish(self, index: int, reason: str) -> bytes:
        return self._chunk(index, b'""', b"null", _encode(reason))

    def usage(self, usage: Usage) -> bytes:
        return encode_event(b'%b],"usage":%b}' % (self._head, _encode(usage.as_json())))

    def _chunk(self, index: int, text: bytes, logprobs: bytes, reason: bytes) -> bytes:
        return b'data: %b{"index":%d,"text":%b,"logprobs":%b,"finish_reason":%b}%b\n\n' % (
            self._head, index, text, logprobs, reason, self._tail,
        )  # fmt: skip


def _head(identifier: str, kind: str, created: int, model: str) -> bytes:
    known = _encode({"id": identifier, "object": kind, "created": created, "model": model})
    return known[:-1] + b',"choices":['
