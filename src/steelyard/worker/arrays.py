"""`Inputs` as bytes, for the rows that a proof has the worker predict.

Numbers, booleans and dates cross as their array's memory; everything else value by value, as MessagePack. Nothing is
pickled.
"""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from steelyard.protocols.inputs import Inputs, Name


class _Array(msgspec.Struct, array_like=True):
    dtype: str
    shape: tuple[int, ...]
    memory: bytes = b""
    values: list[Any] | None = None


class _Rows(msgspec.Struct, array_like=True):
    names: list[Name]
    rows: int
    matrix: _Array | None
    parts: list[_Array]
    columnar: bool
    index: list[Any] | None


def pack_inputs(inputs: Inputs) -> bytes:
    """Raises TypeError or OverflowError for values that have no MessagePack form."""
    matrix = None if inputs.matrix is None else _pack(inputs.matrix)
    rows = _Rows(list(inputs.names), inputs.rows, matrix, list(map(_pack, inputs.parts)), inputs.columnar, inputs.index)
    return msgspec.msgpack.encode(rows, enc_hook=_scalar)


def unpack_inputs(data: bytes) -> Inputs:
    """Raises msgspec.MsgspecError or ValueError for anything else than `pack_inputs` wrote."""
    rows = msgspec.msgpack.decode(data, type=_Rows)
    matrix = None if rows.matrix is None else _unpack(rows.matrix)
    return Inputs(tuple(rows.names), rows.rows, matrix, tuple(map(_unpack, rows.parts)), rows.columnar, rows.index)


def _pack(array: NDArray[Any]) -> _Array:
    if array.dtype.kind in "biufcMm":
        return _Array(array.dtype.str, array.shape, memory=array.tobytes())
    return _Array(array.dtype.str, array.shape, values=list(array.ravel()))


def _unpack(packed: _Array) -> NDArray[Any]:
    if packed.values is None:
        return np.frombuffer(bytearray(packed.memory), dtype=packed.dtype).reshape(packed.shape)
    array = np.empty(len(packed.values), dtype=packed.dtype)
    for place, value in enumerate(packed.values):  # one by one: numpy would take equal lists for one more axis
        array[place] = value
    return array.reshape(packed.shape)


def _scalar(value: Any) -> Any:
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} cannot be sent to a worker")
