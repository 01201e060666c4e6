"""One value of a signature's scalar type, as JSON (or Arrow) gave it: what each type accepts, and nothing else.

Called by `coerce.py` for columns, `nested.py` for values inside of values and `params.py`. A value that the type
cannot hold exactly is refused, never rounded, wrapped or guessed; only double and float accept any number.
"""

from __future__ import annotations

import base64
import binascii
import datetime
import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np

from steelyard.protocols.mlflow.schema import ColumnType
from steelyard.protocols.strict_json import json_type

RANGES = {ColumnType.INTEGER: (-(2**31), 2**31 - 1), ColumnType.LONG: (-(2**63), 2**63 - 1)}
FLOAT32_MAX = float(np.finfo(np.float32).max)
_EARLIEST, _LATEST = datetime.datetime(1678, 1, 1), datetime.datetime(2262, 1, 1)  # what 64-bit nanoseconds hold
_EPOCH, _MICROSECOND = datetime.datetime(1970, 1, 1), datetime.timedelta(microseconds=1)
_BEYOND_MICROSECONDS = re.compile(r"[\dW-]{7,10}\D\d\d:?\d\d:?\d\d[.,]\d{6}(\d+)")


class Refused(Exception):
    """Why one value does not fit; its caller adds where the value is."""


def given(value: object) -> str:
    """How to name a value's type in an error, with its article."""
    if isinstance(value, bytes):
        return "binary data"
    if isinstance(value, datetime.date | np.datetime64):
        return "a date"
    return json_type(value)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def whole_between(low: int, high: int, name: str) -> Callable[[Any], int]:
    """Accepts integers, and floats without a fraction, within the range of the type that `name` says."""

    def one(value: Any) -> int:
        if not _is_number(value):
            raise Refused(f"expected an integer, got {given(value)}")
        if isinstance(value, float) and not value.is_integer():
            raise Refused("expected an integer, got a fraction")
        if not low <= value <= high:
            raise Refused(f"the integer is out of range for type {name}")
        return int(value)

    return one


def double(value: Any) -> float:
    if not _is_number(value):
        raise Refused(f"expected a number, got {given(value)}")
    try:
        return float(value)
    except OverflowError:
        raise Refused("the number is out of range for type double") from None


def single(value: Any) -> float:
    number = double(value)
    if FLOAT32_MAX < abs(number) < math.inf:
        raise Refused("the number is out of range for type float")
    return number


def boolean(value: Any) -> bool:
    if not isinstance(value, bool):
        raise Refused(f"expected true or false, got {given(value)}")
    return value


def string(value: Any) -> str:
    if not isinstance(value, str):
        raise Refused(f"expected a string, got {given(value)}")
    return value


def binary(value: Any) -> bytes:
    """Base64 text; bytes come from formats that have them."""
    if isinstance(value, bytes):
        return value
    if not isinstance(value, str):
        raise Refused(f"expected base64 text, got {given(value)}")
    try:
        return base64.b64decode("".join(value.split()), validate=True)
    except (binascii.Error, ValueError):
        raise Refused("expected base64 text") from None


def moment(value: Any) -> np.datetime64:
    """ISO 8601, to the nanosecond; a zone is converted to UTC and dropped. A bare number has no unit: refused."""
    if isinstance(value, np.datetime64):
        return value
    nanoseconds = 0
    try:
        if isinstance(value, str):
            nanoseconds = _nanoseconds(value)
            value = datetime.datetime.fromisoformat(value)
        elif isinstance(value, datetime.date) and not isinstance(value, datetime.datetime):
            value = datetime.datetime(value.year, value.month, value.day)
        if not isinstance(value, datetime.datetime):
            raise Refused(f"expected an ISO 8601 date and time, got {given(value)}")
        if value.tzinfo is not None:
            value = value.astimezone(datetime.timezone.utc).replace(tzinfo=None)  # noqa: UP017  (an older Python's name)
    except (ValueError, OverflowError):
        raise Refused("expected an ISO 8601 date and time") from None
    if not _EARLIEST <= value < _LATEST:
        raise Refused("the date is out of range")
    return np.datetime64((value - _EPOCH) // _MICROSECOND * 1000 + nanoseconds, "ns")


def _nanoseconds(text: str) -> int:
    """What a fraction of a second has beyond its microseconds, which is all that `fromisoformat` reads."""
    found = _BEYOND_MICROSECONDS.match(text)
    if found is None:
        return 0
    digits = found[1].rstrip("0")
    if len(digits) > 3:
        raise Refused("the date is finer than nanoseconds")
    return int(digits.ljust(3, "0"))


SCALARS: dict[ColumnType, Callable[[Any], Any]] = {
    ColumnType.BOOLEAN: boolean,
    ColumnType.INTEGER: whole_between(*RANGES[ColumnType.INTEGER], "integer"),
    ColumnType.LONG: whole_between(*RANGES[ColumnType.LONG], "long"),
    ColumnType.FLOAT: single,
    ColumnType.DOUBLE: double,
    ColumnType.STRING: string,
    ColumnType.BINARY: binary,
    ColumnType.DATETIME: moment,
}
