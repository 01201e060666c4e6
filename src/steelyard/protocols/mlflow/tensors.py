"""Nested JSON arrays into a numpy array of a signature's dtype and shape, or of numpy's own choice without one.

Called by `tensor_inputs.py`, `untyped.py` and the Open Inference dialect. Refuses what numpy would silently change:
text in a numeric tensor, truth values among numbers, fractions in an integer one, numbers out of the dtype's range.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from steelyard.errors import InvalidParameter
from steelyard.protocols.mlflow import scalars
from steelyard.protocols.mlflow.coerce import listed
from steelyard.protocols.mlflow.scalars import Refused
from steelyard.protocols.mlflow.schema import Tensor

One = Callable[[Any], Any]
_NULLABLE = "fcUSM"  # kinds of dtype in which a null is a missing value


def coerce_tensor(tensor: Tensor, label: str, data: Any) -> NDArray[Any]:
    """The data in the tensor's dtype; its shape is for `check_shape` to judge. Raises InvalidParameter."""
    try:
        dtype = np.dtype(tensor.dtype)
    except TypeError:
        return free_array(label, data)
    if isinstance(data, np.ndarray) and data.dtype.kind in "biuf" and dtype.kind in "biuf":
        return _cast(label, data, dtype)
    if isinstance(data, np.ndarray) and data.dtype.kind == "M":
        data = listed(data)
    found = _build(label, data, np.dtype(object))
    if dtype.kind == "O":
        return found
    values: Any = _leaves(label, found, dtype)
    if dtype.kind == "f":
        values = np.array(values, dtype=np.float64)  # first, so that an integer is rounded as it is in a column
    with np.errstate(over="ignore"):
        return np.array(values, dtype=dtype).reshape(found.shape)


def check_shape(tensor: Tensor, label: str, array: NDArray[Any]) -> NDArray[Any]:
    """The array itself. Raises InvalidParameter unless each length is the signature's, where -1 is any."""
    expected, actual = tensor.shape, array.shape
    if array.dtype.kind == "O" and (expected == (-1,) or (len(actual) == 1 and -1 in expected[1:])):
        return array  # rows of any form, as MLflow takes them
    if len(expected) == len(actual) and all(want in (-1, size) for want, size in zip(expected, actual, strict=True)):
        return array
    raise InvalidParameter(
        f"Input '{label}' must have the shape {list(expected)} (-1: any length), not {list(actual)}.", param=label
    )


def free_array(label: str, data: Any) -> NDArray[Any]:
    """As numpy reads it, for models without a signature. Raises InvalidParameter when it is ragged."""
    return _build(label, data, None)


def _leaves(label: str, found: NDArray[Any], dtype: np.dtype[Any]) -> list[Any]:
    one, values, kind = _leaf(dtype), found.ravel().tolist(), dtype.kind
    per_row = max(1, found.size // len(found)) if found.ndim else 1
    result = []
    for number, value in enumerate(values):
        try:
            if value is None and kind not in _NULLABLE:
                raise Refused("a missing value is not allowed")
            result.append(None if value is None else one(value))
        except Refused as reason:
            if isinstance(value, list | tuple):
                raise InvalidParameter(f"Input '{label}' is not a regular array of {dtype}.", param=label) from None
            row = f", row {number // per_row}" if found.ndim else ""
            raise InvalidParameter(f"Input '{label}'{row}: {reason}.", param=label) from None
    return result


def _leaf(dtype: np.dtype[Any]) -> One:
    """What one element of a JSON array may be."""
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        return scalars.whole_between(int(limits.min), int(limits.max), str(dtype))
    if dtype.kind == "f":
        return _float(dtype)
    return {"b": scalars.boolean, "U": scalars.string, "S": _text_bytes, "M": scalars.moment}.get(
        dtype.kind, scalars.double
    )


def _float(dtype: np.dtype[Any]) -> One:
    limit = float(np.finfo(dtype).max)

    def one(value: Any) -> float:
        number = scalars.double(value)
        if abs(number) > limit:
            raise Refused(f"the number is out of range for type {dtype}")
        return number

    return one


def _text_bytes(value: Any) -> bytes:
    return value if isinstance(value, bytes) else scalars.string(value).encode()


def _cast(label: str, found: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    """A typed array in another numeric dtype, as a whole."""
    if found.dtype == dtype:
        return found
    if "b" in (found.dtype.kind, dtype.kind):
        wanted = "true or false" if dtype.kind == "b" else "numbers"
        raise InvalidParameter(f"Input '{label}' must hold {wanted}.", param=label)
    if dtype.kind in "iu":
        if found.dtype.kind == "f" and not np.all(np.isfinite(found) & (found == np.trunc(found))):
            raise InvalidParameter(f"Input '{label}' must hold integers.", param=label)
        limits = np.iinfo(dtype)
        if found.size and any(not limits.min <= int(edge) <= limits.max for edge in (found.min(), found.max())):
            raise _out_of_range(label, dtype)
        return found.astype(dtype)
    numbers = found.astype(np.float64)
    with np.errstate(over="ignore"):
        result = numbers.astype(dtype)
    if np.any(np.isfinite(numbers) & (np.abs(numbers) > float(np.finfo(dtype).max))):
        raise _out_of_range(label, dtype)
    return result


def _out_of_range(label: str, dtype: np.dtype[Any]) -> InvalidParameter:
    return InvalidParameter(f"Input '{label}' holds a number that is out of range for {dtype}.", param=label)


def _build(label: str, data: Any, dtype: np.dtype[Any] | None) -> NDArray[Any]:
    try:
        return np.array(data, dtype=dtype)
    except (ValueError, TypeError, OverflowError, RecursionError):
        raise InvalidParameter(f"Input '{label}' is not a regular array.", param=label) from None
