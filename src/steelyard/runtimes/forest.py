"""Trees of scikit-learn, CatBoost and XGBoost: walked in double precision, finished as their own library does.

Opened by `native.py` from an artifact that `worker/export/` wrote as a LightGBM model text, which the walk in C reads,
or LightGBM's library in its place. It imports none of those packages.

Options: `cast`: the float type to which the model's own library narrows its inputs; `nan`, `infinite`: whether it takes
them; `missing`: a number that means NaN, or null; `ceiling`: true when infinity goes where the largest number goes;
`divide`: by how much the sum is divided (a mean over trees), or
null; `sum`: see `leaf_sums.py`; `finish`, `link` and what they need: see `_finish`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from steelyard.protocols.inputs import Inputs, Outputs
from steelyard.runtimes.columns import Columns, refuse_unfit
from steelyard.runtimes.labels import Labels
from steelyard.runtimes.leaf_sums import Sums
from steelyard.runtimes.links import softmax, two_chances
from steelyard.runtimes.steps import Steps
from steelyard.runtimes.xgboost_answers import Finish, Objective

Matrix = NDArray[Any]
_LARGEST = float(np.finfo(np.float64).max)
_BELOW_ZERO = -5e-324  # the largest number below zero


class ForestRuntime:
    name = "forest"

    def __init__(self, columns: Columns, steps: Steps | None, options: dict[str, Any], sums: Sums) -> None:
        self._columns = columns
        self._rows: Columns | Steps = steps or columns
        self._sums = sums
        self._cast = np.dtype(options["cast"])
        self._first = np.dtype(np.float64) if steps else self._cast
        self._nan: bool = options["nan"]
        self._infinite: bool = options["infinite"]
        self._missing: float | None = options["missing"]
        self._divide: float | None = options["divide"]
        self._ceiling: bool = options.get("ceiling", False)
        self._finish = _finish(options)

    def predict(self, inputs: Inputs) -> Outputs:
        matrix = self._rows.matrix(inputs, self._first)
        if matrix.dtype is not self._cast:
            with np.errstate(over="ignore"):
                matrix = matrix.astype(self._cast)
        refuse_unfit(matrix, self._columns.features, nan=self._nan, infinite=self._infinite)
        if self._missing is not None:
            matrix = np.where(matrix == self._missing, np.nan, matrix)
        if self._ceiling:
            matrix = np.minimum(matrix, _LARGEST)
        sums = self._sums.of(matrix)
        if self._divide is not None:
            sums /= self._divide
        return self._finish(sums)

    def close(self) -> None:
        self._sums.close()


def _finish(options: dict[str, Any]) -> Callable[[Matrix], Matrix]:  # noqa: PLR0911  (one line per way)
    """The last step, by `finish`: "values" are the sums through `link`; "labels" and "probabilities" of
    `classes` (one list per target) go by `link`: "none" (sums are chances), "logistic" (one sum) or "softmax";
    "isolation" is ±1 beside `offset`; "xgboost" has the `answer` of `xgboost_answers.py`."""
    kind, link = options["finish"], options.get("link", "none")
    if kind == "xgboost":
        objective, answer = Objective(options), Finish(options["answer"])
        return lambda sums: answer(objective(sums))
    if kind == "values":
        flat: bool = options["flat"]
        if link == "exp":
            return lambda sums: np.exp(sums).ravel() if flat else np.exp(sums)
        return lambda sums: sums.ravel() if flat else sums
    if kind == "isolation":
        offset, denominator = options["offset"], options["denominator"]
        return lambda sums: np.where(-(2 ** (-sums.ravel() / denominator)) - offset < 0, -1, 1)
    if kind == "probabilities":
        return {"none": lambda sums: sums, "logistic": two_chances, "softmax": softmax}[link]
    labels = [Labels(classes, options["classes_dtype"]) for classes in options["classes"]]
    if len(labels) > 1:
        return lambda sums: _per_target(sums, labels)
    highest = labels[0].highest
    if link == "logistic":
        above, least = labels[0].above, 0.0 if options["strict"] else _BELOW_ZERO
        return lambda sums: above(sums, least)
    if options.get("column", False):
        return lambda sums: highest(sums).reshape(-1, 1)
    return highest


def _per_target(sums: Matrix, labels: list[Labels]) -> Matrix:
    result = np.empty((len(sums), len(labels)), dtype=labels[0].dtype)
    start = 0
    for target, classes in enumerate(labels):
        stop = start + len(classes)
        result[:, target] = classes.take(sums[:, start:stop].argmax(axis=1))
        start = stop
    return result
