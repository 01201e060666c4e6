"""Log probabilities in the shapes of the two APIs: a list of objects in chat, parallel arrays in text completions.

Called by `render.py`; the tokens come from a runtime by way of the replica.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

LOWEST = -9999.0  # what OpenAI writes for "practically never"; JSON has no minus infinity


@dataclass(frozen=True, slots=True)
class TokenView:
    """One token as a client sees it."""

    text: str
    bytes: bytes
    logprob: float


@dataclass(frozen=True, slots=True)
class ScoredToken:
    """A sampled token and the most likely ones at its place, best first."""

    chosen: TokenView
    top: Sequence[TokenView] = ()


def chat_logprobs(tokens: Sequence[ScoredToken]) -> dict[str, Any]:
    return {
        "content": [{**_view(token.chosen), "top_logprobs": [_view(item) for item in token.top]} for token in tokens],
        "refusal": None,
    }


def completion_logprobs(tokens: Sequence[ScoredToken], text_offset: int) -> dict[str, Any]:
    """`text_offset` is the number of characters before the first token."""
    offsets = []
    for token in tokens:
        offsets.append(text_offset)
        text_offset += len(token.chosen.text)
    return {
        "tokens": [token.chosen.text for token in tokens],
        "token_logprobs": [_finite(token.chosen.logprob) for token in tokens],
        "top_logprobs": [{item.text: _finite(item.logprob) for item in token.top} for token in tokens],
        "text_offset": offsets,
    }


def _view(token: TokenView) -> dict[str, Any]:
    return {"token": token.text, "logprob": _finite(token.logprob), "bytes": list(token.bytes)}


def _finite(logprob: float) -> float:
    return logprob if logprob > LOWEST else LOWEST
