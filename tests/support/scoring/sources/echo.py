"""A model that answers with what it was given, dtypes and values, so that a silent change cannot hide."""

import json

import numpy as np
import pandas as pd
from mlflow.models import set_model
from mlflow.pyfunc import PythonModel


def describe(value):
    if isinstance(value, pd.DataFrame):
        return (
            ", ".join(f"{name}: {_series(value.iloc[:, place])}" for place, name in enumerate(value.columns))
            or "nothing"
        )
    if isinstance(value, np.ndarray):
        return f"{value.dtype} {list(value.shape)} {_cell(value)}"
    if isinstance(value, dict):
        return ", ".join(f"{name}: {describe(item)}" for name, item in value.items())
    return _cell(value)


def _series(series):
    kind = "object" if str(series.dtype) in ("object", "str") else str(series.dtype)
    index = "" if isinstance(series.index, pd.RangeIndex) else f" at {_cell(series.index.tolist())}"
    return f"{kind} {_cell(series.tolist())}{index}"


def _cell(value):
    if isinstance(value, np.ndarray | np.generic):
        return _cell(value.tolist())
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_cell, value)) + "]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name}: {_cell(item)}" for name, item in value.items()) + "}"
    if isinstance(value, str | bool | type(None)):
        return json.dumps(value, ensure_ascii=False)
    if value is pd.NaT:
        return "NaT"
    if hasattr(value, "isoformat"):
        return value.isoformat()
    return repr(value)


class Echo(PythonModel):
    def predict(self, context, model_input, params=None):
        given = describe(model_input)
        return given if params is None else f"{given}; {_cell(dict(sorted(params.items())))}"


set_model(Echo())
