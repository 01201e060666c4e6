"""Whether two outputs say the same: structure, labels and text exactly, floats within the tolerance of their dtype.

Called with the reference's outcome and a candidate's on the same rows. A description of a difference tells its kind
and size, never a row's inputs or a text that a model wrote.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from steelyard.runtimes.proof.outcome import Outcome, as_floats, split_rows


@dataclass(frozen=True, slots=True)
class Tolerance:
    """Floats are equal when they differ by at most `atol + rtol × |expected|`."""

    rtol: float
    atol: float


_MANY = 16  # floats in a list that numpy compares faster than a loop
_DOUBLE = Tolerance(1e-9, 1e-12)
_SINGLE = Tolerance(1e-5, 1e-6)


def tolerance_of(float_bits: int) -> Tolerance:
    """Of outputs whose widest float has that many bits."""
    return _DOUBLE if float_bits > 32 else _SINGLE


@dataclass(frozen=True, slots=True)
class Difference:
    """`size`: how far off a float is, absolute below 1 and relative above; None for what is not a matter of size."""

    kind: str
    size: float | None = None

    def __str__(self) -> str:
        return self.kind if self.size is None else f"{self.kind} off by {scientific(self.size)}"


def scientific(number: float) -> str:
    """As people write it: 1.2e-3."""
    if not math.isfinite(number):
        return "more than any float"
    mantissa, exponent = f"{number:.1e}".split("e")
    return f"{mantissa.removesuffix('.0')}e{int(exponent)}"


@dataclass(slots=True)
class Tally:
    """Rows that were compared, and how those that differ do; the largest size of each kind is kept."""

    rows: int = 0
    differing: int = 0
    kinds: dict[str, Difference] = field(default_factory=dict)

    def add(self, rows: int, differences: list[Difference]) -> None:
        """`differences`: one of each row that differs."""
        self.rows += rows
        self.differing += len(differences)
        for difference in differences:
            known = self.kinds.get(difference.kind)
            if known is None or (difference.size or 0.0) > (known.size or 0.0):
                self.kinds[difference.kind] = difference

    def describe(self) -> str:
        """«3 of 2,048 rows differ: float off by 1.2e-3, label 1 instead of 0»; at most two kinds are named."""
        kinds = ", ".join(str(item) for item in list(self.kinds.values())[:2])
        return f"{self.differing:,} of {self.rows:,} rows differ: {kinds}"


def compare(expected: Outcome, got: Outcome, rows: int) -> list[Difference]:
    """One difference for each row that differs; for all rows when the outputs cannot be compared row by row.

    A call that the reference refuses must be refused, with whatever error: a candidate may say BadRequest where the
    model broke. One that the reference answers must be answered.
    """
    if expected.error is not None:
        return [] if got.error is not None else [Difference("answered what the model refuses")] * rows
    if got.error is not None:
        return [Difference(f"{got.error} instead of an answer")] * rows
    tolerance = tolerance_of(expected.float_bits)
    mine, its = split_rows(expected.plain, rows), split_rows(got.plain, rows)
    if mine is None or its is None or type(expected.plain) is not type(got.plain):
        whole = difference(expected.plain, got.plain, tolerance)
        return [] if whole is None else [whole] * rows
    if expected.plain and isinstance(expected.plain, dict) and expected.plain.keys() != got.plain.keys():
        return [Difference("other fields")] * rows
    pairs: Iterable[tuple[Any, Any]] = zip(mine, its, strict=True)
    one, other = as_floats(mine), as_floats(its)
    if one is not None and other is not None and one.shape == other.shape:
        suspects = np.flatnonzero(_apart(one, other, tolerance).reshape(rows, -1).any(axis=1))
        pairs = ((mine[row], its[row]) for row in suspects)
    return [found for one, other in pairs if (found := difference(one, other, tolerance)) is not None]


def difference(expected: Any, got: Any, tolerance: Tolerance) -> Difference | None:
    """The first difference of two JSON-ready values; None when they are equal. 1, 1.0 and true are three values."""
    kind = type(expected)
    if kind is not type(got):
        return Difference(f"{_name(got)} instead of {_name(expected)}")
    if kind is float:
        return _float(expected, got, tolerance)
    if kind is list:
        return _list(expected, got, tolerance)
    if kind is dict:
        return _object(expected, got, tolerance)
    return None if expected == got else _label(expected, got)


def _name(value: Any) -> str:
    name = type(value).__name__
    return {"NoneType": "null", "str": "text", "dict": "object"}.get(name, name)


def _label(expected: Any, got: Any) -> Difference:
    if isinstance(expected, int):
        return Difference(f"label {got} instead of {expected}")
    return Difference(f"another {_name(expected)}")


def _object(expected: dict[str, Any], got: dict[str, Any], tolerance: Tolerance) -> Difference | None:
    if expected.keys() != got.keys():
        return Difference("other fields")
    found = (difference(value, got[name], tolerance) for name, value in expected.items())
    return next((item for item in found if item is not None), None)


def _float(expected: float, got: float, tolerance: Tolerance) -> Difference | None:
    if expected == got or (math.isnan(expected) and math.isnan(got)):
        return None
    if not (math.isfinite(expected) and math.isfinite(got)):
        return Difference(f"{_class(got)} instead of {_class(expected)}")
    off = abs(expected - got)
    if off <= tolerance.atol + tolerance.rtol * abs(expected):
        return None
    return Difference("float", off / max(1.0, abs(expected)))


def _class(number: float) -> str:
    return "a finite float" if math.isfinite(number) else "NaN" if math.isnan(number) else "infinity"


def _list(expected: list[Any], got: list[Any], tolerance: Tolerance) -> Difference | None:
    if len(expected) != len(got):
        return Difference(f"{len(got)} values instead of {len(expected)}")
    pairs: Iterable[tuple[Any, Any]] = zip(expected, got, strict=True)
    mine, its = (as_floats(expected), as_floats(got)) if len(expected) >= _MANY else (None, None)
    if mine is not None and its is not None and mine.shape == its.shape:
        suspects = np.flatnonzero(_apart(mine, its, tolerance).reshape(len(expected), -1).any(axis=1))
        pairs = ((expected[place], got[place]) for place in suspects)
    found = (difference(one, other, tolerance) for one, other in pairs)
    return next((item for item in found if item is not None), None)


def _apart(one: NDArray[np.float64], other: NDArray[np.float64], tolerance: Tolerance) -> NDArray[np.bool_]:
    """Where `_float` may find a difference."""
    with np.errstate(invalid="ignore", over="ignore"):
        near = np.abs(one - other) <= tolerance.atol + tolerance.rtol * np.abs(one)
    return ~(near & np.isfinite(one))
