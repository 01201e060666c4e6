"""Linear models as a dot product: what scikit-learn computes for them, without its checks around it.

Opened by `native.py` from an artifact that `worker/export/linear.py` wrote. Scaling, imputing and encoding before the
model are `steps.py`. It never imports scikit-learn.

Options: `finish` is "values" (a regressor), "labels" (argmax, or the sign where there is one score) or a probability
(a name of `_CHANCES`); `link` "identity" or "exp"; `flat` for one answer per row; `classes`.
Arrays: `coef` (features, scores), `intercept` (scores,).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from steelyard.protocols.inputs import Inputs, Outputs
from steelyard.runtimes.columns import Columns, refuse_unfit
from steelyard.runtimes.labels import Labels
from steelyard.runtimes.links import softmax, two_chances
from steelyard.runtimes.steps import Steps

Matrix = NDArray[Any]
_FEW = 16  # scores, up to which Python adds them sooner than numpy


class LinearRuntime:
    """One linear model. Holds no state between queries, so that threads need no lock."""

    name = "linear"

    def __init__(
        self, columns: Columns, steps: Steps | None, options: dict[str, Any], arrays: dict[str, Matrix]
    ) -> None:
        self._columns = columns
        self._rows: Columns | Steps = steps or columns
        self._coef = np.asfortranarray(arrays["coef"])  # each score's weights side by side: the faster order for BLAS
        self._intercept = arrays["intercept"].reshape(1, -1)  # as one row's scores, which numpy adds much faster
        self._dtype = self._coef.dtype
        self._finish = _finish(options)

    def predict(self, inputs: Inputs) -> Outputs:
        matrix = self._rows.matrix(inputs, self._dtype)
        scores = matrix.dot(self._coef)
        scores += self._intercept
        flat = scores.ravel()
        total = sum(flat.tolist()) if flat.size <= _FEW else flat.dot(flat)
        if not math.isfinite(total):  # NaN and infinity always reach the scores, even times zero
            refuse_unfit(matrix, self._columns.features, nan=False, infinite=False)
        return self._finish(scores)

    def close(self) -> None:
        """Nothing native to give back."""


def _finish(options: dict[str, Any]) -> Callable[[Matrix], Matrix]:
    kind = options["finish"]
    if kind == "values":
        exponent = options["link"] == "exp"
        flat = options["flat"]
        return lambda scores: _shape(np.exp(scores) if exponent else scores, flat)
    if kind == "labels":
        return _labels(options)
    return _CHANCES[kind]


def _shape(scores: Matrix, flat: bool) -> Matrix:
    return scores.ravel() if flat else scores


def _labels(options: dict[str, Any]) -> Callable[[Matrix], Matrix]:
    labels = Labels(options["classes"], options["classes_dtype"])
    if options["scores"] == 1:
        return lambda scores: labels.above(scores, 0.0)
    return labels.highest


def _logistic_rows(scores: Matrix) -> Matrix:
    """One against the rest, made to sum to one."""
    chances: Matrix = np.exp(-np.logaddexp(0.0, -scores))  # exact for the smallest too: all may be small
    with np.errstate(invalid="ignore"):
        chances /= chances.sum(axis=1, keepdims=True)
    return chances


def _logistic_even(scores: Matrix) -> Matrix:
    """The same, but even chances where all are zero."""
    chances = _logistic_rows(scores)
    chances[np.isnan(chances)] = 1.0 / scores.shape[1]
    return chances


def _softmax_pair(scores: Matrix) -> Matrix:
    return softmax(np.concatenate((-scores, scores), axis=1))


_CHANCES: dict[str, Callable[[Matrix], Matrix]] = {
    "logistic": two_chances,
    "logistic_rows": _logistic_rows,
    "logistic_even": _logistic_even,
    "softmax": softmax,
    "softmax_pair": _softmax_pair,
}
