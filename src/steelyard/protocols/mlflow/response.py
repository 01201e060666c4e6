"""Whatever a model returned, as RFC 8259 JSON: NaN, Infinity, NaT and NA become null; bytes become base64.

Called in a lane's thread, since a large frame takes a while. What has no honest JSON form (sets, complex numbers,
cycles, foreign objects) is a `ModelFailed` that says so. Frames and arrays go column by column, never cell by cell
when numpy can do it.
"""

from __future__ import annotations

import base64
import dataclasses
import datetime
import decimal
import enum
import uuid
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import numpy as np

from steelyard.errors import ModelFailed
from steelyard.protocols.inputs import Records

_ENCODER = msgspec.json.Encoder()
_DIRECT = {np.dtype(kind) for kind in (np.float64, np.float32, np.int64, np.int32, np.bool_)}  # as `_array` has them
_MAX_INT, _MIN_INT = 2**64 - 1, -(2**63)


def render_predictions(output: Any) -> bytes:
    """`{"predictions": …}`. Raises ModelFailed."""
    if type(output) is np.ndarray and output.dtype in _DIRECT:
        return _ENCODER.encode({"predictions": output.tolist()})
    return _encode({"predictions": to_plain(output)})


def render_plain(output: Any) -> bytes:
    """The output alone, for unwrapped requests. Raises ModelFailed."""
    return _encode(to_plain(output))


def _encode(value: Any) -> bytes:
    try:
        return _ENCODER.encode(value)  # writes NaN and the infinities as null
    except (UnicodeEncodeError, RecursionError, OverflowError, TypeError, ValueError) as error:
        raise ModelFailed(f"The model's output cannot be written as JSON: {type(error).__name__}.") from None


def to_plain(value: Any) -> Any:
    """The output as JSON-ready values. Raises ModelFailed."""
    try:
        return _plain(value)
    except ModelFailed:
        raise
    except Exception as error:  # the output's own methods are the model's code
        raise ModelFailed(f"The model's output cannot be written as JSON: {type(error).__name__}.") from None


def _plain(value: Any) -> Any:  # noqa: PLR0911  (a table would hide the order, which matters)
    kind = type(value)
    if value is None or kind in (str, float, bool):
        return value
    if kind is int:
        return value if _MIN_INT <= value <= _MAX_INT else msgspec.Raw(str(value).encode())
    if kind in (list, tuple):
        return [_plain(item) for item in value]
    if isinstance(value, np.ndarray):
        return _array(value)
    if isinstance(value, np.generic):
        return _plain(value.item()) if value.dtype.kind in "biuSUO" else _array(np.asarray(value))
    if kind.__module__.partition(".")[0] == "pandas":
        return _pandas(value)
    if kind is Records:
        return _records(value)
    if isinstance(value, Mapping):
        return _mapping(value)
    for types, convert in _CONVERSIONS:
        if isinstance(value, types):
            return convert(value)
    return _foreign(value)


def _mapping(value: Mapping[Any, Any]) -> dict[str, Any]:
    result = {_key(key): _plain(item) for key, item in value.items()}
    if len(result) != len(value):
        raise ModelFailed("The model returned an object with two keys that are the same text.")
    return result


def _records(value: Records) -> list[dict[str, Any]]:
    """As a frame of the same columns."""
    if len(set(value.names)) != len(value.names):
        raise ModelFailed("The model returned a table with two columns of the same name.")
    columns = [_array(array) for array in value.arrays]
    return [dict(zip(value.names, row, strict=True)) for row in zip(*columns, strict=True)]


def _key(key: Any) -> str:
    if isinstance(key, str):
        return str(key)
    if isinstance(key, bool | int | float | np.integer | np.floating | np.bool_):
        return str(key)
    if isinstance(key, datetime.date | uuid.UUID):
        return str(key)
    if isinstance(key, tuple):
        return ".".join(_key(part) for part in key)
    raise ModelFailed(f"The model returned an object with a key of type {type(key).__name__}.")


