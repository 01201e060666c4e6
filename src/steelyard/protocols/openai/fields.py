"""The fields that chat and text completions share, with their limits, and what becomes of them: `Sampling`.

Used by `chat.py` and `completions.py`. Beside OpenAI's own fields the common extras `top_k`, `min_p` and `ignore_eos`
are read; fields that we do not know are ignored, as other self-hosted servers do, but a known field that we cannot
honour is refused by name.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from steelyard.errors import InvalidParameter
from steelyard.protocols.strict_json import json_type

MAX_CHOICES = 16
MAX_STOPS = 4
MAX_TOP_LOGPROBS = 20
_INT64 = 2**63


@dataclass(frozen=True, slots=True)
class Sampling:
    """How to choose tokens; defaults are OpenAI's."""

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0  # 0: no limit
    min_p: float = 0.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: dict[int, float] | None = None
    seed: int | None = None
    logprobs: int | None = None  # None: no report; n: the chosen token and the n most likely ones
    ignore_eos: bool = False  # write on until `max_tokens`, whatever the model says


class StreamOptions(msgspec.Struct, frozen=True):
    include_usage: bool | None = None


class CommonFields(msgspec.Struct, frozen=True, kw_only=True):
    """As they stand in the body. `model` is the router's business and `user` nobody's yet."""

    model: str | None = None
    n: Annotated[int, Meta(ge=1, le=MAX_CHOICES)] | None = None
    max_tokens: Annotated[int, Meta(ge=1)] | None = None
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    top_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    top_k: Annotated[int, Meta(ge=-1)] | None = None
    min_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    presence_penalty: Annotated[float, Meta(ge=-2, le=2)] | None = None
    frequency_penalty: Annotated[float, Meta(ge=-2, le=2)] | None = None
    logit_bias: dict[str, Annotated[float, Meta(ge=-100, le=100)]] | None = None
    seed: int | None = None
    ignore_eos: bool | None = None
    stop: Any = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    user: str | None = None


def sampling_of(fields: CommonFields, logprobs: int | None) -> Sampling:
    """The sampling that these fields ask for. Raises InvalidParameter."""
    if fields.seed is not None and not -_INT64 <= fields.seed < _INT64:
        raise InvalidParameter("'seed' must fit 64 bits.", param="seed")
    return Sampling(
        temperature=1.0 if fields.temperature is None else fields.temperature,
        top_p=1.0 if fields.top_p is None else fields.top_p,
        top_k=max(0, fields.top_k or 0),  # -1 is another server's way to say "no limit"
        min_p=fields.min_p or 0.0,
        presence_penalty=fields.presence_penalty or 0.0,
        frequency_penalty=fields.frequency_penalty or 0.0,
        logit_bias=_logit_bias(fields.logit_bias),
        seed=fields.seed,
        logprobs=logprobs,
        ignore_eos=bool(fields.ignore_eos),
    )


def stops_of(stop: Any) -> tuple[str, ...]:
    """`stop` as a tuple of non-empty strings. Raises InvalidParameter."""
    if stop is None:
        return ()
    stops = [stop] if isinstance(stop, str) else stop
    if not isinstance(stops, list) or not all(isinstance(item, str) for item in stops):
        raise InvalidParameter("'stop' must be a string or an array of strings.", param="stop")
    if len(stops) > MAX_STOPS:
        raise InvalidParameter(f"'stop' may hold at most {MAX_STOPS} strings.", param="stop")
    if not all(stops):
        raise InvalidParameter("'stop' must not hold an empty string.", param="stop")
    return tuple(stops)


def include_usage_of(fields: CommonFields) -> bool:
    """Whether a stream ends with a usage chunk. Raises InvalidParameter when the option stands without a stream."""
    if fields.stream_options is None:
        return False
    if not fields.stream:
        raise InvalidParameter("'stream_options' is only allowed when 'stream' is true.", param="stream_options")
    return bool(fields.stream_options.include_usage)


def refuse(body: dict[str, Any], name: str, why: str, *allowed: Any) -> None:
    """Raises InvalidParameter unless the field is absent, null or one of the harmless values."""
    value = body.get(name)
    if value is None or any(value == harmless and type(value) is type(harmless) for harmless in allowed):
        return
    raise InvalidParameter(f"'{name}' {why}.", param=name)


def require_type(value: Any, kind: type, param: str, noun: str) -> None:
    """Raises InvalidParameter unless the value has the type."""
    if not isinstance(value, kind):
        raise InvalidParameter(f"'{param}' must be {noun}, not {json_type(value)}.", param=param)


def _logit_bias(bias: dict[str, float] | None) -> dict[int, float] | None:
    if not bias:
        return None
    result = {}
    for key, value in bias.items():
        if not (key.isascii() and key.isdigit() and len(key) <= 10):
            raise InvalidParameter("'logit_bias' must map token ids to numbers.", param="logit_bias")
        result[int(key)] = value
    return result
