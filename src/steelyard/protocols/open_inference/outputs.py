"""Whatever a model returned, as named arrays of the protocol's datatypes, before anything is written.

Called by `response.py`. Numbers and booleans keep their dtype; everything else is BYTES, whose content type tells how
the elements are to be read: "str", "base64", "datetime", or "pd_json" when only JSON can say what an element is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from steelyard.errors import ModelFailed
from steelyard.protocols.inputs import Records
from steelyard.protocols.mlflow.response import to_plain
from steelyard.protocols.open_inference.datatypes import BYTES, datatype_of

_INT64 = np.iinfo(np.int64)


@dataclass(slots=True)
class Output:
    """`array` has a dtype of the protocol; for BYTES it is None and `elements`, flat, are str, bytes or None."""

    name: str
    datatype: str
    shape: tuple[int, ...]
    array: NDArray[Any] | None
    elements: list[Any] | None = None
    content_type: str | None = None


def named_outputs(result: Any, name: str) -> list[Output]:
    """`name` is for a result that has none of its own. Raises ModelFailed for what the protocol cannot express."""
    if isinstance(result, np.ndarray):
        return [_output(name, result)]
    if isinstance(result, Records):
        return [_output(*pair) for pair in zip(result.names, result.arrays, strict=True)]
    if isinstance(result, Mapping):
        outputs = [_output(str(key), _as_array(value)) for key, value in result.items()]
    elif type(result).__module__.partition(".")[0] == "pandas":
        outputs = _pandas(result, name)
    else:
        outputs = [_output(name, _as_array(result))]
    if not outputs or len({output.name for output in outputs}) != len(outputs):
        raise ModelFailed("The model returned no outputs, or two of the same name.")
    return outputs


def _pandas(result: Any, name: str) -> list[Output]:
    import pandas as pd  # noqa: PLC0415  (the model has loaded it already)

    if isinstance(result, pd.DataFrame):
        return [_output(str(label), _series(result.iloc[:, place])) for place, label in enumerate(result.columns)]
    if isinstance(result, pd.Series):
        return [_output(name if result.name is None else str(result.name), _series(result))]
    return [_output(name, _as_array(to_plain(result)))]


def _series(series: Any) -> NDArray[Any]:
    return _objects(series.tolist()) if series.dtype.kind not in "biufM" else np.asarray(series.to_numpy())


def _as_array(value: Any) -> NDArray[Any]:
    if isinstance(value, np.ndarray):
        return value
    if isinstance(value, list | tuple):
        if all(type(item) in (float, int, bool) for item in value):
            return _regular(list(value))
        nested = [item.tolist() if isinstance(item, np.ndarray | np.generic) else item for item in value]
        return _regular(nested) if _is_numeric(nested) else _objects(nested)
    if type(value).__module__.partition(".")[0] == "pandas":
        return _series(value) if hasattr(value, "dtype") else _objects([value])
    for method in ("detach", "numpy"):  # a tensor of torch or tensorflow
        if callable(getattr(value, method, None)):
            return np.asarray(value.detach().cpu().numpy() if method == "detach" else value.numpy())
    return _objects([value])


def _is_numeric(values: list[Any]) -> bool:
    while values and all(type(value) is list for value in values):
        values = [item for value in values for item in value]
    return bool(values) and {type(value) for value in values} <= {float, int, bool}


def _regular(values: list[Any]) -> NDArray[Any]:
    """Numpy's own choice of dtype; ragged lists stay lists."""
    try:
        array = np.array(values)
    except ValueError:
        return _objects(values)
    return array if array.dtype.kind in "biuf" else _objects(values)


def _objects(values: list[Any]) -> NDArray[Any]:
    array = np.empty(len(values), dtype=object)
    for place, value in enumerate(values):
        array[place] = value
    return array


def _output(name: str, array: NDArray[Any]) -> Output:
    shape = array.shape or (1,)
    kind = array.dtype.kind
    if kind in "biuf":
        datatype = datatype_of(array.dtype)
        if datatype is None:  # another byte order, or more than 64 bits
            array = array.astype(array.dtype.newbyteorder("=") if array.dtype.itemsize <= 8 else np.float64)
            datatype = datatype_of(array.dtype)
            assert datatype is not None
        return Output(name, datatype, shape, array)
    if kind == "M":
        return Output(name, BYTES, shape, None, _plain(array.ravel(), name), "datetime")
    if kind == "U":
        return Output(name, BYTES, shape, None, array.ravel().tolist(), "str")
    if kind == "S":
        return Output(name, BYTES, shape, None, array.ravel().tolist(), "base64")
    if kind == "O":
        return _mixed(name, shape, array.ravel().tolist())
    return Output(name, BYTES, shape, None, _texts(_plain(array.ravel(), name)), "pd_json")


def _mixed(name: str, shape: tuple[int, ...], values: list[Any]) -> Output:
    """Objects: numbers and booleans with a null among them become floats with NaN or JSON, text stays text."""
    values = [value.item() if isinstance(value, np.generic) else value for value in values]
    types = {type(value) for value in values}
    if types == {bytes}:
        return Output(name, BYTES, shape, None, values, "base64")
    values = _plain(values, name)
    types = {type(value) for value in values}
    if types <= {str, type(None)}:
        return Output(name, BYTES, shape, None, values, "str")
    if types == {bool}:
        return Output(name, "BOOL", shape, np.array(values, dtype=np.bool_).reshape(shape))
    if types == {int} and all(_INT64.min <= value <= _INT64.max for value in values):
        return Output(name, "INT64", shape, np.array(values, dtype=np.int64).reshape(shape))
    if types <= {float, type(None)}:
        return Output(name, "FP64", shape, np.array(values, dtype=np.float64).reshape(shape))
    return Output(name, BYTES, shape, None, _texts(values), "pd_json")


def _plain(values: Any, name: str) -> list[Any]:
    plain = to_plain(values)
    assert isinstance(plain, list)
    return plain


def _texts(values: list[Any]) -> list[str]:
    """Each value as JSON."""
    try:
        return [msgspec.json.encode(value).decode() for value in values]
    except (UnicodeEncodeError, RecursionError, OverflowError, TypeError, ValueError) as error:
        raise ModelFailed(f"The model's output cannot be written as JSON: {type(error).__name__}.") from None
