"""What the router reads of a JSON body: whose model it names, and what tells how much work it is. Never what it says.

`app.py` reads it once for the OpenAI paths, `weigh.py` for a language model's `/invocations`. Everything but the
model's name stays raw JSON, since a field of a wrong type is the replica's to refuse, in words that help.
"""

from __future__ import annotations

import msgspec

_NONE = msgspec.Raw(b"")


class BodyFields(msgspec.Struct):
    """Raw JSON; empty where the body has no such field."""

    messages: msgspec.Raw = _NONE
    prompt: msgspec.Raw = _NONE
    tools: msgspec.Raw = _NONE
    max_tokens: msgspec.Raw = _NONE
    max_completion_tokens: msgspec.Raw = _NONE
    n: msgspec.Raw = _NONE
    prompt_cache_key: msgspec.Raw = _NONE
    user: msgspec.Raw = _NONE


class NamedFields(BodyFields, kw_only=True):
    """A body that must name its model."""

    model: str


decode_named = msgspec.json.Decoder(NamedFields).decode
_decode_fields = msgspec.json.Decoder(BodyFields).decode


def read_fields(body: bytes) -> BodyFields | None:
    """None: it is no JSON object, which the replica will say better."""
    try:
        return _decode_fields(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def whole_number(raw: msgspec.Raw) -> int | None:
    """A positive whole number; None where it is none."""
    digits = bytes(raw)
    return int(digits) if digits.isdigit() and len(digits) < 10 and int(digits) else None
