"""Graphs for onnxruntime: the file of MLflow's onnx flavor, or a scikit-learn model converted by skl2onnx.

A conversion keeps double precision where the converters can; whether that was enough, the proof says. Raises Refused
when a graph cannot be made.
"""

from __future__ import annotations

import os
import shutil
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from steelyard.contracts.artifacts import Artifact
from steelyard.worker.export.pipeline import unwrap
from steelyard.worker.export.source import Refused, Source

_GRAPH = "model.onnx"


def own_graph(source: Source, folder: Path) -> Artifact:
    """The flavor's own file, linked, with its external data if it has any."""
    graph = source.folder / str(source.flavor.get("data") or _GRAPH)
    if not graph.is_file():
        raise Refused("Its graph is not where its MLmodel says.")
    for item in graph.parent.iterdir() if source.flavor.get("save_as_external_data") else [graph]:
        if item.is_file() and item.name not in ("MLmodel", "conda.yaml", "python_env.yaml", "requirements.txt"):
            _link(item, folder / item.name)
    options = {
        "inputs": None,
        "answer": "frame" if source.columnar else "tensors",
        "session": source.flavor.get("onnx_session_options") or {},
    }
    return Artifact(runtime="onnx", features=source.features, files={"model": graph.name}, options=options)


def _link(item: Path, to: Path) -> None:
    try:
        os.link(item, to)
    except OSError:
        shutil.copy2(item, to)


def converted(source: Source, folder: Path) -> Artifact:
    """A scikit-learn model or pipeline, classifier or regressor."""
    if source.features is not None and not source.columnar:
        raise Refused("It takes named tensors.")
    try:
        import skl2onnx  # noqa: PLC0415
    except ImportError:
        raise Refused("The converter to ONNX does not load beside the model's own packages.") from None
    model = unwrap(source.model)
    by_column = source.features is not None and _chooses_columns(model)
    inputs, types = _inputs(source, model, by_column)
    place, flat, dtype = _answer(source, model)
    classifies = hasattr(model, "classes_")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        settings = {id(model): {"zipmap": False}} if classifies else None
        graph = skl2onnx.to_onnx(model, initial_types=types, options=settings)
    (folder / _GRAPH).write_bytes(graph.SerializeToString())
    options = {"inputs": inputs, "answer": place, "flat": flat, "dtype": dtype, "session": {}}
    options["width"] = None if source.features is not None else model.n_features_in_
    return Artifact(runtime="onnx", features=source.features, files={"model": _GRAPH}, options=options)


def _chooses_columns(model: Any) -> bool:
    first = model.steps[0][1] if type(model).__name__ == "Pipeline" else model
    return type(first).__name__ == "ColumnTransformer"


def _inputs(source: Source, model: Any, by_column: bool) -> tuple[list[dict[str, Any]], list[tuple[str, Any]]]:
    from skl2onnx.common import data_types as kinds  # noqa: PLC0415

    if not by_column:
        width = len(source.features) if source.features is not None else int(model.n_features_in_)
        if "object" in source.dtypes:
            raise Refused("It has text columns, and nothing in it that encodes them.")
        return [{"name": "rows", "columns": None, "flat": False}], [("rows", kinds.DoubleTensorType([None, width]))]
    encoded = _known_categories(model)
    inputs, types = [], []
    for place, (feature, dtype) in enumerate(zip(source.features or (), source.dtypes, strict=True)):
        kind = kinds.StringTensorType if dtype == "object" else kinds.DoubleTensorType
        if feature in encoded and np.dtype(dtype).kind in "biu":  # only an encoder tells integers from doubles
            kind = kinds.Int64TensorType
        inputs.append({"name": str(feature), "columns": [place], "flat": False})
        types.append((str(feature), kind([None, 1])))
    return inputs, types


def _answer(source: Source, model: Any) -> tuple[int, bool, str]:
    """Which output pyfunc's answer is, whether it is one number per row, and its dtype."""
    if source.predict not in ("predict", "predict_proba"):
        raise Refused(f"The {source.predict} of {type(model).__name__} has no graph.")
    answer = np.asarray(getattr(model, source.predict)(_example(source, model)))
    if answer.dtype.kind not in "biufUO" or answer.ndim > 2:
        raise Refused("Its answers are neither numbers nor text.")
    dtype = "object" if answer.dtype.kind in "UO" else answer.dtype.str
    return int(source.predict == "predict_proba"), answer.ndim == 1, dtype


def _example(source: Source, model: Any) -> Any:
    """One row that the model takes: zeros, and categories that it knows."""
    if source.features is None:
        return np.zeros((1, model.n_features_in_), dtype=source.joint_dtype)
    import pandas as pd  # noqa: PLC0415

    known = _known_categories(model)
    columns = {}
    for feature, dtype in zip(source.features, source.dtypes, strict=True):
        value = known.get(feature, "" if dtype == "object" else 0)
        columns[feature] = np.array([value], dtype=np.dtype(dtype))
    return pd.DataFrame(columns)


def _known_categories(model: Any) -> dict[Any, Any]:
    first = model.steps[0][1] if type(model).__name__ == "Pipeline" else model
    known: dict[Any, Any] = {}
    for _, fitted, chosen in getattr(first, "transformers_", ()):
        encoder = fitted.steps[-1][1] if type(fitted).__name__ == "Pipeline" else fitted
        categories = getattr(encoder, "categories_", None)
        if categories is not None and isinstance(chosen, (list, tuple, np.ndarray)):
            known.update({name: values[0] for name, values in zip(chosen, categories, strict=False) if len(values)})
    return known
