"""XGBoost models through the C API of the library that they were built with, without its Python package.

Opened by `native.py` from an artifact that `worker/export/xgboost.py` wrote. Inputs are narrowed to float32, as XGBoost
does; NaN is missing.

Options: `iterations` (0: all), `missing` (null: NaN), `infinite`: whether the model takes infinity; `finish`: see
`xgboost_answers.py`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from steelyard.protocols.inputs import Inputs, Outputs
from steelyard.runtimes.columns import Columns, refuse_unfit
from steelyard.runtimes.steps import Steps
from steelyard.runtimes.xgboost_answers import Finish
from steelyard.runtimes.xgboost_library import Booster

_F4 = np.dtype(np.float32)


class XGBoostRuntime:
    name = "xgboost"

    def __init__(self, columns: Columns, steps: Steps | None, options: dict[str, Any], booster: Booster) -> None:
        self._columns = columns
        self._rows: Columns | Steps = steps or columns
        self._booster = booster
        self._dtype = np.dtype(np.float64) if steps else _F4
        self._infinite: bool = options["infinite"]
        self._finish = Finish(options)

    def predict(self, inputs: Inputs) -> Outputs:
        matrix = self._rows.matrix(inputs, self._dtype)
        if matrix.dtype != _F4:
            with np.errstate(over="ignore"):
                matrix = matrix.astype(_F4)
        refuse_unfit(matrix, self._columns.features, nan=True, infinite=self._infinite)
        return self._finish(self._booster.predict(matrix))

    def close(self) -> None:
        self._booster.close()
