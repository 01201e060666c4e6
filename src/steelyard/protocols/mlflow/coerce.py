"""The one coercion table: a column of JSON values (or CSV cells, or Arrow arrays) as an array of its type.

Every format ends here, so that the same data means the same thing in all of them. A value that the type cannot hold
exactly is refused with the column's name and the row's number, never rounded, wrapped or guessed; only double and
float accept any number. Null is a missing value where the type has one: NaN, NaT, None in boolean, string and binary.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from steelyard.errors import InvalidParameter
from steelyard.protocols.mlflow.nested import nested
from steelyard.protocols.mlflow.scalars import FLOAT32_MAX, RANGES, SCALARS, Refused
from steelyard.protocols.mlflow.schema import AnyValue, Column, ColumnType

Values = Sequence[Any] | NDArray[Any]
"""A column before it has its type: JSON values, or a 1-D array from a format that has types of its own."""

DTYPES: dict[ColumnType, np.dtype[Any]] = {
    ColumnType.BOOLEAN: np.dtype(np.bool_),
    ColumnType.INTEGER: np.dtype(np.int32),
    ColumnType.LONG: np.dtype(np.int64),
    ColumnType.FLOAT: np.dtype(np.float32),
    ColumnType.DOUBLE: np.dtype(np.float64),
    ColumnType.DATETIME: np.dtype("datetime64[ns]"),
}
_BOOLEANS = {"true": True, "false": False}
_NESTED_TEXT = ("[", "{")


def coerce_column(column: Column, label: str, values: Values) -> NDArray[Any]:
    """The values in the column's type. `label` names the column in errors. Raises InvalidParameter."""
    kind = column.type
    if isinstance(values, np.ndarray):
        array = _fitting(kind, values)
        if array is not None:
            return array
        values = listed(values)
    types = set(map(type, values))
    if kind is ColumnType.DOUBLE and types <= {float, type(None)}:
        return np.array(values, dtype=np.float64)
    if kind is ColumnType.STRING and types <= {str}:
        return np.array(values, dtype=object)
    if kind is ColumnType.OTHER:
        return _nested_column(column, label, values)
    return _finish(column, label, _each(label, values, SCALARS[kind]))


def is_absent(column: Column, values: Values) -> bool:
    """Whether an optional column of integers, which have no missing value, holds nothing but nulls (NaN in arrays)."""
    if column.required or column.type not in RANGES:
        return False
    if not isinstance(values, np.ndarray):
        return all(value is None for value in values)
    return values.dtype.kind == "f" and bool(np.isnan(values).all())


def listed(values: NDArray[Any]) -> list[Any]:
    """A typed array as JSON would have it; a moment stays one."""
    if values.dtype.kind == "M":
        return [None if np.isnat(value) else value for value in values]
    if values.dtype.kind == "f":
        return [None if math.isnan(value) else value for value in values.tolist()]
    return list(values.tolist())


def objects(values: Iterable[Any], count: int) -> NDArray[Any]:
    """A 1-D array of objects, whatever they are."""
    return np.fromiter(values, dtype=object, count=count)


def text_to_json(column: Column, text: str | None) -> Any:
    """A CSV cell as the JSON value that the same data would be; what cannot be read stays text and is refused later."""
    kind = column.type
    if text is None:
        return None
    if kind in RANGES:
        whole = _number(text, int)
        return _number(text, float) if isinstance(whole, str) else whole
    if kind in (ColumnType.FLOAT, ColumnType.DOUBLE):
        return None if text.lower() == "nan" else _number(text, float)  # how pandas writes a missing value if asked to
    if kind is ColumnType.BOOLEAN:
        return _BOOLEANS.get(text.lower(), text)
    if kind is ColumnType.OTHER and text.startswith(_NESTED_TEXT) and not isinstance(column.nested, AnyValue | None):
        return _parsed(text)
    return text


def _number(text: str, kind: type[int] | type[float]) -> Any:
    """The text itself where it is no finite number; Python's own 1_000 is none either."""
    try:
        value = kind(text)
    except ValueError:
        return text
    finite = isinstance(value, int) or math.isfinite(value)
    return value if finite and "_" not in text else text


def _parsed(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.MsgspecError, RecursionError, ValueError):
        return text


def _each(label: str, values: Sequence[Any], one: Callable[[Any], Any]) -> list[Any]:
    result = []
    for number, value in enumerate(values):
        try:
            result.append(None if value is None else one(value))
        except Refused as reason:
            raise InvalidParameter(f"Column '{label}', row {number}: {reason}.", param=label) from None
    return result


def _nested_column(column: Column, label: str, values: Sequence[Any]) -> NDArray[Any]:
    kind, result = column.nested or AnyValue(), []
    for number, value in enumerate(values):
        try:
            result.append(nested(kind, value, required=column.required, path=""))
        except Refused as reason:
            raise InvalidParameter(f"Column '{label}', row {number}: {reason}.", param=label) from None
        except RecursionError:
            raise InvalidParameter(f"Column '{label}', row {number}: nested too deeply.", param=label) from None
    return objects(result, len(result))


def _finish(column: Column, label: str, values: list[Any]) -> NDArray[Any]:
    kind = column.type
    if kind in (ColumnType.STRING, ColumnType.BINARY):
        return objects(values, len(values))
    if None in values:
        if kind in RANGES:
            row = values.index(None)
            raise InvalidParameter(
                f"Column '{label}', row {row}: an integer column cannot hold a missing value.", param=label
            )
        if kind is ColumnType.BOOLEAN:
            if column.required:
                row = values.index(None)
                raise InvalidParameter(f"Column '{label}', row {row}: expected true or false, got null.", param=label)
            return objects(values, len(values))
    return np.array(values, dtype=DTYPES[kind])


def _fitting(kind: ColumnType, values: NDArray[Any]) -> NDArray[Any] | None:
    """The array cast as a whole; None when a value must be looked at on its own."""
    given, wanted = values.dtype.kind, DTYPES.get(kind)
    if wanted is None or given not in "biufM":
        return None
    if given == wanted.kind and given in "bM":
        return values.astype(wanted)
    if kind in RANGES and given in "iu":
        low, high = RANGES[kind]
        fits = not values.size or (low <= int(values.min()) and int(values.max()) <= high)
        return values.astype(wanted) if fits else None
    if wanted.kind == "f" and given in "iuf":
        numbers = values.astype(np.float64)
        if kind is ColumnType.DOUBLE:
            return numbers
        return None if np.any((np.abs(numbers) > FLOAT32_MAX) & np.isfinite(numbers)) else numbers.astype(np.float32)
    return None
