"""What a model said to some rows, in the one form in which all runtimes are compared.

The selection wraps the reference and every candidate as a `Predict`; it never raises for what the model does.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from steelyard.protocols.inputs import Inputs


@dataclass(frozen=True, slots=True)
class Outcome:
    """`plain` is the JSON-ready output, NaN and the infinities kept as floats; None beside an error.

    `float_bits`, 32 or 64, is the widest float dtype in the output. `error` is the class name of what was raised.
    """

    plain: Any
    float_bits: int = 64
    error: str | None = None


Predict = Callable[[Inputs], Outcome]


def split_rows(plain: Any, rows: int) -> list[Any] | None:
    """One value per row: of a list, a list of objects, or an object of lists; None when it has no such shape."""
    if isinstance(plain, list):
        return plain if len(plain) == rows else None
    if isinstance(plain, dict) and plain:
        if not all(isinstance(values, list) and len(values) == rows for values in plain.values()):
            return None
        return [dict(zip(plain, row, strict=True)) for row in zip(*plain.values(), strict=True)]
    return None


def as_floats(values: list[Any]) -> NDArray[np.float64] | None:
    """Floats, or rows of equally many floats, as an array: the usual outputs, by the thousand; None for all others."""
    kinds = set(map(type, values))
    if kinds == {list}:
        if len(set(map(len, values))) != 1:
            return None
        kinds = set(map(type, itertools.chain.from_iterable(values)))
    return np.array(values) if kinds == {float} else None
