"""From XGBoost's margins to its objectives' numbers, and from these to what its scikit-learn classes answer.

Used by the `xgboost` runtime, whose library applies the objective itself, and by the `forest` runtime, which has only
margins. All in single precision, as XGBoost computes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

_STEEPEST = np.float32(88.7)  # e^x of more is no float: XGBoost stops there
_TINY = np.float32(1e-16)
_ONE = np.float32(1.0)


class Finish:
    """From XGBoost's numbers to what its scikit-learn classes answer: "values" as they are, "half" (second of two
    classes above one half), "argmax", "many" (each of several labels above one half), "pair" (probabilities of both
    classes), "integers" (the objective gives the class itself). `dtype` is the answer's."""

    def __init__(self, options: dict[str, Any]) -> None:
        self._kind: str = options["finish"]
        self._dtype = np.dtype(options["dtype"])

    def __call__(self, scores: NDArray[Any]) -> NDArray[Any]:
        kind = self._kind
        if kind == "values":
            return scores
        if kind == "argmax":
            return np.asarray(scores.argmax(axis=1).astype(self._dtype, copy=False))
        if kind == "pair":
            return np.stack((1.0 - scores, scores), axis=1).astype(self._dtype, copy=False)
        if kind == "integers":
            return scores.astype(self._dtype)
        return (scores > 0.5).astype(self._dtype)


class Objective:
    """`link` of (rows, scores) margins: "identity", "logistic", "exp" or "softmax"; `flat`: one number per row."""

    def __init__(self, options: dict[str, Any]) -> None:
        self._link: str = options["link"]
        self._flat: bool = options["flat"]

    def __call__(self, margins: NDArray[np.float32]) -> NDArray[np.float32]:
        scores = margins.ravel() if self._flat else margins
        if self._link == "logistic":
            scores = _ONE / (np.exp(np.minimum(-scores, _STEEPEST)) + _ONE + _TINY)
        elif self._link == "exp":
            scores = np.exp(scores)
        elif self._link == "softmax":
            powers = np.exp(scores - scores.max(axis=1, keepdims=True))
            scores = powers / powers.sum(axis=1, keepdims=True)
        return scores
