"""A text completion request: one or several prompts, as text or as token ids, and options in `Sampling`.

Called by the replica for `/v1/completions` and for `/invocations` bodies with `prompt`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from msgspec import Meta

from steelyard.errors import InvalidParameter
from steelyard.protocols.openai.fields import (
    CommonFields,
    Sampling,
    include_usage_of,
    refuse,
    sampling_of,
    stops_of,
)
from steelyard.protocols.strict_json import convert

MAX_PROMPTS = 128
DEFAULT_MAX_TOKENS = 16


@dataclass(frozen=True, slots=True)
class CompletionRequest:
    prompts: list[str] | list[list[int]]
    sampling: Sampling
    n: int = 1  # per prompt
    stop: tuple[str, ...] = ()
    max_tokens: int = DEFAULT_MAX_TOKENS
    stream: bool = False
    include_usage: bool = False


class _Fields(CommonFields, frozen=True, kw_only=True):
    prompt: Any = None
    logprobs: Annotated[int, Meta(ge=0, le=5)] | None = None
    best_of: Annotated[int, Meta(ge=1)] | None = None


def parse_completion(body: dict[str, Any]) -> CompletionRequest:
    """The request. Raises InvalidParameter naming the field."""
    fields = convert(body, _Fields)
    refuse(body, "echo", "is not supported by this endpoint", False)
    refuse(body, "suffix", "is not supported by this endpoint", "")
    n = fields.n or 1
    if fields.best_of not in (None, n):
        raise InvalidParameter("'best_of' is not supported by this endpoint.", param="best_of")
    prompts = _prompts(fields.prompt)
    if len(prompts) * n > MAX_PROMPTS:
        raise InvalidParameter(f"'n' times the number of prompts may be at most {MAX_PROMPTS}.", param="n")
    return CompletionRequest(
        prompts=prompts,
        sampling=sampling_of(fields, fields.logprobs),
        n=n,
        stop=stops_of(fields.stop),
        max_tokens=DEFAULT_MAX_TOKENS if fields.max_tokens is None else fields.max_tokens,
        stream=bool(fields.stream),
        include_usage=include_usage_of(fields),
    )


def _prompts(prompt: Any) -> list[str] | list[list[int]]:
    if prompt is None:
        raise InvalidParameter("The field 'prompt' is required.", param="prompt")
    if isinstance(prompt, str):
        return [prompt]
    if isinstance(prompt, list) and prompt:
        if len(prompt) <= MAX_PROMPTS and all(isinstance(item, str) for item in prompt):
            return list(prompt)
        if all(_is_token(item) for item in prompt):
            return [list(prompt)]
        if len(prompt) <= MAX_PROMPTS and all(_is_tokens(item) for item in prompt):
            return [list(item) for item in prompt]
        if len(prompt) > MAX_PROMPTS:
            raise InvalidParameter(f"'prompt' may hold at most {MAX_PROMPTS} prompts.", param="prompt")
    raise InvalidParameter("'prompt' must be a string, token ids, or a non-empty array of either.", param="prompt")


def _is_token(item: Any) -> bool:
    return isinstance(item, int) and not isinstance(item, bool) and 0 <= item < 2**31


def _is_tokens(item: Any) -> bool:
    return isinstance(item, list) and bool(item) and all(_is_token(token) for token in item)
