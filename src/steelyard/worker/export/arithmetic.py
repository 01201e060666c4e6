"""The few formulas that converters try against a model's own answers.

Used by the linear converter; pure, and as accurate as what the runtimes compute.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np


def same(values: Any, wanted: Any) -> bool:
    """Equal shape and dtype kind, and equal numbers but for roundings."""
    if values.shape != wanted.shape or values.dtype != wanted.dtype:
        return False
    loose = values.dtype == np.float32
    return bool(
        np.allclose(values, wanted, rtol=1e-5 if loose else 1e-9, atol=1e-6 if loose else 1e-12, equal_nan=True)
    )


def chances(scores: Any) -> Iterator[tuple[str, Any]]:
    """Each known way from (rows, scores) to probabilities, by the name that `runtimes/linear.py` has for it."""
    logistic = 0.5 * (1.0 + np.tanh(0.5 * scores))
    if scores.shape[1] == 1:
        yield "logistic", np.concatenate((1.0 - logistic, logistic), axis=1)
        yield "softmax_pair", _softmax(np.concatenate((-scores, scores), axis=1))
    else:
        yield "softmax", _softmax(scores)
        with np.errstate(all="ignore"):
            exact = np.exp(-np.logaddexp(0.0, -scores))
            shares = exact / exact.sum(axis=1, keepdims=True)
            yield "logistic_rows", shares
            yield "logistic_even", np.where(np.isnan(shares), 1.0 / scores.shape[1], shares)


def _softmax(scores: Any) -> Any:
    powers = np.exp(scores - scores.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)
