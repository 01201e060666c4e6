"""LightGBM models without their Python package: by the walk in C, or by the library that they were built with.

Opened by `native.py` from an artifact that `worker/export/lightgbm.py` wrote. NaN and infinity are the trees' own
business; text in a column is refused.

Options: `finish` is "values" (whatever the objective gives), "labels" or "probabilities" of a classifier; `classes`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from steelyard.protocols.inputs import Inputs, Outputs
from steelyard.runtimes.columns import Columns
from steelyard.runtimes.evaluator import Evaluator
from steelyard.runtimes.labels import Labels
from steelyard.runtimes.links import pair
from steelyard.runtimes.steps import Steps

_F8 = np.dtype(np.float64)


class LightGbmRuntime:
    name = "lightgbm"

    def __init__(self, columns: Columns, steps: Steps | None, options: dict[str, Any], trees: Evaluator) -> None:
        self._rows: Columns | Steps = steps or columns
        self._trees = trees
        self._finish: str = options["finish"]
        self._labels = Labels(options["classes"], options["classes_dtype"]) if self._finish == "labels" else None

    def predict(self, inputs: Inputs) -> Outputs:
        scores = self._trees.predict(self._rows.matrix(inputs, _F8))
        if scores.shape[1] > 1:
            return scores if self._labels is None else self._labels.highest(scores)
        if len(scores) == 1 and self._finish != "values":
            return self._of_one(scores.item())
        if self._labels is not None:
            # of two classes the second wins where p > 1 - p, as argmax over both decides
            return self._labels.above(scores - (1.0 - scores), 0.0)
        return pair(scores.ravel()) if self._finish == "probabilities" else scores.ravel()

    def _of_one(self, second: float) -> Outputs:
        """The same for one row of two classes: numpy takes longer for one number than the trees."""
        if self._labels is not None:
            return self._labels.one(second - (1.0 - second) > 0.0)
        return np.array([[1.0 - second, second]])

    def close(self) -> None:
        self._trees.close()
