"""XGBoost's C API: prediction straight from an array, without a DMatrix and without the Python package.

Used by the `xgboost` runtime with the model environment's own library, so that a model is evaluated by the very code
that its users know. It knows nothing of labels.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
from collections import deque
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from steelyard.errors import ModelFailed, ModelLoadError

_F4 = np.dtype(np.float32)


class Booster:
    """A loaded booster. Thread-safe: XGBoost allows in-place predictions side by side, and each call has its own slot.

    `iterations` is the end of the range of rounds that count, 0 for all; `missing` the value that means missing.
    """

    def __init__(self, library: str, model: Path, iterations: int, missing: float) -> None:
        try:
            self._library = ctypes.CDLL(library)
        except OSError:
            raise ModelLoadError(f"The library '{library}' cannot be loaded.") from None
        self._library.XGBoosterPredictFromDense.argtypes = None  # type: ignore[assignment]
        self._handle = ctypes.c_void_p()
        self._closed = False
        self._check(self._library.XGBoosterCreate(None, 0, ctypes.byref(self._handle)))
        self._check(self._library.XGBoosterLoadModel(self._handle, str(model).encode()))
        self._check(self._library.XGBoosterSetParam(self._handle, b"nthread", b"1"))
        features = ctypes.c_uint64()
        self._check(self._library.XGBoosterGetNumFeature(self._handle, ctypes.byref(features)))
        self.features = features.value
        self._config = json.dumps(  # NaN is written as XGBoost's JSON reader takes it
            {
                "type": 0,
                "training": False,
                "iteration_begin": 0,
                "iteration_end": iterations,
                "missing": missing,
                "strict_shape": False,
                "cache_id": 0,
            }
        ).encode()
        self._slots: deque[_Slot] = deque()

    def predict(self, matrix: NDArray[Any]) -> NDArray[np.float32]:
        """(rows, features) → (rows,) or (rows, scores). Raises ModelFailed."""
        if self._closed or matrix.shape[1] != self.features:
            raise ModelFailed("The model is closed." if self._closed else "The model takes another number of columns.")
        if len(matrix) == 1:
            try:
                slot = self._slots.pop()
            except IndexError:
                slot = _Slot(self._proxy(), self.features)
            slot.row[...] = matrix
            result = self._call(slot.interface, slot.proxy)
            self._slots.append(slot)
            return result
        rows = np.ascontiguousarray(matrix, dtype=_F4)
        proxy = self._proxy()
        try:
            return self._call(_interface(rows), proxy)
        finally:
            self._library.XGDMatrixFree(proxy)

    def _call(self, interface: bytes, proxy: ctypes.c_void_p) -> NDArray[np.float32]:
        shape = ctypes.POINTER(ctypes.c_uint64)()
        dimensions = ctypes.c_uint64()
        scores = ctypes.c_void_p()
        failed = self._library.XGBoosterPredictFromDense(
            self._handle,
            interface,
            self._config,
            proxy,
            ctypes.byref(shape),
            ctypes.byref(dimensions),
            ctypes.byref(scores),
        )
        if failed:
            raise ModelFailed("XGBoost failed to predict these rows.")
        result = np.empty(shape[: dimensions.value], dtype=_F4)
        if result.size:
            ctypes.memmove(result.ctypes.data, scores, result.nbytes)  # the library's copy is this thread's own
        return result

    def _proxy(self) -> ctypes.c_void_p:
        """A frame for one call's array, made once per slot instead of by the library at every call."""
        proxy = ctypes.c_void_p()
        self._check(self._library.XGProxyDMatrixCreate(ctypes.byref(proxy)))
        return proxy

    def close(self) -> None:
        """No prediction may be running. Safe to call twice."""
        if self._closed:
            return
        self._closed = True
        with contextlib.suppress(IndexError):
            while True:
                self._library.XGDMatrixFree(self._slots.pop().proxy)
        self._library.XGBoosterFree(self._handle)

    def _check(self, failed: int) -> None:
        if failed:
            raise ModelLoadError("XGBoost cannot read the model's booster.")


class _Slot:
    """One caller's row buffer; its address is in `interface`, so it never moves."""

    __slots__ = ("interface", "proxy", "row")

    def __init__(self, proxy: ctypes.c_void_p, features: int) -> None:
        self.proxy = proxy
        self.row = np.empty((1, features), dtype=_F4)
        self.interface = _interface(self.row)


def _interface(rows: NDArray[np.float32]) -> bytes:
    description = {"data": [rows.ctypes.data, True], "shape": list(rows.shape), "typestr": "<f4", "version": 3}
    return json.dumps(description).encode()
