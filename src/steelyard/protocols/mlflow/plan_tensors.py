"""Nested JSON lists → tensors of a signature: what the plan of a tensor signature is made of.

Called by `plan.py`. A tensor's rank tells msgspec how deep its lists are; their lengths are compared level by level.
It returns None, never an error, where the general path must decide.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from steelyard.protocols.inputs import Inputs
from steelyard.protocols.mlflow.plan_packing import Packing
from steelyard.protocols.mlflow.schema import InputSchema, Tensor


class TensorPlan:
    """One tensor."""

    def __init__(self, tensor: Tensor) -> None:
        """Raises KeyError or TypeError for a dtype, ValueError for a shape, that is left to the general path."""
        self._rank = len(tensor.shape)
        self._fixed = [(axis, size) for axis, size in enumerate(tensor.shape) if size != -1]
        if self._rank == 0:
            raise ValueError("a tensor without rows")
        self._packing = None if np.dtype(tensor.dtype).kind == "U" else Packing(tensor.dtype)
        leaf: Any = str if self._packing is None else self._packing.json_type(nullable=False)
        self.row_type = _nested(leaf, self._rank - 1)
        self.json_type = _nested(leaf, self._rank)

    def array(self, data: list[Any]) -> NDArray[Any] | None:
        """`data` as `json_type` has it."""
        shape, level = [len(data)], data
        for _ in range(self._rank - 1):
            lengths = set(map(len, level))
            if len(lengths) != 1:
                return None
            shape.append(lengths.pop())
            level = level[0] if len(level) == 1 else list(chain.from_iterable(level))
        if any(shape[axis] != size for axis, size in self._fixed):
            return None
        return self._packed(level).reshape(shape)

    def _packed(self, numbers: list[Any]) -> NDArray[Any]:
        if self._packing is None:
            return np.array(numbers, dtype=np.str_)
        try:
            return self._packing.array(numbers)
        except struct.error:
            if self._packing.dtype.kind != "f":
                raise
            return np.array(numbers, dtype=np.float64).astype(self._packing.dtype)


class TensorsPlan:
    """All tensors of a signature, in its order."""

    def __init__(self, schema: InputSchema) -> None:
        """Raises what `TensorPlan` raises."""
        self._names = tuple(tensor.name for tensor in schema.tensors)
        self.tensors = [TensorPlan(tensor) for tensor in schema.tensors]

    def inputs(self, values: Sequence[Any]) -> Inputs | None:
        """One value per tensor."""
        parts = []
        for plan, value in zip(self.tensors, values, strict=True):
            try:
                array = plan.array(value)
            except struct.error:  # a number out of range
                return None
            if array is None:
                return None
            parts.append(array)
        rows = len(parts[0])
        return Inputs(self._names, rows, None, tuple(parts), False) if rows else None


def _nested(leaf: Any, depth: int) -> Any:
    for _ in range(depth):
        leaf = list[leaf]
    return leaf
