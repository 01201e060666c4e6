"""Nested JSON arrays into a numpy array of a signature's dtype, or of numpy's own choice where there is none.

Called by `payload.py`. Refuses what numpy would silently change: text in a numeric tensor, fractions in an integer
one, numbers out of the dtype's range.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from steelyard.errors import InvalidParameter
from steelyard.protocols.mlflow.schema import Tensor


def coerce_tensor(tensor: Tensor, label: str, data: Any) -> NDArray[Any]:
    """The data in the tensor's dtype; its shape is left to MLflow's enforcement. Raises InvalidParameter."""
    try:
        dtype = np.dtype(tensor.dtype)
    except TypeError:
        return free_array(label, data)
    if dtype.kind in "OSUMm":
        return _build(label, data, dtype)
    found = _build(label, data, None)
    if found.dtype.kind == "O":  # nulls, integers beyond 64 bits, or ragged rows
        if dtype.kind != "f" or not set(map(type, found.ravel())) <= {int, float, type(None)}:
            raise InvalidParameter(f"Input '{label}' is not a regular array of {dtype}.", param=label)
        found = _build(label, data, np.dtype(np.float64))
    if found.dtype == dtype or found.size == 0:
        return found.astype(dtype)
    if found.dtype.kind not in "iuf" or dtype.kind not in "iuf":
        raise InvalidParameter(f"Input '{label}' must hold {_noun(dtype)}.", param=label)
    return _narrow(label, found, dtype)


def free_array(label: str, data: Any) -> NDArray[Any]:
    """As numpy reads it, for models without a signature. Raises InvalidParameter when it is ragged."""
    return _build(label, data, None)


def _narrow(label: str, found: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    if dtype.kind in "iu":
        if found.dtype.kind == "f" and not np.all(np.isfinite(found) & (found == np.trunc(found))):
            raise InvalidParameter(f"Input '{label}' must hold integers.", param=label)
        limits = np.iinfo(dtype)
        if any(not limits.min <= int(edge) <= limits.max for edge in (found.min(), found.max())):
            raise InvalidParameter(f"Input '{label}' holds a number that is out of range for {dtype}.", param=label)
        return found.astype(dtype)
    with np.errstate(over="ignore"):
        result = found.astype(dtype)
    if np.any(np.isfinite(found) & ~np.isfinite(result)):
        raise InvalidParameter(f"Input '{label}' holds a number that is out of range for {dtype}.", param=label)
    return result


def _build(label: str, data: Any, dtype: np.dtype[Any] | None) -> NDArray[Any]:
    try:
        return np.array(data, dtype=dtype)
    except (ValueError, TypeError, OverflowError, RecursionError):
        raise InvalidParameter(f"Input '{label}' is not a regular array.", param=label) from None


def _noun(dtype: np.dtype[Any]) -> str:
    return {"b": "true or false", "c": "complex numbers"}.get(dtype.kind, "numbers")
