"""RFC 8259 JSON from clients, with every fault turned into a 400 of one sentence.

Used by each dialect's parser. `NaN` and `Infinity` tokens, lone surrogates, numbers out of range and nesting deeper
than the interpreter's stack are refused. Of a duplicate key the last value wins, as RFC 8259 allows and as every
client library writes; nothing here echoes the submitted values.
"""

from __future__ import annotations

import re
from typing import Any, TypeVar

import msgspec

from steelyard.errors import BadRequest, InvalidParameter

Model = TypeVar("Model")

_VALIDATION = re.compile(r"^(?P<reason>.*?)(?: - at `(?:key in )?`?\$\.?(?P<path>[^`]*)`)?$", re.DOTALL)


def decode_json(body: bytes) -> Any:
    """Any JSON value. Raises BadRequest."""
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError, ValueError) as error:
        raise _bad_json(body, error) from None


def decode_object(body: bytes) -> dict[str, Any]:
    """A JSON object. Raises BadRequest."""
    value = decode_json(body)
    if not isinstance(value, dict):
        raise BadRequest(f"The body must be a JSON object, not {json_type(value)}.")
    return value


def convert(value: dict[str, Any], model: type[Model]) -> Model:
    """A decoded object as a msgspec struct. Raises InvalidParameter naming the field."""
    try:
        return msgspec.convert(value, model)
    except msgspec.ValidationError as error:
        raise _bad_field(str(error)) from None
    except (RecursionError, OverflowError) as error:
        raise BadRequest(f"The body cannot be read: {type(error).__name__}.") from None


def json_type(value: object) -> str:
    """How a JSON author would name the value's type, with its article."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "a boolean"
    if isinstance(value, int | float):
        return "a number"
    if isinstance(value, str):
        return "a string"
    return "an object" if isinstance(value, dict) else "an array"


def _bad_json(body: bytes, error: Exception) -> BadRequest:
    if not body.strip():
        return BadRequest("The body is empty; send a JSON object.")
    if isinstance(error, RecursionError):
        return BadRequest("The body is nested too deeply.")
    if isinstance(error, msgspec.ValidationError):  # a number that no JSON reader can hold
        return BadRequest(f"The body holds a number that is out of range: {str(error).lower()}.")
    try:
        body.decode()
    except UnicodeDecodeError as bad:
        return BadRequest(f"The body is not valid UTF-8 (byte {bad.start}).")
    return BadRequest(f"The body is not valid JSON: {str(error).removeprefix('JSON is malformed: ')}.")


def _bad_field(text: str) -> InvalidParameter:
    match = _VALIDATION.match(text)
    reason, path = (match["reason"], match["path"]) if match else (text, None)
    reason = reason.replace("`", "").replace("| null", "").strip()
    reason = " ".join(reason.split())
    reason = (reason[:1].lower() + reason[1:]).replace(" ,", ",")
    if path:
        return InvalidParameter(f"Invalid '{path}': {reason}.", param=path)
    return InvalidParameter(f"Invalid body: {reason}.")
