"""Flat Python numbers into numpy arrays by `struct`, a third of the time that numpy needs for a list.

Used by the compiled plans (`plan_columns.py`, `plan_tensors.py`) after msgspec has checked the numbers' types. An
array's memory is its own and writable.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Annotated, Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from steelyard.protocols.mlflow.scalars import FLOAT32_MAX

_CODES = {"float64": "d", "float32": "f", "int64": "q", "int32": "i", "int16": "h", "int8": "b"}
_CODES |= {"uint64": "Q", "uint32": "I", "uint16": "H", "uint8": "B", "bool": "?"}
_SINGLE = Annotated[float, msgspec.Meta(ge=-FLOAT32_MAX, le=FLOAT32_MAX)]


class Packing:
    """Numbers of one dtype, in the machine's byte order."""

    def __init__(self, dtype: str) -> None:
        """Raises KeyError for a dtype that `struct` has no code for."""
        self.dtype: np.dtype[Any] = np.dtype(dtype)
        self._code = _CODES[self.dtype.name]

    def json_type(self, *, nullable: bool) -> Any:
        """What msgspec must have decoded each number as; floats are always nullable."""
        kind = self.dtype.kind
        if kind == "f":
            return (_SINGLE if self.dtype.itemsize == 4 else float) | None
        plain = bool if kind == "b" else int
        return plain | None if nullable else plain

    def array(self, numbers: Sequence[Any]) -> NDArray[Any]:
        """1-D. Raises struct.error for a null or a number out of range."""
        result: NDArray[Any] = np.empty(len(numbers), self.dtype)
        struct.pack_into(f"{len(numbers)}{self._code}", result.data, 0, *numbers)
        return result

    def matrix(self, rows: Sequence[Sequence[Any]], width: int) -> NDArray[Any]:
        """(rows, width), of rows that have that width. Raises struct.error."""
        result: NDArray[Any] = np.empty((len(rows), width), self.dtype)
        struct.pack_into(f"{result.size}{self._code}", result.data, 0, *chain.from_iterable(rows))
        return result

    def one_row(self, width: int) -> Callable[[Sequence[Any]], NDArray[Any]]:
        """What makes a (1, width) array of a row of that width, in half the time of `matrix`. Raises struct.error."""
        pack_into: Any = struct.Struct(f"{width}{self._code}").pack_into
        shape, dtype = (1, width), self.dtype

        def one(row: Sequence[Any]) -> NDArray[Any]:
            result: NDArray[Any] = np.empty(shape, dtype)
            pack_into(result, 0, *row)
            return result

        return one
