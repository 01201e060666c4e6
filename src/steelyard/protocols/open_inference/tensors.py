"""One input tensor's data, from JSON or from the binary tail, as an array of its datatype and shape.

Called by `decode.py` for every input. What the datatype cannot hold exactly is refused with the tensor's name: never
rounded, wrapped or cut. Sizes are checked against the shape before anything is read by them.
"""

from __future__ import annotations

from itertools import chain
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from steelyard.errors import InvalidParameter
from steelyard.protocols.mlflow.coerce import objects
from steelyard.protocols.open_inference.datatypes import BOOL, BYTES, DTYPES, NAMES
from steelyard.protocols.open_inference.envelope import InputTensor
from steelyard.protocols.strict_json import json_type

_MAX_RANK = 32  # numpy's own, before version 2
_LENGTH_BYTES = 4  # before each element of binary BYTES
_NONE = type(None)
_NUMBERS: frozenset[type] = frozenset((float, int, _NONE))
_BOOLEANS: frozenset[type] = frozenset((bool, _NONE))
_TEXTS: frozenset[type] = frozenset((str, _NONE))
_FP64 = DTYPES["FP64"]


def refuse(name: str, reason: str) -> InvalidParameter:
    """The error for a fault of one input: one sentence that names it."""
    return InvalidParameter(f"Input '{name[:100]}' {reason}.", param=name)


def read_tensors(inputs: list[InputTensor], tail: bytes | memoryview) -> list[NDArray[Any]]:
    """One array per input. Numeric dtypes, or objects: BYTES are str (JSON), bytes (binary) or None (null), integers
    and booleans are objects where JSON has a null among them. Raises InvalidParameter."""
    arrays = []
    start = 0
    for tensor in inputs:
        parameters = tensor.parameters
        shape = _shape(tensor)
        if parameters and "binary_data_size" in parameters:
            size = _binary_size(tensor, parameters["binary_data_size"], len(tail) - start)
            arrays.append(_from_binary(tensor, shape, tail[start : start + size]))
            start += size
        else:
            arrays.append(_from_json(tensor, shape))
    if start != len(tail):
        raise InvalidParameter(
            f"The body has {len(tail) - start} bytes of binary data that belong to no input.", param="inputs"
        )
    return arrays


def _shape(tensor: InputTensor) -> tuple[int, ...]:
    shape = tensor.shape
    if not shape:
        raise refuse(tensor.name, "has an empty shape; the first dimension is the number of rows")
    if len(shape) > _MAX_RANK:
        raise refuse(tensor.name, f"has more than {_MAX_RANK} dimensions")
    smallest = min(shape)
    if smallest <= 0:
        raise refuse(tensor.name, "has a negative size in its shape" if smallest else "holds no values")
    return tuple(shape)


# --- JSON


def _from_json(tensor: InputTensor, shape: tuple[int, ...]) -> NDArray[Any]:
    name, data = tensor.name, tensor.data
    if not isinstance(data, list):
        raise refuse(name, _no_list(tensor))
    values = _flat(name, data, shape)
    if len(values) != prod(shape):
        raise refuse(name, f"has {len(values)} values for the shape {list(shape)}")
    dtype = DTYPES.get(tensor.datatype)
    if dtype is None:
        array = _texts(tensor, values)
    elif dtype.kind == "f":
        array = _floats(name, values, dtype, tensor.datatype)
    elif tensor.datatype == BOOL:
        array = _booleans(name, values)
    else:
        array = _integers(name, values, dtype, tensor.datatype)
    return array.reshape(shape)


def _no_list(tensor: InputTensor) -> str:
    if tensor.parameters and "shared_memory_region" in tensor.parameters:
        return "is in shared memory, which is not supported; send its data"
    if tensor.data is None:
        return "has no data"
    return f"must have an array as its data, not {json_type(tensor.data)}"


def _flat(name: str, data: list[Any], shape: tuple[int, ...]) -> list[Any]:
    """The protocol allows flat data and data that is nested as the shape says."""
    if not data or type(data[0]) is not list:
        return data
    if len(data) != shape[0]:
        raise refuse(name, f"has {len(data)} rows for the shape {list(shape)}")
    for size in shape[1:]:
        if any(type(item) is not list or len(item) != size for item in data):
            raise refuse(name, f"is not nested as its shape {list(shape)} says")
        data = list(chain.from_iterable(data))
    return data


