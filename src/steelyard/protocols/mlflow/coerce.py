"""The one coercion table: a column of JSON values (or CSV cells) into a numpy array of the signature's type.

Every format ends here, so that the same data means the same thing in all of them. A value that the type cannot hold
exactly is refused with the column's name and the row's number, never rounded, wrapped or guessed; only double accepts
any number. Null is a missing value where the type has one: NaN, NaT, None in boolean, string and binary.
"""

from __future__ import annotations

import base64
import binascii
import datetime
import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from steelyard.errors import InvalidParameter
from steelyard.protocols.mlflow.schema import Column, ColumnType
from steelyard.protocols.strict_json import json_type

_RANGES = {ColumnType.INTEGER: (-(2**31), 2**31 - 1), ColumnType.LONG: (-(2**63), 2**63 - 1)}
_FLOAT32_MAX = float(np.finfo(np.float32).max)
_BOOLEANS = {"true": True, "false": False}
_EARLIEST, _LATEST = datetime.datetime(1678, 1, 1), datetime.datetime(2262, 1, 1)  # what 64-bit nanoseconds hold


class Refused(Exception):
    """Why one value does not fit; becomes an InvalidParameter with the column and the row."""


def coerce_column(column: Column, label: str, values: list[Any]) -> NDArray[Any]:
    """The values in the column's type. `label` names the column in errors. Raises InvalidParameter."""
    kind = column.type
    types = set(map(type, values))
    if kind is ColumnType.DOUBLE and types <= {float, type(None)}:
        return np.array(values, dtype=np.float64)
    if kind is ColumnType.STRING and types <= {str}:
        return np.array(values, dtype=object)
    try:
        return _FINISH[kind](_each(label, values, _ONE[kind]), column, label)
    except OverflowError:
        raise InvalidParameter(f"Column '{label}' holds a number that is out of range.", param=label) from None


def text_to_json(kind: ColumnType, text: str | None) -> Any:
    """A CSV cell as the JSON value that the same data would be; what cannot be read stays text and is refused later."""
    if text is None:
        return None
    if kind in _RANGES:
        return _number(text, int, text)
    if kind in (ColumnType.FLOAT, ColumnType.DOUBLE):
        if text.lower() == "nan":  # how pandas writes a missing value when asked to
            return None
        value = _number(text, float, text)
        return value if isinstance(value, str) or math.isfinite(value) else text
    if kind is ColumnType.BOOLEAN:
        return _BOOLEANS.get(text.lower(), text)
    return text


def _number(text: str, kind: Callable[[str], Any], otherwise: str) -> Any:
    try:
        return kind(text)
    except ValueError:
        return otherwise


def _each(label: str, values: list[Any], one: Callable[[Any], Any]) -> list[Any]:
    result = []
    for number, value in enumerate(values):
        try:
            result.append(None if value is None else one(value))
        except Refused as reason:
            raise InvalidParameter(f"Column '{label}', row {number}: {reason}.", param=label) from None
    return result


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _whole(kind: ColumnType) -> Callable[[Any], int]:
    low, high = _RANGES[kind]

    def one(value: Any) -> int:
        if not _is_number(value):
            raise Refused(f"expected an integer, got {json_type(value)}")
        if isinstance(value, float) and not value.is_integer():
            raise Refused("expected an integer, got a fraction")
        if not low <= value <= high:
            raise Refused(f"the integer is out of range for type {kind.value}")
        return int(value)

    return one


def _double(value: Any) -> float:
    if not _is_number(value):
        raise Refused(f"expected a number, got {json_type(value)}")
    return float(value)


def _single(value: Any) -> float:
    number = _double(value)
    if abs(number) > _FLOAT32_MAX:
        raise Refused("the number is out of range for type float")
    return number


def _boolean(value: Any) -> bool:
    if not isinstance(value, bool):
        raise Refused(f"expected true or false, got {json_type(value)}")
    return value


def _string(value: Any) -> str:
    if not isinstance(value, str):
        raise Refused(f"expected a string, got {json_type(value)}")
    return value


def _binary(value: Any) -> bytes:
    if not isinstance(value, str):
        raise Refused(f"expected base64 text, got {json_type(value)}")
    try:
        return base64.b64decode("".join(value.split()), validate=True)
    except (binascii.Error, ValueError):
        raise Refused("expected base64 text") from None


def _datetime(value: Any) -> datetime.datetime:
    """ISO 8601; a zone is converted to UTC and dropped. A bare number has no unit and is refused."""
    if not isinstance(value, str):
        raise Refused(f"expected an ISO 8601 date and time, got {json_type(value)}")
    try:
        moment = datetime.datetime.fromisoformat(value)
        if moment.tzinfo is not None:
            moment = moment.astimezone(datetime.UTC).replace(tzinfo=None)
    except (ValueError, OverflowError):
        raise Refused("expected an ISO 8601 date and time") from None
    if not _EARLIEST <= moment < _LATEST:
        raise Refused("the date is out of range")
    return moment


def _finish_whole(values: list[Any], column: Column, label: str) -> NDArray[Any]:
    if None in values:
        row = values.index(None)
        raise InvalidParameter(
            f"Column '{label}', row {row}: an integer column cannot hold a missing value.", param=label
        )
    return np.array(values, dtype=np.int32 if column.type is ColumnType.INTEGER else np.int64)


def _finish_boolean(values: list[Any], column: Column, label: str) -> NDArray[Any]:
    if None not in values:
        return np.array(values, dtype=np.bool_)
    if column.required:
        raise InvalidParameter(f"Column '{label}', row {values.index(None)}: expected true or false.", param=label)
    return _objects(values)


def _objects(values: list[Any]) -> NDArray[Any]:
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array


def _keep(values: list[Any], column: Column, label: str) -> NDArray[Any]:
    return _objects(values)


def _to(dtype: Any) -> Callable[[list[Any], Column, str], NDArray[Any]]:
    def finish(values: list[Any], column: Column, label: str) -> NDArray[Any]:
        return np.array(values, dtype=dtype)

    return finish


_ONE: dict[ColumnType, Callable[[Any], Any]] = {
    ColumnType.BOOLEAN: _boolean,
    ColumnType.INTEGER: _whole(ColumnType.INTEGER),
    ColumnType.LONG: _whole(ColumnType.LONG),
    ColumnType.FLOAT: _single,
    ColumnType.DOUBLE: _double,
    ColumnType.STRING: _string,
    ColumnType.BINARY: _binary,
    ColumnType.DATETIME: _datetime,
    ColumnType.OTHER: lambda value: value,
}
_FINISH: dict[ColumnType, Callable[[list[Any], Column, str], NDArray[Any]]] = {
    ColumnType.BOOLEAN: _finish_boolean,
    ColumnType.INTEGER: _finish_whole,
    ColumnType.LONG: _finish_whole,
    ColumnType.FLOAT: _to(np.float32),
    ColumnType.DOUBLE: _to(np.float64),
    ColumnType.STRING: _keep,
    ColumnType.BINARY: _keep,
    ColumnType.DATETIME: _to("datetime64[ns]"),
    ColumnType.OTHER: _keep,
}