def _array(value: np.ndarray[Any, Any]) -> Any:
    kind = value.dtype.kind
    if kind in "biuf":
        return value.astype(np.float64).tolist() if value.dtype.itemsize > 8 else value.tolist()
    if kind == "U":
        return value.tolist()
    if kind == "M":
        flat = value.ravel()
        texts = np.array(list(map(_moment, np.datetime_as_string(flat).tolist())), dtype=object)
        texts[np.isnat(flat)] = None
        return texts.reshape(value.shape).tolist()
    if kind in "OSV" and value.dtype.names is None:
        return _plain(value.tolist())
    if kind == "V":
        names = value.dtype.names or ()
        return [dict(zip(names, map(_plain, row), strict=True)) for row in value.reshape(-1).tolist()]
    raise ModelFailed(f"The model returned an array of {value.dtype}, which has no JSON form.")


def _moment(text: str) -> str:
    """As `isoformat` writes it: no fraction of a second where there is none, else six digits, or nine if needed."""
    whole, _, fraction = text.partition(".")
    fraction = fraction.rstrip("0")
    return f"{whole}.{fraction.ljust(6 if len(fraction) <= 6 else 9, '0')}" if fraction else whole


def _pandas(value: Any) -> Any:  # noqa: PLR0911
    import pandas as pd  # noqa: PLC0415  (the model has loaded it already)

    if value is pd.NaT or value is pd.NA:
        return None
    if isinstance(value, pd.DataFrame):
        return _frame(value)
    if isinstance(value, pd.Series):
        return _frame(pd.DataFrame(value))
    if isinstance(value, pd.Index):
        return _column(value.to_series())
    if isinstance(value, pd.Timestamp):
        return value.isoformat()
    if isinstance(value, pd.Timedelta | pd.Period | pd.Interval):
        return str(value)
    if isinstance(value, pd.api.extensions.ExtensionArray):
        return _column(pd.Series(value))
    raise ModelFailed(f"The model returned a {type(value).__name__}, which has no JSON form.")


def _frame(frame: Any) -> list[dict[str, Any]]:
    names = [_key(name) for name in frame.columns]
    if len(set(names)) != len(names):
        raise ModelFailed("The model returned a table with two columns of the same name.")
    columns = [_column(frame.iloc[:, place]) for place in range(len(names))]
    if not names:
        return [{} for _ in range(len(frame))]
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def _column(series: Any) -> list[Any]:
    if isinstance(series.dtype, np.dtype) and series.dtype.kind in "biufM":
        return list(_array(series.to_numpy()))
    return [_plain(item) for item in series.tolist()]


def _number(value: decimal.Decimal) -> float | None:
    return float(value) if value.is_finite() else None


def _dataclass(value: Any) -> Any:
    return {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)}


def _refuse_set(value: Any) -> Any:
    raise ModelFailed("The model returned a set, which has no JSON form; return a list.")


def _refuse_complex(value: Any) -> Any:
    raise ModelFailed("The model returned a complex number, which has no JSON form.")


_CONVERSIONS: list[tuple[Any, Callable[[Any], Any]]] = [
    (enum.Enum, lambda value: _plain(value.value)),
    (str, str.__str__),
    (int, lambda value: _plain(int(value))),
    (float, float),
    ((bytes, bytearray, memoryview), lambda value: base64.b64encode(bytes(value)).decode()),
    ((datetime.datetime, datetime.date, datetime.time), lambda value: value.isoformat()),
    (datetime.timedelta, str),
    (decimal.Decimal, _number),
    (uuid.UUID, str),
    ((list, tuple), lambda value: [_plain(item) for item in value]),
    ((set, frozenset), _refuse_set),
    (complex, _refuse_complex),
]


def _foreign(value: Any) -> Any:
    """Pydantic models, MLflow's typed responses, tensors: by what they offer, not by importing their libraries."""
    for method in ("model_dump", "to_dict"):
        if callable(convert := getattr(value, method, None)) and not isinstance(value, type):
            return _plain(convert())
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _dataclass(value)
    if callable(detach := getattr(value, "detach", None)):
        return _array(np.asarray(detach().cpu().numpy()))
    if callable(numpy := getattr(value, "numpy", None)):
        return _array(np.asarray(numpy()))
    raise ModelFailed(f"The model returned a {type(value).__name__}, which has no JSON form.")
