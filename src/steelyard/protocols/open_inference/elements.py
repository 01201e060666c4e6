"""What the elements of a BYTES tensor stand for: text, bytes, dates, JSON, as MLServer's content types say.

Called by `columns.py` and `decode.py` with the object arrays of `tensors.py`. Without a content type BYTES are UTF-8
text, in JSON and in binary alike, unless the signature knows better.
"""

from __future__ import annotations

import base64
import binascii
from typing import Any

import msgspec

from steelyard.protocols.open_inference.tensors import refuse

BASE64 = "base64"
TEXT = "str"


def texts(name: str, values: list[Any], kind: str | None) -> list[str | None]:
    """As text. Raises InvalidParameter when bytes are not UTF-8."""
    return [_text(name, value) for value in unwrapped(name, values, kind)]


def unwrapped(name: str, values: list[Any], kind: str | None) -> list[Any]:
    """Base64 taken off where the content type says so: bytes then; else the elements as they came."""
    if kind != BASE64:
        return values
    return [None if value is None else _from_base64(name, value) for value in values]


def binaries(name: str, values: list[Any], kind: str | None) -> list[Any]:
    """For a binary column: bytes as they are. JSON text is left to be read as base64 unless it is said to be text."""
    values = unwrapped(name, values, kind)
    return [value.encode() if kind == TEXT and isinstance(value, str) else value for value in values]


def parsed(name: str, values: list[Any], kind: str | None) -> list[Any]:
    """For columns of arrays, objects and the like: each element is a JSON text, unless it is said to be text."""
    found = texts(name, values, kind)
    return list(found) if kind == TEXT else [_parse(name, value) for value in found]


def _text(name: str, value: Any) -> str | None:
    if not isinstance(value, bytes):
        return value  # type: ignore[no-any-return]  # str or None
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise refuse(name, "holds bytes that are not UTF-8 text") from None


def _from_base64(name: str, value: str | bytes) -> bytes:
    try:
        return base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        raise refuse(name, "holds an element that is not base64, which its content_type says") from None


def _parse(name: str, value: str | None) -> Any:
    if value is None:
        return None
    try:
        return msgspec.json.decode(value)
    except (msgspec.DecodeError, ValueError, RecursionError):
        raise refuse(name, "holds an element that is not JSON, as this model's column needs") from None
