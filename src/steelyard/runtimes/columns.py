"""A model's input columns, picked from a request's typed rows in the order that the model was built with.

Used by every native runtime. It never converts text to numbers: a column of the wrong kind is a BadRequest.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from steelyard.errors import BadRequest
from steelyard.protocols.inputs import Inputs, Name

_KNOWN_ORDERS = 64  # as many orders of names are remembered; more are worked out each time


class Columns:
    """`features` are the model's input names in its own order; None for one unnamed tensor (rows, width)."""

    def __init__(self, features: list[str | int] | None, width: int | None) -> None:
        self.features: tuple[Name, ...] | None = None if features is None else tuple(features)
        self.width = width if features is None else len(features)
        self._last: tuple[Name, ...] | None = None  # the names seen last, by identity: decoders reuse their tuple
        self._orders: dict[tuple[Name, ...], list[int] | None] = {}

    def matrix(self, inputs: Inputs, dtype: np.dtype[Any]) -> NDArray[Any]:
        """(rows, width), C-contiguous, of `dtype`; the request's own array where it is that already."""
        if inputs.names is self._last and (matrix := inputs.matrix) is not None:
            if matrix.dtype is dtype and matrix.flags.c_contiguous:
                return matrix
            with np.errstate(all="ignore"):
                return np.ascontiguousarray(matrix, dtype=dtype)
        return self._picked(inputs, dtype)

    def arrays(self, inputs: Inputs) -> tuple[NDArray[Any], ...]:
        """One array per feature, in their order."""
        order = self._order(inputs.names)
        return inputs.arrays if order is None else tuple(inputs.arrays[place] for place in order)

    def _picked(self, inputs: Inputs, dtype: np.dtype[Any]) -> NDArray[Any]:
        order = self._order(inputs.names)
        if order is not None:
            arrays = inputs.arrays
            inputs = Inputs((*(self.features or ()),), inputs.rows, None, tuple(arrays[place] for place in order))
        for place, part in enumerate(inputs.parts):
            if part.dtype.kind not in "biuf":
                raise BadRequest(f"The model takes numbers; column '{inputs.names[place]}' has none.")
        try:
            with np.errstate(all="ignore"):
                matrix = inputs.as_matrix(dtype)
        except (ValueError, TypeError):
            raise BadRequest("The model takes rows of numbers, all of the same length.") from None
        if matrix.ndim != 2 or matrix.shape[1] != self.width:
            raise BadRequest(f"The model takes rows of {self.width} numbers.")
        if order is None and self.features is not None:
            self._last = inputs.names
        return matrix

    def _order(self, names: tuple[Name, ...]) -> list[int] | None:
        """Where each feature stands among `names`; None when they stand in the model's own order."""
        if self.features is None or names == self.features:
            return None
        order = self._orders.get(names)
        if order is None:
            places = {name: place for place, name in enumerate(names)}
            order = []
            for feature in self.features:
                if feature not in places:
                    raise BadRequest(f"The model needs column '{feature}', which is missing.", param=str(feature))
                order.append(places[feature])
            if len(self._orders) < _KNOWN_ORDERS:
                self._orders[names] = order
        return order


def refuse_unfit(matrix: NDArray[Any], features: tuple[Name, ...] | None, *, nan: bool, infinite: bool) -> None:
    """BadRequest for the first NaN (infinity) of a float matrix, unless `nan` (`infinite`) is what the model takes."""
    flat = matrix.ravel()
    if (nan and infinite) or math.isfinite(np.vdot(flat, flat)):  # one BLAS call, and right for all but huge numbers
        return
    for fits, found, words in (
        (nan, np.isnan, "no NaN or missing value"),
        (infinite, np.isinf, "no infinity, nor a number beyond its float type"),
    ):
        if not fits and (wrong := found(matrix)).any():
            place = int(wrong.any(axis=0).argmax())
            where = f"column '{features[place]}'" if features and len(features) == matrix.shape[1] else f"input {place}"
            raise BadRequest(f"The model takes {words}; {where} has one.")
