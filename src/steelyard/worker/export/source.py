"""The model as its own flavor loads it, and what its signature says of the inputs.

Made once per export by `__main__.py`, read by every converter. It runs the model's own code, never MLflow's pyfunc.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

_NUMBERS = {
    "boolean": "bool",
    "integer": "int32",
    "long": "int64",
    "float": "float32",
    "double": "float64",
}


class Refused(Exception):
    """A converter's own sentence on why it cannot take this model."""


@dataclass(frozen=True)
class Source:
    """`features` are names in the signature's order, or None for one unnamed tensor; `dtypes` beside them are numpy
    names, "object" for text. `model` is the flavor's native object; None for a graph that is only a file."""

    folder: Path
    family: str  # "sklearn", "lightgbm", "xgboost", "catboost", "onnx"
    model: Any
    predict: str  # the method that pyfunc calls
    features: list[str | int] | None
    dtypes: list[str]
    columnar: bool
    flavor: dict[str, Any] = field(default_factory=dict)

    @property
    def joint_dtype(self) -> np.dtype[Any]:
        """What a frame of these columns becomes as one matrix. Raises Refused for text."""
        if "object" in self.dtypes:
            raise Refused("It has text columns, and nothing in it that encodes them.")
        if len(set(self.dtypes)) > 1 and "bool" in self.dtypes:
            return np.dtype(np.float64)  # pandas makes objects of them, which the libraries read as doubles
        return np.result_type(*self.dtypes)


def load(folder: Path) -> Source:
    """Raises Refused when no converter knows the model or its signature."""
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    from mlflow.models import Model  # noqa: PLC0415

    meta = Model.load(str(folder))
    pyfunc = meta.flavors.get("python_function") or {}
    family = str(pyfunc.get("loader_module", "")).rpartition("mlflow.")[2]
    if family not in ("sklearn", "lightgbm", "xgboost", "catboost", "onnx"):
        raise Refused("The model is not of a flavor that has native runtimes.")
    features, dtypes, columnar = _inputs(meta.signature)
    flavor = dict(meta.flavors.get(family) or {})
    predict = str(pyfunc.get("predict_fn") or flavor.get("predict_fn") or "predict")
    if family != "sklearn":
        predict = "predict"
    return Source(folder, family, _model(folder, family), predict, features, dtypes, columnar, flavor)


def _model(folder: Path, family: str) -> Any:
    path = str(folder)
    if family == "sklearn":
        import mlflow.sklearn as flavor  # noqa: PLC0415
    elif family == "lightgbm":
        import mlflow.lightgbm as flavor  # noqa: PLC0415
    elif family == "xgboost":
        import mlflow.xgboost as flavor  # noqa: PLC0415
    elif family == "catboost":
        import mlflow.catboost as flavor  # noqa: PLC0415
    else:
        return None
    return flavor.load_model(path)


def _inputs(signature: Any) -> tuple[list[str | int] | None, list[str], bool]:
    schema = getattr(signature, "inputs", None)
    if schema is None:
        raise Refused("The model has no input signature.")
    if schema.is_tensor_spec():
        dtypes = [str(spec.type) for spec in schema.inputs]
        dtypes = ["object" if np.dtype(dtype).kind in "SUO" else dtype for dtype in dtypes]
        return (list(schema.input_names()) if schema.has_input_names() else None), dtypes, False
    dtypes = list(_column_dtypes(schema))
    names = list(schema.input_names()) if schema.has_input_names() else list(range(len(dtypes)))
    return names, dtypes, True


def _column_dtypes(schema: Any) -> Iterator[str]:
    for spec in schema.inputs:
        kind = getattr(spec.type, "name", "")
        if kind == "string":
            yield "object"
        elif kind in _NUMBERS:
            # an optional number that is left out arrives as NaN, which only floats can hold
            optional = not getattr(spec, "required", True)
            yield "float64" if optional and kind in ("boolean", "integer", "long") else _NUMBERS[kind]
        else:
            raise Refused("Its signature has columns that are neither numbers nor text.")
