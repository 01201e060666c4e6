"""Answers as keys that can be told apart quickly: the same key for the same answer but for the last bits of floats.

Used by the search for boundaries, where a sum in another order must not look like another leaf.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from steelyard.runtimes.proof.outcome import as_floats

_KEPT_BITS = {32: 18, 64: 40}
_LABELS = frozenset({int, str, bool, type(None)})


def signatures(answers: list[Any], float_bits: int) -> list[Any]:
    """One key per row's answer: its labels and its rounded floats; None for None, a row that was not answered."""
    plain = as_floats(answers)
    if plain is not None:
        return [((), row.tobytes()) for row in _rounded(plain, float_bits)]
    if _LABELS.issuperset(map(type, answers)):
        return [None if answer is None else ((answer,), b"") for answer in answers]
    split = [None if answer is None else _split(answer) for answer in answers]
    lengths = {len(row[1]) for row in split if row is not None}
    if len(lengths) != 1:
        return [None if row is None else (row[0], _rounded(np.array(row[1]), float_bits).tobytes()) for row in split]
    floats = _rounded(np.array([row[1] for row in split if row is not None]), float_bits)
    keys = iter(floats)
    return [None if row is None else (row[0], next(keys).tobytes()) for row in split]


def labels_of(answers: list[Any], float_bits: int) -> list[Any]:
    """The same without the floats: labels that stand beside smooth scores; () where there are none."""
    if _LABELS.issuperset(map(type, answers)):
        return [None if answer is None else (answer,) for answer in answers]
    return [None if answer is None else _split(answer)[0] for answer in answers]


def _split(answer: Any) -> tuple[tuple[Any, ...], list[float]]:
    labels: list[Any] = []
    floats: list[float] = []
    waiting = [answer]
    while waiting:
        value = waiting.pop()
        if isinstance(value, float):
            floats.append(value)
        elif isinstance(value, list):
            waiting += reversed(value)
        elif isinstance(value, dict):
            waiting += reversed(value.values())
        else:
            labels.append(value if value is None or isinstance(value, str | int) else repr(value))
    return tuple(labels), floats


def _rounded(floats: NDArray[np.float64], float_bits: int) -> NDArray[np.float64]:
    bits = _KEPT_BITS[float_bits]
    mantissa, exponent = np.frexp(floats)
    with np.errstate(over="ignore"):
        rounded: NDArray[np.float64] = np.ldexp(np.rint(mantissa * 2.0**bits), exponent - bits)
    rounded[np.isnan(rounded)] = np.nan  # one bit pattern for all
    return rounded + 0.0  # and one zero
