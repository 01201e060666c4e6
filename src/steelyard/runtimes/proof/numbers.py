"""The representable numbers of a dtype, counted: the next one up is one more.

Lets the search for decision boundaries halve an interval of floats as it would one of integers, in at most 64 steps,
and name the numbers where float32 and float64 arithmetic part.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

_SIGNED: dict[int, np.dtype[Any]] = {size: np.dtype(f"i{size}") for size in (2, 4, 8)}


_LOWEST = {size: np.int64(np.iinfo(dtype).min) for size, dtype in _SIGNED.items()}
_LAST = {size: int(np.array([np.finfo(f"f{size}").max], f"f{size}").view(_SIGNED[size])[0]) for size in _SIGNED}


def is_countable(dtype: np.dtype[Any]) -> bool:
    """Whether the functions here take it: floats of 16 to 64 bits and integers that fit int64."""
    return (
        (dtype.kind == "f" and dtype.itemsize in _SIGNED)
        or dtype.kind == "i"
        or (dtype.kind == "u" and dtype.itemsize < 8)
    )


def ordinal(values: NDArray[Any]) -> NDArray[np.int64]:
    """Each value's place among all values of its dtype; both zeros have 0. Keeps their order; NaN must not occur."""
    if values.dtype.kind != "f":
        return values.astype(np.int64)
    signed = _SIGNED[values.dtype.itemsize]
    bits = np.ascontiguousarray(values).view(signed).astype(np.int64)
    return np.where(bits < 0, _LOWEST[signed.itemsize] - bits, bits)


def from_ordinal(places: NDArray[np.int64], dtype: np.dtype[Any]) -> NDArray[Any]:
    """The values at those places; places beyond the dtype's own become its finite extremes."""
    if dtype.kind != "f":
        limits = np.iinfo(dtype)
        return np.clip(places, limits.min, limits.max).astype(dtype)
    signed, last = _SIGNED[dtype.itemsize], _LAST[dtype.itemsize]
    places = np.clip(places, -last, last)
    bits = np.where(places < 0, _LOWEST[signed.itemsize] - places, places)
    return bits.astype(signed).view(dtype)


def middle(one: NDArray[np.int64], other: NDArray[np.int64]) -> NDArray[np.int64]:
    """Half-way, rounded down, without overflow."""
    result: NDArray[np.int64] = (one & other) + ((one ^ other) >> 1)
    return result


def near(values: NDArray[Any], offsets: tuple[int, ...] = (-4, -2, -1, 0, 1, 2, 4)) -> NDArray[Any]:
    """(values, alternatives): each value's neighbours in its dtype, its float32 rounding and that one's neighbours.

    Offsets are counted in representable numbers. Integers have only the former.
    """
    dtype = values.dtype
    places = ordinal(values)
    columns = [from_ordinal(_shift(places, offset), dtype) for offset in offsets]
    if dtype.kind == "f" and dtype.itemsize > 4:
        limit = np.finfo(np.float32).max
        single = np.clip(values, -limit, limit).astype(np.float32)
        around = ordinal(single)
        columns += [from_ordinal(around + offset, single.dtype).astype(dtype) for offset in (-1, 0, 1)]
    return np.stack(columns, axis=1)


def _shift(places: NDArray[np.int64], offset: int) -> NDArray[np.int64]:
    limits = np.iinfo(np.int64)
    if offset > 0:
        return np.minimum(places, limits.max - offset) + offset
    return np.maximum(places, limits.min - offset) + offset


def halfway(one: NDArray[np.int64], other: NDArray[np.int64], dtype: np.dtype[Any]) -> NDArray[np.int64]:
    """The ordinal of the number half-way between two in value, not in count; it lies between them."""
    if dtype.kind != "f":
        return middle(one, other)
    values = from_ordinal(one, dtype).astype(np.float64) / 2 + from_ordinal(other, dtype).astype(np.float64) / 2
    return np.clip(ordinal(values.astype(dtype)), np.minimum(one, other), np.maximum(one, other))
