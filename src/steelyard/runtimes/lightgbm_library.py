"""LightGBM's C API: trees evaluated in double precision, one row through a prepared call, many through a plain one.

Used where the walk in C is not to be had: by the `lightgbm` runtime with the model environment's own library, and by
the `forest` runtime with the platform's. It knows nothing of labels or objectives, and imports no lightgbm.
"""

from __future__ import annotations

import ctypes
from collections import deque
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from steelyard.errors import ModelFailed, ModelLoadError

NORMAL, RAW, LEAVES = 0, 1, 2  # what a prediction is: after the objective, before it, or each tree's leaf number
_FLOAT64 = 1
_ROW_MAJOR = 1
_ONE_THREAD = b"num_threads=1 predict_disable_shape_check=true"


class Trees:
    """A loaded model text. Thread-safe: every call has a slot of its own, with a row buffer that never moves.

    `outputs` is how many numbers one row gives. Raises ModelLoadError when the library or the text cannot be read.
    """

    def __init__(self, library: str, model: Path, kind: int) -> None:
        self._library = _open(library)
        self._kind = kind
        self._handle = ctypes.c_void_p()
        iterations = ctypes.c_int()
        self._load(
            self._library.LGBM_BoosterCreateFromModelfile(
                str(model).encode(), ctypes.byref(iterations), ctypes.byref(self._handle)
            )
        )
        features = ctypes.c_int()
        self._load(self._library.LGBM_BoosterGetNumFeature(self._handle, ctypes.byref(features)))
        self.features = features.value
        length = ctypes.c_int64()
        self._load(
            self._library.LGBM_BoosterCalcNumPredict(self._handle, 1, kind, 0, -1, ctypes.byref(length)),
        )
        self.outputs = length.value
        self._slots: deque[_Slot] = deque()
        self._closed = False

    def predict(self, matrix: NDArray[Any]) -> NDArray[np.float64]:
        """(rows, features) of any real dtype → (rows, outputs). Raises ModelFailed."""
        if self._closed or matrix.shape[1] != self.features:  # the library would read past the row
            raise ModelFailed("The model is closed." if self._closed else "The model takes another number of columns.")
        return self._one(matrix) if len(matrix) == 1 else self._many(matrix)

    def _one(self, matrix: NDArray[Any]) -> NDArray[np.float64]:
        try:
            slot = self._slots.pop()
        except IndexError:
            slot = self._new_slot()
        slot.row[...] = matrix
        failed = self._library.LGBM_BoosterPredictForMatSingleRowFast(*slot.arguments)
        result = slot.result.copy()
        self._slots.append(slot)
        if failed:
            raise self._failure()
        return result

    def _many(self, matrix: NDArray[Any]) -> NDArray[np.float64]:
        rows = np.ascontiguousarray(matrix, dtype=np.float64)
        result = np.empty((len(rows), self.outputs))
        if not len(rows):
            return result
        written = ctypes.c_int64()
        failed = self._library.LGBM_BoosterPredictForMat(
            self._handle,
            ctypes.c_void_p(rows.ctypes.data),
            _FLOAT64,
            len(rows),
            self.features,
            _ROW_MAJOR,
            self._kind,
            0,
            -1,
            _ONE_THREAD,
            ctypes.byref(written),
            ctypes.c_void_p(result.ctypes.data),
        )
        if failed:
            raise self._failure()
        return result

    def close(self) -> None:
        """No prediction may be running. Safe to call twice."""
        if self._closed:
            return
        self._closed = True
        while self._slots:
            self._library.LGBM_FastConfigFree(self._slots.pop().config)
        self._library.LGBM_BoosterFree(self._handle)

    def _new_slot(self) -> _Slot:
        config = ctypes.c_void_p()
        if self._library.LGBM_BoosterPredictForMatSingleRowFastInit(
            self._handle, self._kind, 0, -1, _FLOAT64, self.features, _ONE_THREAD, ctypes.byref(config)
        ):
            raise self._failure()
        return _Slot(config, self.features, self.outputs)

    def _load(self, failed: int) -> None:
        if failed:
            raise ModelLoadError("LightGBM cannot read the model's trees.")

    def _failure(self) -> ModelFailed:
        return ModelFailed("LightGBM failed to predict these rows.")


class _Slot:
    """One prepared call. The arrays keep their addresses for as long as the slot lives."""

    __slots__ = ("arguments", "config", "result", "row", "written")

    def __init__(self, config: ctypes.c_void_p, features: int, outputs: int) -> None:
        self.config = config
        self.row = np.empty((1, features))
        self.result = np.empty((1, outputs))
        self.written = ctypes.c_int64()
        self.arguments = (
            config,
            ctypes.c_void_p(self.row.ctypes.data),
            ctypes.byref(self.written),
            ctypes.c_void_p(self.result.ctypes.data),
        )


def _open(library: str) -> ctypes.CDLL:
    try:
        return ctypes.CDLL(library)
    except OSError:
        raise ModelLoadError(f"The library '{library}' cannot be loaded.") from None
