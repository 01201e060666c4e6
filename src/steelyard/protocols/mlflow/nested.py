"""A value inside of a value: arrays, objects and maps of a signature, checked and typed to the last leaf.

Called by `coerce.py` for each row of such a column and by `params.py`. The result is what MLflow's own enforcement
gives the model for the same data: lists as lists, leaves of objects and maps as numpy scalars. Integer, float and
datetime arrays become numpy arrays, since a list cannot hold those types.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from steelyard.protocols.mlflow.scalars import SCALARS, Refused, given
from steelyard.protocols.mlflow.schema import AnyValue, ArrayOf, ColumnType, MapOf, Nested, ObjectOf, Type

_ARRAYS = {
    ColumnType.INTEGER: np.dtype(np.int32),
    ColumnType.FLOAT: np.dtype(np.float32),
    ColumnType.DATETIME: np.dtype("datetime64[ns]"),
}
_SCALARS: dict[ColumnType, Any] = {
    ColumnType.BOOLEAN: np.bool_,
    ColumnType.INTEGER: np.int32,
    ColumnType.LONG: np.int64,
    ColumnType.FLOAT: np.float32,
    ColumnType.DOUBLE: np.float64,
}
_NO_NULL = (ColumnType.INTEGER, ColumnType.LONG)


def nested(kind: Nested, value: Any, *, required: bool, path: str) -> Any:
    """The value in its type; `path` says where it is in its row. Raises Refused."""
    if isinstance(kind, AnyValue):
        return value
    if isinstance(kind, ArrayOf):
        return _array(kind, value, required, path)
    if isinstance(kind, ObjectOf):
        return _object(kind, value, required, path)
    return _map(kind, value, required, path)


def _typed(kind: Type, value: Any, required: bool, path: str) -> Any:
    if not isinstance(kind, ColumnType):
        return nested(kind, value, required=required, path=path)
    if value is None and not required:
        return None
    scalar = _scalar(kind, value, path)
    wrap = _SCALARS.get(kind)
    return scalar if wrap is None else wrap(scalar)


def _scalar(kind: ColumnType, value: Any, path: str) -> Any:
    try:
        return SCALARS[kind](value)
    except Refused as reason:
        raise _at(path, str(reason)) from None


def _array(kind: ArrayOf, value: Any, required: bool, path: str) -> Any:
    if value is None and (not required or isinstance(kind.items, AnyValue)):
        return None
    if not isinstance(value, list):
        raise _at(path, f"expected an array, got {given(value)}")
    items = kind.items
    if not isinstance(items, ColumnType):
        return [_typed(items, item, required, f"{path}[{place}]") for place, item in enumerate(value)]
    dtype, missing = _ARRAYS.get(items), math.nan if items in (ColumnType.FLOAT, ColumnType.DOUBLE) else None
    result = []
    for place, item in enumerate(value):
        if item is None and items not in _NO_NULL:
            result.append(missing)
        else:
            result.append(_scalar(items, item, f"{path}[{place}]"))
    return result if dtype is None else np.array(result, dtype=dtype)


def _object(kind: ObjectOf, value: Any, required: bool, path: str) -> Any:
    if not required and (value is None or value == {}):
        return value
    if not isinstance(value, dict):
        raise _at(path, f"expected an object, got {given(value)}")
    for item in kind.properties:
        if item.required and item.name not in value:
            raise _at(path, f"the field '{item.name}' is missing")
    known = {item.name: item for item in kind.properties}
    unknown = next((name for name in value if name not in known), None)
    if unknown is not None:
        raise _at(path, f"the field '{unknown[:60]}' is unknown")
    return {
        name: _typed(known[name].type, item, known[name].required, _field(path, name)) for name, item in value.items()
    }


def _map(kind: MapOf, value: Any, required: bool, path: str) -> Any:
    if (not required or isinstance(kind.values, AnyValue)) and (value is None or value == {}):
        return value
    if not isinstance(value, dict):
        raise _at(path, f"expected an object, got {given(value)}")
    return {name: _typed(kind.values, item, required, _field(path, "*")) for name, item in value.items()}


def _field(path: str, name: str) -> str:
    return f"{path}.{name[:60]}" if path else name[:60]


def _at(path: str, reason: str) -> Refused:
    return Refused(f"at '{path}' {reason}" if path else reason)
