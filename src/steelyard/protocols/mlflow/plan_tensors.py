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

from steelyard.errors import SteelyardError
from steelyard.protocols.inputs import Inputs
from steelyard.protocols.mlflow.plan_packing import Packing
from steelyard.protocols.mlflow.schema import InputSchema, Tensor
from steelyard.protocols.mlflow.tensor_inputs import tensor_inputs
from steelyard.protocols.mlflow.tensors import check_shape


class TensorPlan:
    """One tensor."""

    def __init__(self, tensor: Tensor) -> None:
        """Raises KeyError or TypeError for a dtype, ValueError for a shape, that is left to the general path."""
        self._tensor = tensor
        self._rank = len(tensor.shape)
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
        return check_shape(self._tensor, "", self._packed(level).reshape(shape))

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
        self._schema = schema
        self.tensors = [TensorPlan(tensor) for tensor in schema.tensors]

    def inputs(self, values: Sequence[Any]) -> Inputs | None:
        """One value per tensor."""
        parts = []
        for plan, value in zip(self.tensors, values, strict=True):
            try:
                array = plan.array(value)
            except (SteelyardError, struct.error):
                return None
            if array is None:
                return None
            parts.append(array)
        try:
            return tensor_inputs(self._schema, parts)
        except SteelyardError:
            return None


def _nested(leaf: Any, depth: int) -> Any:
    for _ in range(depth):
        leaf = list[leaf]
    return leaf
