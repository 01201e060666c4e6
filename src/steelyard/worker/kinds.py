"""Of which types, and what kinds of values, the columns of a model's output are: what a shared call could have changed.

Called by `parts.py`. numpy and pandas give the rows of a column one dtype, so that a null or a fraction of one request
makes floats of another's integers; a model that then makes a list of the column passes that on. So lists and arrays of
objects are looked at value by value. It decides nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

_ONE, _OTHER, _FRACTION = 1, 2, 4  # what a row may hold: a null, or of integers 0 or 1; other values; no whole number

Place = tuple[Hashable, ...]  # of a value within a row's own: the keys that lead to it


class Column(Protocol):
    """`start` and `stop` are rows."""

    def types(self, start: int, stop: int) -> Iterable[tuple[Hashable, str]]:
        """What must always be of one type, and of which it is."""

    def kinds(self, start: int, stop: int) -> Iterable[Hashable]:
        """Of values, of which each must have been seen in an answer that was given alone."""


@dataclass(frozen=True, slots=True)
class Typed:
    """`codes`: one number per row, whose bits say what kinds of values it holds."""

    dtype: str
    codes: NDArray[np.int64]

    def types(self, _start: int, _stop: int) -> Iterable[tuple[Hashable, str]]:
        return (((), self.dtype),)

    def kinds(self, start: int, stop: int) -> Iterable[Hashable]:
        return (int(np.bitwise_or.reduce(self.codes[start:stop])),)


class Look(NamedTuple):
    """One value. Values of one `family` can become each other: numbers, nulls; "" for what stays as it is."""

    place: Place
    family: str
    type: str
    code: int = 0


@dataclass(frozen=True, slots=True)
class Loose:
    """Values of any types: what there is to see of each row's."""

    looks: list[frozenset[Look]]

    def types(self, start: int, stop: int) -> Iterable[tuple[Hashable, str]]:
        return (((look.place, look.family), look.type) for look in self._of(start, stop) if look.family)

    def kinds(self, start: int, stop: int) -> Iterable[Hashable]:
        """At each place."""
        places: dict[Place, set[Look]] = {}
        for look in self._of(start, stop):
            places.setdefault(look.place, set()).add(look)
        return map(frozenset, places.values())

    def _of(self, start: int, stop: int) -> frozenset[Look]:
        return frozenset().union(*self.looks[start:stop])


def column_of(values: Any, rows: int) -> Column | None:
    """None for what does not have one entry per row, or that nobody could cut."""
    if len(values) != rows or not rows:
        return None
    if type(values) is list or type(values) is tuple:
        return _loose(values)
    if type(values) is np.ndarray:
        return _array(values)
    if of_module(values, "pandas"):
        return _series(values)
    if of_module(values, "torch"):
        codes = _codes(values.detach().cpu().numpy())
        return None if codes is None else Typed(str(values.dtype), codes)
    return None


def of_module(value: Any, name: str) -> bool:
    return type(value).__module__.partition(".")[0] == name


def _array(values: NDArray[Any]) -> Column | None:
    if values.dtype.kind == "O":
        return _loose(values.tolist())
    codes = _codes(values)
    name = "U" if values.dtype.kind == "U" else values.dtype.str  # a text's width means nothing
    return None if codes is None else Typed(name, codes)


def _series(values: Any) -> Column | None:
    if not hasattr(values, "iloc"):
        return None
    if isinstance(values.dtype, np.dtype) or str(values.dtype) == "category":  # whose own values have a dtype too
        return _array(values.to_numpy())
    if values.dtype.kind in "iufb" and hasattr(values.array, "_mask"):
        codes = _codes(values.to_numpy(dtype=np.float64, na_value=np.nan))
    else:
        codes = np.where(values.isna().to_numpy(), _ONE, _OTHER)
    return None if codes is None else Typed(str(values.dtype), codes)


def _codes(values: NDArray[Any]) -> NDArray[np.int64] | None:
    """Of all rows' values; None for a dtype whose values nobody could tell apart."""
    kind, rows = values.dtype.kind, len(values)
    if kind == "f":
        codes = np.where(np.isnan(values), _ONE, np.where(values == np.floor(values), _OTHER, _FRACTION))
        codes[np.isinf(values)] = _FRACTION
    elif kind in "iu":
        codes = np.where((values == 0) | (values == 1), _ONE, _OTHER)
    elif kind == "b":
        codes = np.zeros(values.shape, dtype=np.int64)
    elif kind in "mM":
        codes = np.where(np.isnat(values), _ONE, _OTHER)
    elif kind == "U":
        codes = _each(values, lambda text: _ONE if _is_number(text) else _OTHER)
    else:
        return None
    if codes.ndim == 1:
        return codes
    return np.bitwise_or.reduce(codes.reshape(rows, -1), axis=1) if codes.size else np.zeros(rows, dtype=np.int64)


def _each(values: NDArray[Any], code: Callable[[Any], int]) -> NDArray[np.int64]:
    return np.fromiter(map(code, values.ravel().tolist()), np.int64, values.size).reshape(values.shape)


def _loose(values: Iterable[Any]) -> Loose:
    return Loose([frozenset(_looks(value, ())) for value in values])


def _looks(value: Any, place: Place) -> Iterator[Look]:
    kind = type(value)
    if kind is list or kind is tuple:
        yield Look(place, "", "list")
        inside = (*place, list)
        if set(map(type, value)) == {float}:  # the usual answer, by the hundred
            yield from _floats(np.array(value), inside)
            return
        for item in value:
            yield from _looks(item, inside)
    elif kind is dict:
        yield Look(place, "", "dict")
        for name, item in value.items():
            yield from _looks(item, (*place, name))
    elif kind is np.ndarray:
        if value.dtype.kind == "O":
            yield from _looks(value.tolist(), place)
            return
        codes = _codes(np.atleast_1d(value))
        if codes is None:
            raise TypeError("an array of values that nobody can tell apart")
        yield Look(place, "array", value.dtype.str, int(np.bitwise_or.reduce(codes)) if codes.size else 0)
    else:
        yield _leaf(value, kind, place)


def _floats(values: NDArray[np.float64], place: Place) -> Iterator[Look]:
    """As `_leaf` of each."""
    nulls = np.isnan(values)
    if nulls.any():
        yield Look(place, "null", "NaN")
    codes = _codes(values[~nulls])
    assert codes is not None
    for code in np.unique(codes).tolist():
        yield Look(place, "number", "float", code)


def _leaf(value: Any, kind: type, place: Place) -> Look:
    family, name, code = "", kind.__qualname__, 0
    if value is None or name in ("NaTType", "NAType"):
        family = "null"
    elif isinstance(value, float | np.floating):
        family, code = "number", _OTHER if value == value // 1 else _FRACTION
        if value != value:  # noqa: PLR0124  (the fastest way to tell a NaN)
            family, name, code = "null", "NaN", 0
    elif isinstance(value, int | np.integer | np.bool_):
        family, code = "number", _ONE if value in (0, 1) else _OTHER
    elif isinstance(value, str) and _is_number(value):
        family = "number"
    return Look(place, family, name, code)


def _is_number(text: str) -> bool:
    """Whether numpy may have made text of it."""
    if text in ("True", "False", "None"):
        return True
    try:
        float(text)
    except ValueError:
        return False
    return True
