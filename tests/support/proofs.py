"""Models as the proof sees them: functions of rows to outcomes, and conversions of trees whose faults can be chosen."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from steelyard.protocols.inputs import Inputs
from steelyard.protocols.mlflow.schema import Column, ColumnType, InputSchema
from steelyard.runtimes.proof.outcome import Outcome, Predict


def predicting(function: Callable[[np.ndarray], Any]) -> Predict:
    """Of a function of one (rows, columns) float64 matrix to an array."""

    def predict(inputs: Inputs) -> Outcome:
        try:
            output = np.asarray(function(inputs.as_matrix(np.float64)))
        except Exception as error:
            return Outcome(None, error=type(error).__name__)
        return Outcome(output.tolist(), 32 if output.dtype == np.float32 else 64)

    return predict


def doubles(count: int) -> InputSchema:
    return InputSchema(columns=tuple(Column(f"x{place}", ColumnType.DOUBLE) for place in range(count)))


def matrix_inputs(matrix: np.ndarray) -> Inputs:
    return Inputs(tuple(f"x{place}" for place in range(matrix.shape[1])), len(matrix), np.ascontiguousarray(matrix))


@dataclass
class TreeArrays:
    """One sklearn tree as plain arrays, walked by numpy. With the defaults it is an honest conversion."""

    left: np.ndarray
    right: np.ndarray
    feature: np.ndarray
    threshold: np.ndarray
    value: np.ndarray  # (nodes, outputs)
    missing_left: np.ndarray
    single: bool = True  # sklearn compares float32 values with float64 thresholds
    strict: bool = False  # < instead of <=

    @classmethod
    def of(cls, tree: Any) -> TreeArrays:
        return cls(
            tree.children_left.copy(),
            tree.children_right.copy(),
            tree.feature.copy(),
            tree.threshold.copy(),
            tree.value[:, 0, :].copy(),
            tree.missing_go_to_left.astype(bool),
        )

    @property
    def inner(self) -> np.ndarray:
        return np.flatnonzero(self.left >= 0)

    @property
    def leaves(self) -> np.ndarray:
        return np.flatnonzero(self.left < 0)

    def values(self, matrix: np.ndarray) -> np.ndarray:
        rows = matrix.astype(np.float32) if self.single else matrix
        node = np.zeros(len(rows), dtype=int)
        while True:
            active = np.flatnonzero(self.left[node] >= 0)
            if not len(active):
                return self.value[node]
            at = node[active]
            x, threshold = rows[active, self.feature[at]].astype(np.float64), self.threshold[at]
            goes_left = np.where(np.isnan(x), self.missing_left[at], x < threshold if self.strict else x <= threshold)
            node[active] = np.where(goes_left, self.left[at], self.right[at])


def refuse_like_sklearn(matrix: np.ndarray) -> None:
    """Trees of sklearn take no infinity, nor numbers beyond float32."""
    with np.errstate(over="ignore"):
        if np.isinf(matrix.astype(np.float32)).any():
            raise ValueError("not finite")
