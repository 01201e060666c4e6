"""The variant `native`: a library's own model on numpy arrays, with pyfunc's output structure and without pandas.

One small function per flavor, chosen by `native_predict` when the model is loaded. None of them knows whether its
answers are right for a model: a proof finds out.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from steelyard.protocols.inputs import Inputs, Records

Predict = Callable[[Inputs], Any]

_FLAVORS = ("sklearn", "catboost", "pytorch", "xgboost", "lightgbm")


def native_predict(flavors: tuple[str, ...], model: Any) -> Predict | None:
    """For the first flavor that has one; None where none does."""
    implementation = getattr(model, "_model_impl", None)
    flavor = next((name for name in _FLAVORS if name in flavors), None)
    if implementation is None or flavor is None:
        return None
    return _BUILDERS[flavor](implementation, model)


def table(inputs: Inputs) -> NDArray[Any]:
    """The columns as one array of the type that pandas would give: object where they have none in common."""
    if inputs.matrix is not None:
        return inputs.matrix
    parts = inputs.parts
    if not inputs.columnar and len(parts) == 1:
        return parts[0]
    kinds = {part.dtype.kind for part in parts}
    common = np.result_type(*parts) if kinds <= set("iuf") or kinds == {"b"} else np.dtype(object)
    return inputs.as_matrix(common)


def _sklearn(implementation: Any, model: Any) -> Predict | None:
    raw = getattr(implementation, "sklearn_model", implementation)
    name = getattr(getattr(model, "_predict_fn", None), "__name__", "predict")
    predict = getattr(raw, name, None)
    if predict is None or name == "score":
        return None
    warnings.filterwarnings("ignore", message="X does not have valid feature names")
    return lambda inputs: predict(table(inputs))


def _catboost(implementation: Any, model: Any) -> Predict | None:
    raw = getattr(implementation, "cb_model", None)
    return None if raw is None else lambda inputs: raw.predict(table(inputs))


def _lightgbm(implementation: Any, model: Any) -> Predict | None:
    raw = getattr(implementation, "lgb_model", None)
    if raw is None:
        return None
    warnings.filterwarnings("ignore", message="X does not have valid feature names")
    return lambda inputs: raw.predict(table(inputs))


def _xgboost(implementation: Any, model: Any) -> Predict | None:
    raw = getattr(implementation, "xgb_model", None)
    if raw is None:
        return None
    if hasattr(raw, "inplace_predict"):  # a Booster: without building a DMatrix
        return lambda inputs: raw.inplace_predict(table(inputs), validate_features=False)
    return lambda inputs: raw.predict(table(inputs))


def _pytorch(implementation: Any, model: Any) -> Predict | None:
    module = getattr(implementation, "pytorch_model", None)
    device = getattr(implementation, "device", "cpu")
    if module is None or device != "cpu" or getattr(implementation, "_is_forecasting_model", False):
        return None
    import torch  # noqa: PLC0415  (the model has loaded it already)

    def predict(inputs: Inputs) -> Any:
        array = inputs.as_matrix(np.float32) if inputs.columnar else table(inputs)
        with torch.inference_mode():
            output = module(torch.from_numpy(array)).numpy()
        if not inputs.columnar:
            return output
        columns = output if output.ndim > 1 else output[:, np.newaxis]
        return Records(tuple(map(str, range(columns.shape[1]))), tuple(columns.T))

    return predict


_BUILDERS: dict[str, Callable[[Any, Any], Predict | None]] = {
    "sklearn": _sklearn,
    "catboost": _catboost,
    "pytorch": _pytorch,
    "xgboost": _xgboost,
    "lightgbm": _lightgbm,
}
