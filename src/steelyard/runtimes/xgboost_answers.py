"""From XGBoost's margins to its objectives' numbers, and from these to what its scikit-learn classes answer.

Used by the `xgboost` runtime, whose library applies the objective itself, and by the `forest` runtime, which has only
margins. All in single precision, as XGBoost computes.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

_STEEPEST = np.float32(88.7)  # e^x of more is no float: XGBoost stops there
_ONE = np.float32(1.0)


class Finish:
    """From XGBoost's numbers to what its scikit-learn classes answer: "values" as they are, "half" (second of two
    classes above one half), "argmax", "many" (each of several labels above one half), "pair" (probabilities of both
    classes), "integers" (the objective gives the class itself). `dtype` is the answer's."""

    def __init__(self, options: dict[str, Any]) -> None:
        self._kind: str = options["finish"]
        self._dtype = np.dtype(options["dtype"])
        self._single = np.array([[0], [1]], dtype=self._dtype)

    def __call__(self, scores: NDArray[Any]) -> NDArray[Any]:
        kind = self._kind
        if kind == "values":
            return scores
        if kind == "argmax":
            return np.asarray(scores.argmax(axis=1).astype(self._dtype, copy=False))
        if kind == "pair":
            pairs: NDArray[Any] = np.stack((1.0 - scores, scores), axis=1).astype(self._dtype, copy=False)
            return pairs
        if kind == "integers":
            return scores.astype(self._dtype)
        if scores.size == 1:
            single: NDArray[Any] = self._single[int(scores.item() > 0.5)].reshape(scores.shape)
            return single
        return (scores > 0.5).astype(self._dtype)


class Objective:
    """`link` of (rows, scores) margins: "identity", "logistic", "exp" or "softmax"; `flat`: one number per row."""

    def __init__(self, options: dict[str, Any]) -> None:
        self._link: str = options["link"]
        self._flat: bool = options["flat"]

    def __call__(self, margins: NDArray[np.float32]) -> NDArray[np.float32]:
        scores = margins.ravel() if self._flat else margins
        if self._link == "logistic":
            return _one_sigmoid(scores) if scores.size == 1 else _ONE / (_exp(np.minimum(-scores, _STEEPEST)) + _ONE)
        if self._link == "exp":
            return _exp(scores)
        if self._link == "softmax":
            powers = _exp(scores - scores.max(axis=1, keepdims=True))
            shares: NDArray[np.float32] = powers / powers.sum(axis=1, keepdims=True, dtype=np.float64).astype(
                np.float32
            )
            return shares
        return scores


def _exp(scores: NDArray[np.float32]) -> NDArray[np.float32]:
    """Rounded from double precision: so close to right that the C library's own `expf` hardly ever differs."""
    with np.errstate(over="ignore"):
        return np.exp(scores, dtype=np.float64).astype(np.float32)


def _one_sigmoid(score: NDArray[np.float32]) -> NDArray[np.float32]:
    """The same for one number, in a quarter of the time."""
    power = np.float32(math.exp(min(-score.item(), 88.7)))
    return np.array([_ONE / (power + _ONE)], dtype=np.float32).reshape(score.shape)
