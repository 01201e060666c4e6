"""A model that returns, or raises, what it is asked for by name."""

import datetime
import decimal
import uuid

import numpy as np
import pandas as pd
from mlflow.exceptions import MlflowException
from mlflow.models import set_model
from mlflow.pyfunc import PythonModel

NAN, INF = float("nan"), float("inf")


def _raise(error):
    raise error


def _deep(levels):
    value = []
    for _ in range(levels):
        value = [value]
    return value


MADE = {
    "list": lambda: [1, 2.5, "x", True, None],
    "tuple": lambda: (1, 2),
    "nothing": lambda: None,
    "number": lambda: 7,
    "text": lambda: "grün 😀",
    "whole double": lambda: np.array([1.0, 2.0]),
    "nan in list": lambda: [1.0, NAN, INF, -INF],
    "nan in array": lambda: np.array([1.0, NAN, INF]),
    "nan in frame": lambda: pd.DataFrame({"a": [1.0, NAN]}),
    "float32": lambda: np.array([0.1], np.float32),
    "float16": lambda: np.array([0.1], np.float16),
    "large integers": lambda: np.array([2**63 - 1, -(2**63), 2**53 + 1]),
    "unsigned": lambda: np.array([2**64 - 1], np.uint64),
    "huge integer": lambda: [10**30],
    "booleans": lambda: np.array([True, False]),
    "matrix": lambda: np.arange(4).reshape(2, 2),
    "text array": lambda: np.array(["a", "ü"]),
    "bytes array": lambda: np.array([b"a"]),
    "bytes": lambda: [b"\x00\xff"],
    "numpy scalar": lambda: np.float64(1.5),
    "scalars in list": lambda: [np.int64(1), np.float32(0.5)],
    "datetime array": lambda: np.array(["2024-01-01T00:00:00"], "datetime64[ns]"),
    "frame": lambda: pd.DataFrame({"a": [1, 2], "b": ["x", None]}),
    "frame with index": lambda: pd.DataFrame({"a": [1]}, index=["row"]),
    "frame of times": lambda: pd.DataFrame({"t": pd.to_datetime(["2024-01-01T12:00:00", None])}),
    "nullable integers": lambda: pd.DataFrame({"n": pd.array([1, None], "Int64")}),
    "categories": lambda: pd.DataFrame({"c": pd.Categorical(["x", "y"])}),
    "series": lambda: pd.Series([1, 2]),
    "named series": lambda: pd.Series([1, 2], name="score"),
    "numbered columns": lambda: pd.DataFrame([[1, 2]]),
    "same column twice": lambda: pd.DataFrame([[1, 2]], columns=["a", "a"]),
    "dict of arrays": lambda: {"label": np.array([1, 2]), "p": np.array([[0.5], [0.25]])},
    "dict with numbers as keys": lambda: {1: "one"},
    "times": lambda: [datetime.datetime(2024, 1, 1, 12), datetime.date(2024, 1, 1)],
    "decimal": lambda: [decimal.Decimal("1.50")],
    "uuid": lambda: [uuid.UUID(int=5)],
    "set": lambda: {1},
    "complex": lambda: [1j],
    "object": object,
    "lone surrogate": lambda: "\ud800",
    "deep": lambda: _deep(20_000),
    "empty": lambda: [],
    "empty frame": lambda: pd.DataFrame({"a": []}),
    "ValueError": lambda: _raise(ValueError("a secret of the row")),
    "KeyError": lambda: _raise(KeyError("a secret of the row")),
    "MlflowException": lambda: _raise(MlflowException("a secret of the row")),
}


class Answers(PythonModel):
    def predict(self, context, model_input, params=None):
        return MADE[model_input.iloc[0, 0]]()


set_model(Answers())
