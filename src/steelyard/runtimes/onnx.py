"""ONNX graphs in onnxruntime: models of MLflow's onnx flavor, and scikit-learn pipelines that were converted.

Opened by `native.py` from an artifact that `worker/export/onnx.py` wrote. A session runs in the calling thread, with
no threads of its own that would spin; sessions are safe to run from several threads.

Options: `inputs`: one {"name", "columns": [places] | null, "flat": bool} per graph input (null columns: all as one
matrix), or null: as MLflow feeds the graph; `answer`: "frame" (a table with one column per output, as MLflow makes of a
table), "tensors" (a dict), or one output's place with `dtype` and `flat`; `session`: the flavor's own session options.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from numpy.typing import NDArray
from onnxruntime.capi import onnxruntime_pybind11_state as faults

from steelyard.errors import BadRequest, ModelFailed, ModelLoadError
from steelyard.protocols.inputs import Inputs, Outputs, Records
from steelyard.runtimes.columns import Columns

_FLOATS: dict[str, np.dtype[Any]] = {"tensor(float)": np.dtype(np.float32), "tensor(double)": np.dtype(np.float64)}
_NUMBERS: dict[str, np.dtype[Any]] = _FLOATS | {
    "tensor(int64)": np.dtype(np.int64),
    "tensor(int32)": np.dtype(np.int32),
    "tensor(bool)": np.dtype(np.bool_),
}
_TEXT = "tensor(string)"


class OnnxRuntime:
    name = "onnx"

    def __init__(self, columns: Columns, options: dict[str, Any], graph: Path) -> None:
        self._columns = columns
        self._session = _open(graph, options.get("session") or {})
        self._types = {given.name: given.type for given in self._session.get_inputs()}
        self._converted = options["answer"] not in ("frame", "tensors")
        self._inputs: list[dict[str, Any]] = options["inputs"] or self._own_inputs(options["answer"] == "frame")
        self._answer: str | int = options["answer"]
        outputs = self._session.get_outputs()
        if any(not output.type.startswith("tensor(") for output in outputs):
            raise ModelLoadError("The graph has an output that is no tensor.")
        self._outputs = [output.name for output in outputs]
        if isinstance(self._answer, int):
            self._outputs = [self._outputs[self._answer]]
            self._dtype = np.dtype(options["dtype"])
            self._flat: bool = options["flat"]
        self._run = self._session.run

    def predict(self, inputs: Inputs) -> Outputs:
        feed = self._feed(inputs)
        try:
            results = self._run(self._outputs, feed)
        except (faults.InvalidArgument, faults.Fail, ValueError, TypeError, RuntimeError) as error:
            if isinstance(error, faults.InvalidArgument) and not self._converted:
                raise BadRequest("The rows do not have the types and shapes that the model's graph takes.") from None
            raise ModelFailed("onnxruntime failed to predict these rows.") from None
        if self._answer == "tensors":
            return dict(zip(self._outputs, results, strict=True))
        if self._answer == "frame":
            arrays = tuple(np.asarray(result).reshape(-1) for result in results)
            if any(len(array) != inputs.rows for array in arrays):
                raise ModelFailed("The model gives another number of answers than rows.")
            return Records(tuple(self._outputs), arrays)
        result: NDArray[Any] = results[0]
        if self._flat:
            result = result.reshape(-1)
        return result if result.dtype == self._dtype else result.astype(self._dtype)

    def _own_inputs(self, columnar: bool) -> list[dict[str, Any]]:
        """As MLflow feeds a graph: a table goes into a sole input whole, else each input is a column or tensor."""
        features = self._columns.features
        if features is None or (columnar and len(self._types) == 1):
            return [{"name": name, "columns": None} for name in self._types]
        if absent := [name for name in self._types if name not in features]:
            raise ModelLoadError(f"The model's signature has no column for the graph's input '{absent[0]}'.")
        return [{"name": name, "columns": [features.index(name)], "flat": True} for name in self._types]

    def _feed(self, inputs: Inputs) -> dict[str, NDArray[Any]]:
        if not self._converted and not inputs.columnar and len(inputs.parts) == 1 and len(self._inputs) == 1:
            return {self._inputs[0]["name"]: self._fit(inputs.parts[0], self._inputs[0]["name"])}
        feed = {}
        arrays: tuple[NDArray[Any], ...] | None = None
        for given in self._inputs:
            name: str = given["name"]
            if given["columns"] is None:
                feed[name] = self._matrix(inputs, name)
                continue
            if arrays is None:
                arrays = self._columns.arrays(inputs)
            column = arrays[given["columns"][0]]
            feed[name] = self._fit(column if given["flat"] else column.reshape(-1, 1), name)
        return feed

    def _matrix(self, inputs: Inputs, name: str) -> NDArray[Any]:
        """Every column as one; integers stay integers where all are."""
        wanted = self._types[name]
        if self._converted:
            return self._columns.matrix(inputs, _NUMBERS[wanted])
        parts = self._columns.arrays(inputs)
        if wanted == _TEXT:
            return np.stack([part.astype(object) for part in parts], axis=1)
        return self._fit(self._columns.matrix(inputs, np.result_type(*parts)), name)

    def _fit(self, array: NDArray[Any], name: str) -> NDArray[Any]:
        """As MLflow does: doubles become floats where the graph takes floats, and nothing else is converted.
        A converted graph takes what scikit-learn would convert too."""
        wanted = self._types[name]
        if wanted == _TEXT:
            return array if array.dtype == object else array.astype(object)
        if self._converted:
            if array.dtype.kind not in "biuf":
                raise BadRequest("The model takes numbers in a column that has none.")
            return np.asarray(array.astype(_NUMBERS[wanted], copy=False))
        if wanted == "tensor(float)" and array.dtype == np.float64:
            with np.errstate(over="ignore"):
                return array.astype(np.float32)
        return array

    def close(self) -> None:
        """The session gives its memory back when it is forgotten."""
        self._run = _closed


def _closed(*_: object) -> Any:
    raise RuntimeError("closed")


def _open(graph: Path, wanted: dict[str, Any]) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1  # more requests at once use more cores; more threads for one would only spin
    options.inter_op_num_threads = 1
    options.log_severity_level = 4
    options.enable_cpu_mem_arena = False  # rows are small, and an arena keeps the largest batch's memory for ever
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    if (level := wanted.get("graph_optimization_level")) is not None:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel(level)
    for key, value in (wanted.get("extra_session_config") or {}).items():
        options.add_session_config_entry(str(key), str(value))
    try:
        return onnxruntime.InferenceSession(str(graph), sess_options=options, providers=["CPUExecutionProvider"])
    except Exception:  # onnxruntime has one class per status, none of them a common base
        raise ModelLoadError("onnxruntime cannot open the model's graph.") from None
