"""A classifier's labels: places in its list of classes → the classes themselves, with their dtype.

Written into an artifact's options as plain JSON values by the exporters, used by every native classifier.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


class Labels:
    """`dtype` is numpy's name ("int64", "<U9", "object", "bool")."""

    def __init__(self, classes: list[Any], dtype: str) -> None:
        self._classes = np.array(classes, dtype=np.dtype(dtype))
        self.take = self._classes.take  # (rows,) places → (rows,) labels
        self._classes.setflags(write=False)
        self._single = [self._classes[place : place + 1] for place in range(len(self._classes))]

    def highest(self, scores: NDArray[Any]) -> NDArray[Any]:
        """(rows, classes) → the label of each row's first highest score. May be read-only."""
        if len(scores) == 1:  # half of what a one-row query costs in numpy would be spent here
            first: NDArray[Any] = self._single[scores.argmax()]
            return first
        best: NDArray[Any] = self.take(scores.argmax(axis=1))
        return best

    def above(self, scores: NDArray[Any], least: float) -> NDArray[Any]:
        """(rows,) or (rows, 1) scores → the second label where the score is above `least`, else the first."""
        if len(scores) == 1:
            chosen: NDArray[Any] = self._single[scores.item() > least]
            return chosen
        return self.take((scores.ravel() > least).astype(np.intp))

    def one(self, place: int) -> NDArray[Any]:
        """The label at that place, as (1,). Read-only."""
        return self._single[place]

    @property
    def dtype(self) -> np.dtype[Any]:
        return self._classes.dtype

    def __len__(self) -> int:
        return len(self._classes)