def _floats(name: str, values: list[Any], dtype: np.dtype[Any], datatype: str) -> NDArray[Any]:
    _expect(name, values, _NUMBERS, "a number")
    try:
        array = np.array(values, dtype=_FP64)
    except OverflowError:
        raise refuse(name, f"holds a number that is out of range for {datatype}") from None
    if dtype is _FP64:
        return array
    with np.errstate(over="ignore"):
        result = array.astype(dtype)
    if np.any(np.isinf(result)):  # JSON has no infinity, so it was a number
        raise refuse(name, f"holds a number that is out of range for {datatype}")
    return result


def _integers(name: str, values: list[Any], dtype: np.dtype[Any], datatype: str) -> NDArray[Any]:
    types = _expect(name, values, _NUMBERS, "an integer")
    if float in types:
        for number, value in enumerate(values):
            if type(value) is float and not value.is_integer():
                raise refuse(name, f"holds a fraction (value {number}), which {datatype} cannot")
        values = [None if value is None else int(value) for value in values]
    present = [value for value in values if value is not None] if _NONE in types else values
    limits = np.iinfo(dtype)
    if present and not (limits.min <= min(present) and max(present) <= limits.max):
        raise refuse(name, f"holds a number that is out of range for {datatype}")
    return objects(values, len(values)) if _NONE in types else np.array(values, dtype=dtype)


def _booleans(name: str, values: list[Any]) -> NDArray[Any]:
    types = _expect(name, values, _BOOLEANS, "true or false")
    return objects(values, len(values)) if _NONE in types else np.array(values, dtype=np.bool_)


def _texts(tensor: InputTensor, values: list[Any]) -> NDArray[Any]:
    if tensor.datatype != BYTES:
        raise _unknown(tensor)
    _expect(tensor.name, values, _TEXTS, "a string")
    return objects(values, len(values))


def _expect(name: str, values: list[Any], allowed: frozenset[type], noun: str) -> set[type]:
    types = set(map(type, values))
    if types <= allowed:
        return types
    number = next(number for number, value in enumerate(values) if type(value) not in allowed)
    raise refuse(name, f"must hold {noun} at value {number}, not {json_type(values[number])}")


def _unknown(tensor: InputTensor) -> InvalidParameter:
    return refuse(tensor.name, f"has the unknown datatype '{tensor.datatype[:20]}'; known are {NAMES}")


# --- binary


def _binary_size(tensor: InputTensor, size: Any, left: int) -> int:
    if not isinstance(size, int) or isinstance(size, bool) or size < 0:
        raise refuse(tensor.name, "must have a whole number of bytes as its binary_data_size")
    if tensor.data is not None:
        raise refuse(tensor.name, "has both data and a binary_data_size")
    if size > left:
        raise refuse(
            tensor.name,
            f"has a binary_data_size of {size} bytes, but the body has {max(left, 0)} left after the JSON; the header"
            " Inference-Header-Content-Length says where the JSON ends",
        )
    return size


def _from_binary(tensor: InputTensor, shape: tuple[int, ...], data: bytes | memoryview) -> NDArray[Any]:
    name = tensor.name
    count = prod(shape)
    dtype = DTYPES.get(tensor.datatype)
    if dtype is None:
        if tensor.datatype != BYTES:
            raise _unknown(tensor)
        return _elements(name, data, count).reshape(shape)
    expected = count * dtype.itemsize
    if len(data) != expected:
        raise refuse(
            name, f"has {len(data)} bytes of binary data for {tensor.datatype} of shape {list(shape)}, not {expected}"
        )
    if tensor.datatype == BOOL:
        bytes_ = np.frombuffer(data, dtype=np.uint8)
        if bytes_.max() > 1:
            raise refuse(name, "holds a byte that is neither 0 nor 1, which BOOL cannot")
        return bytes_.view(np.bool_).reshape(shape)
    array = np.frombuffer(data, dtype=dtype)
    if not array.flags.aligned:  # native libraries read it by pointer
        array = array.copy()
    return array.reshape(shape)


def _elements(name: str, data: bytes | memoryview, count: int) -> NDArray[Any]:
    size = len(data)
    if count * _LENGTH_BYTES > size:
        raise refuse(name, f"has {size} bytes of binary data, which cannot hold {count} elements with their lengths")
    whole = bytes(data)
    values = np.empty(count, dtype=object)
    start = 0
    for number in range(count):
        begin = start + _LENGTH_BYTES
        end = begin + int.from_bytes(whole[start:begin], "little")
        if begin > size or end > size:
            raise refuse(name, f"ends within element {number} of its binary data")
        values[number] = whole[begin:end]
        start = end
    if start != size:
        raise refuse(name, f"has {size - start} bytes of binary data after its last element")
    return values
