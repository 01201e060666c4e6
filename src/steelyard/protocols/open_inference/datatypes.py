"""The protocol's datatypes and numpy's: one table for requests, answers and metadata.

BYTES has no numpy dtype of its own: its elements are Python strings or bytes in an object array.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

BYTES = "BYTES"
BOOL = "BOOL"

# Little-endian, as the binary extension has it
DTYPES: dict[str, np.dtype[Any]] = {
    "BOOL": np.dtype(np.bool_),
    "UINT8": np.dtype("<u1"),
    "UINT16": np.dtype("<u2"),
    "UINT32": np.dtype("<u4"),
    "UINT64": np.dtype("<u8"),
    "INT8": np.dtype("<i1"),
    "INT16": np.dtype("<i2"),
    "INT32": np.dtype("<i4"),
    "INT64": np.dtype("<i8"),
    "FP16": np.dtype("<f2"),
    "FP32": np.dtype("<f4"),
    "FP64": np.dtype("<f8"),
}
NAMES = ", ".join([*DTYPES, BYTES])
_BY_DTYPE = {dtype: name for name, dtype in DTYPES.items()}


def datatype_of(dtype: np.dtype[Any]) -> str | None:
    """The datatype of a numeric or boolean dtype; None for all others."""
    return _BY_DTYPE.get(dtype)


def fit(array: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any] | None:
    """The same numbers in another numeric dtype; None when one of them does not fit.

    Integers take whole numbers in range, floats any number up to their largest (rounded to their precision, by way of
    double as in the coercion table).
    """
    if array.dtype == dtype:
        return array
    if array.dtype.kind not in "iuf":
        return None
    if dtype.kind == "f":
        numbers = array.astype(np.float64, copy=False)
        if dtype.itemsize == 8:
            return numbers
        with np.errstate(over="ignore", invalid="ignore"):
            too_large = np.isfinite(numbers) & (np.abs(numbers) > float(np.finfo(dtype).max))
            return None if np.any(too_large) else numbers.astype(dtype)
    if dtype.kind not in "iu":
        return None
    return array.astype(dtype) if _whole_and_in_range(array, np.iinfo(dtype)) else None


def _whole_and_in_range(array: NDArray[Any], limits: Any) -> bool:
    if not array.size:
        return True
    low, high = int(limits.min), int(limits.max)
    if array.dtype.kind == "f":
        with np.errstate(invalid="ignore"):
            # powers of two are exact floats, so the upper bound must be the first number that is too large
            held = (array >= float(low)) & (array < float(high + 1)) & (array == np.trunc(array))
        return bool(np.all(held))
    return low <= int(array.min()) and int(array.max()) <= high
