"""The envelope of an MLflow scoring request: which format it uses, its params, whether it wants a stream.

`parse_invocation` is called by the replica on each `/invocations` body; it checks the envelope only. The data itself
is checked against the model's signature in `general.py`. Unknown top-level keys beside the data are ignored, as
MLflow does.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any

import msgspec

from steelyard.errors import BadRequest, InvalidParameter
from steelyard.protocols.media import Media
from steelyard.protocols.mlflow.csv_input import read_csv
from steelyard.protocols.strict_json import decode_object, json_type


class Format(enum.Enum):
    """How the data is laid out. UNWRAPPED is the whole body, for chat-like models; its reply is unwrapped too."""

    SPLIT = "dataframe_split"
    RECORDS = "dataframe_records"
    INSTANCES = "instances"
    INPUTS = "inputs"
    CSV = "csv"
    UNWRAPPED = "unwrapped"


@dataclass(frozen=True, slots=True)
class Invocation:
    format: Format
    data: Any
    params: dict[str, Any] | None = None
    client_request_id: str | None = None
    stream: bool = False


_FORMATS = {item.value: item for item in (Format.SPLIT, Format.RECORDS, Format.INSTANCES, Format.INPUTS)}
_UNWRAPPED_KEYS = ("messages", "prompt", "input")
_Text = msgspec.Raw | msgspec.UnsetType


class _Envelope(msgspec.Struct):
    dataframe_split: _Text = msgspec.UNSET
    dataframe_records: _Text = msgspec.UNSET
    instances: _Text = msgspec.UNSET
    inputs: _Text = msgspec.UNSET
    params: dict[str, msgspec.Raw] | None = None
    client_request_id: str | None = None
    stream: bool | None = None


_ENVELOPE = msgspec.json.Decoder(_Envelope)


def parse_invocation(body: bytes, media: Media) -> Invocation:
    """The request's envelope. Raises BadRequest."""
    if media is Media.CSV:
        return Invocation(Format.CSV, read_csv(body))
    return invocation_from(decode_object(body))


def parse_envelope(body: bytes) -> Invocation:
    """The same for JSON without its data, which stays undecoded text: quick, and blind to faults inside of it."""
    try:
        envelope = _ENVELOPE.decode(body)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError, ValueError):
        return parse_invocation(body, Media.JSON)  # which says what is wrong
    found = [name for name in _FORMATS if getattr(envelope, name) is not msgspec.UNSET]
    if len(found) != 1 or bytes(getattr(envelope, found[0]))[:4] == b"null":
        return parse_invocation(body, Media.JSON)
    return Invocation(_FORMATS[found[0]], None, None, envelope.client_request_id, bool(envelope.stream))


def invocation_from(value: dict[str, Any]) -> Invocation:
    """The envelope of an already decoded body. Raises BadRequest."""
    found = [name for name in _FORMATS if name in value]
    if len(found) > 1:
        raise BadRequest(f"The body must hold exactly one of {_names(found)}, not several.")
    client_request_id = _client_request_id(value)
    stream = value.get("stream")
    if stream is not None and not isinstance(stream, bool) and not _is_unwrapped(value, found):
        raise InvalidParameter(f"'stream' must be a boolean, not {json_type(stream)}.", param="stream")
    if found:
        name = found[0]
        data = value[name]
        _check_shape(name, data)
        return Invocation(_FORMATS[name], data, _params(value), client_request_id, bool(stream))
    if _is_unwrapped(value, found):
        data = {key: item for key, item in value.items() if key != "client_request_id"}
        return Invocation(Format.UNWRAPPED, data, None, client_request_id, stream is True)
    raise BadRequest(f"The body must hold exactly one of {_names(list(_FORMATS))}.")


def _is_unwrapped(value: dict[str, Any], found: list[str]) -> bool:
    return not found and any(key in value for key in _UNWRAPPED_KEYS)


def _names(names: list[str]) -> str:
    return ", ".join(f"'{name}'" for name in names)


def _params(value: dict[str, Any]) -> dict[str, Any] | None:
    params = value.get("params")
    if params is not None and not isinstance(params, dict):
        raise InvalidParameter(f"'params' must be an object, not {json_type(params)}.", param="params")
    return params


def _client_request_id(value: dict[str, Any]) -> str | None:
    identifier = value.get("client_request_id")
    if identifier is not None and not isinstance(identifier, str):
        raise InvalidParameter(
            f"'client_request_id' must be a string, not {json_type(identifier)}.", param="client_request_id"
        )
    return identifier


def _check_shape(name: str, data: Any) -> None:
    if name == "dataframe_split":
        _check_split(data)
    elif name == "dataframe_records":
        _check_records(data)
    elif name == "instances" and not isinstance(data, list):
        raise InvalidParameter(f"'instances' must be an array of rows, not {json_type(data)}.", param=name)
    elif data is None:
        raise InvalidParameter(f"'{name}' must not be null.", param=name)


def _check_split(data: Any) -> None:
    name = "dataframe_split"
    if not isinstance(data, dict):
        raise InvalidParameter(f"'{name}' must be an object, not {json_type(data)}.", param=name)
    unknown = sorted(data.keys() - {"columns", "data", "index"})
    if unknown:
        raise InvalidParameter(f"'{name}' holds an unknown field '{unknown[0]}'.", param=f"{name}.{unknown[0]}")
    rows, columns, index = data.get("data"), data.get("columns"), data.get("index")
    if not isinstance(rows, list):
        raise InvalidParameter(f"'{name}.data' must be an array of rows.", param=f"{name}.data")
    if columns is not None:
        if not isinstance(columns, list) or not all(isinstance(item, str | int) for item in columns):
            raise InvalidParameter(f"'{name}.columns' must be an array of names.", param=f"{name}.columns")
        if len(set(map(str, columns))) != len(columns):
            raise InvalidParameter(f"'{name}.columns' holds a name twice.", param=f"{name}.columns")
    if index is not None and (not isinstance(index, list) or len(index) != len(rows)):
        raise InvalidParameter(f"'{name}.index' must be an array as long as the data.", param=f"{name}.index")
    if index is not None and not all(isinstance(item, str | int | float) for item in index):
        raise InvalidParameter(f"'{name}.index' must hold numbers or strings.", param=f"{name}.index")
    width = len(columns) if columns is not None else None
    for number, row in enumerate(rows):
        if not isinstance(row, list):
            raise InvalidParameter(f"Row {number} of '{name}.data' must be an array.", param=f"{name}.data")
        if width is None:
            width = len(row)
        if len(row) != width:
            raise InvalidParameter(
                f"Row {number} of '{name}.data' has {len(row)} values for {width} columns.", param=f"{name}.data"
            )


def _check_records(data: Any) -> None:
    name = "dataframe_records"
    if not isinstance(data, list):
        raise InvalidParameter(f"'{name}' must be an array of objects, not {json_type(data)}.", param=name)
    for number, record in enumerate(data):
        if not isinstance(record, dict):
            raise InvalidParameter(f"Row {number} of '{name}' must be an object, not {json_type(record)}.", param=name)
