"""The model as its own flavor loads it, and what its signature says of the inputs.

Made once per export, by `__main__.py` or of the model that a worker has loaded, and read by every converter.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from steelyard.packages import Kind, Location, inspect_package
from steelyard.packages.inspect import flavors_of
from steelyard.protocols.mlflow.schema import Column, ColumnType, InputSchema, parse_input_schema

FAMILIES = ("sklearn", "lightgbm", "xgboost", "catboost", "onnx")

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
    family: str  # of FAMILIES
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
    """With the flavor's own loader. Raises Refused when no converter knows the model or its signature."""
    source = described(folder)
    return replace(source, model=_model(folder, source.family))


def described(folder: Path) -> Source:
    """Without its model: what its files say, read without MLflow, which takes seconds to import. Raises Refused."""
    package = inspect_package(Location(folder, Kind.MLFLOW))
    family = (package.loader or "").removeprefix("mlflow.")
    if family not in FAMILIES:
        raise Refused("The model is not of a flavor that has native runtimes.")
    try:
        features, dtypes, columnar = _inputs(parse_input_schema(package.signature_inputs))
    except ValueError as error:
        raise Refused(f"Its signature cannot be read: {error}.") from error
    flavors = flavors_of(folder)
    flavor = dict(flavors.get(family) or {})
    predict = str((flavors.get("python_function") or {}).get("predict_fn") or flavor.get("predict_fn") or "predict")
    if family != "sklearn":
        predict = "predict"
    return Source(folder, family, None, predict, features, dtypes, columnar, flavor)


def _model(folder: Path, family: str) -> Any:
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
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


def _inputs(schema: InputSchema | None) -> tuple[list[str | int] | None, list[str], bool]:
    if schema is None:
        raise Refused("The model has no input signature.")
    if schema.tensors:
        dtypes = [tensor.dtype for tensor in schema.tensors]
        dtypes = ["object" if np.dtype(dtype).kind in "SUO" else dtype for dtype in dtypes]
        return ([str(tensor.name) for tensor in schema.tensors] if schema.named else None), dtypes, False
    dtypes = [_column_dtype(column) for column in schema.columns]
    names = [str(column.name) for column in schema.columns] if schema.named else range(len(dtypes))
    return list(names), dtypes, True


def _column_dtype(column: Column) -> str:
    kind = column.type.value
    if column.type is ColumnType.STRING:
        return "object"
    if kind not in _NUMBERS:
        raise Refused("Its signature has columns that are neither numbers nor text.")
    # an optional number that is left out arrives as NaN, which only floats can hold
    optional = not column.required
    return "float64" if optional and kind in ("boolean", "integer", "long") else _NUMBERS[kind]
