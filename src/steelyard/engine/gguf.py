"""Reader of the GGUF file format: metadata, tensor table, and the blocks that become float32.

`gguf_checkpoint.py` calls it. It maps the file and parses only the header; a tensor's bytes are touched when it is
read. It knows no model: names and layouts are returned as the file has them. Every malformed file, truncated or
hostile, ends in ModelLoadError.
"""

from __future__ import annotations

import math
import mmap
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from steelyard.engine.checkpoint import FloatArray
from steelyard.errors import ModelLoadError

MAGIC = b"GGUF"
_VERSIONS = (2, 3)
_MAX_DIMENSIONS = 4
_STRING, _ARRAY = 8, 9
_SCALARS = dict(enumerate(("<u1", "<i1", "<u2", "<i2", "<u4", "<i4", "<f4", "?"))) | {10: "<u8", 11: "<i8", 12: "<f8"}

Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class Encoding:
    """How numbers are stored: `elements` of them in each block of `block_bytes`."""

    name: str
    elements: int
    block_bytes: int
    decode: Callable[[Bytes], FloatArray]  # (blocks, block_bytes) -> (blocks, elements)


@dataclass(frozen=True, slots=True)
class TensorInfo:
    shape: tuple[int, ...]  # outermost first, as numpy has it
    encoding: Encoding
    start: int  # byte offset in the file
    size_bytes: int


class GgufFile:
    """A mapped file. `metadata` maps keys to Python values; `tensors` maps names to where they are."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.metadata: dict[str, Any] = {}
        self.tensors: dict[str, TensorInfo] = {}
        try:
            with path.open("rb") as file:
                self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except (OSError, ValueError) as error:  # ValueError: an empty file cannot be mapped
            raise ModelLoadError(f"{path.name} cannot be read: {error}.") from error
        try:
            self._parse()
        except (struct.error, UnicodeDecodeError, OverflowError) as error:
            raise ModelLoadError(f"{path.name} is not a valid GGUF file: its header is damaged or cut off.") from error

    def read(self, name: str) -> FloatArray:
        """One tensor, dequantised to float32. Raises KeyError for an unknown name."""
        info = self.tensors[name]
        raw = np.frombuffer(self._map, np.uint8, info.size_bytes, info.start)
        return info.encoding.decode(raw.reshape(-1, info.encoding.block_bytes)).reshape(info.shape)

    def _parse(self) -> None:
        cursor = _Cursor(self._map)
        if cursor.take(4) != MAGIC:
            raise ModelLoadError(f"{self.path.name} is not a GGUF file.")
        version = cursor.number("<u4")
        if version not in _VERSIONS:
            raise ModelLoadError(f"{self.path.name} has GGUF version {version}; versions 2 and 3 are supported.")
        tensor_count, metadata_count = cursor.number("<u8"), cursor.number("<u8")
        for _ in range(metadata_count):
            key = cursor.string()
            self.metadata[key] = cursor.value(cursor.number("<u4"))
        entries = [self._tensor_entry(cursor) for _ in range(tensor_count)]
        alignment = self.metadata.get("general.alignment", 32)
        if not isinstance(alignment, int) or alignment <= 0:
            raise ModelLoadError(f"{self.path.name} has an alignment of {alignment!r} bytes.")
        data_start = -(-cursor.position // alignment) * alignment
        for name, shape, encoding, offset in entries:
            self.tensors[name] = self._locate(name, shape, encoding, data_start + offset)

    def _tensor_entry(self, cursor: _Cursor) -> tuple[str, tuple[int, ...], Encoding, int]:
        name = cursor.string()
        dimensions = cursor.number("<u4")
        if dimensions > _MAX_DIMENSIONS:
            raise ModelLoadError(f"{self.path.name} has a tensor {name!r} of {dimensions} dimensions.")
        shape = tuple(reversed([cursor.number("<u8") for _ in range(dimensions)]))
        code = cursor.number("<u4")
        if code not in _ENCODINGS:
            known = _UNSUPPORTED.get(code, f"type {code}")
            raise ModelLoadError(
                f"{self.path.name} stores {name} as {known}, which is not supported; supported are "
                f"{', '.join(encoding.name for encoding in _ENCODINGS.values())}."
            )
        return name, shape, _ENCODINGS[code], cursor.number("<u8")

    def _locate(self, name: str, shape: tuple[int, ...], encoding: Encoding, start: int) -> TensorInfo:
        if not shape or shape[-1] % encoding.elements:
            raise ModelLoadError(f"{self.path.name} has a tensor {name!r} of shape {shape} stored as {encoding.name}.")
        size_bytes = math.prod(shape) // encoding.elements * encoding.block_bytes
        if start + size_bytes > len(self._map):
            raise ModelLoadError(f"{self.path.name} is cut off: the tensor {name!r} ends beyond the end of the file.")
        return TensorInfo(shape, encoding, start, size_bytes)


class _Cursor:
    """Reads header values one after the other. Raises struct.error beyond the end."""

    def __init__(self, data: mmap.mmap) -> None:
        self._data = data
        self.position = 0

    def take(self, size: int) -> bytes:
        end = self.position + size
        if end > len(self._data):
            raise struct.error("beyond the end")
        piece = self._data[self.position : end]
        self.position = end
        return piece

    def number(self, dtype: str) -> int:
        return int.from_bytes(self.take(int(dtype[-1])), "little")

    def string(self) -> str:
        return self.take(self.number("<u8")).decode("utf-8")

    def value(self, kind: int) -> Any:
        if kind == _STRING:
            return self.string()
        if kind == _ARRAY:
            return self._array()
        return self._scalars(kind, 1)[0].item()

    def _array(self) -> list[Any]:
        kind, count = self.number("<u4"), self.number("<u8")
        if kind == _ARRAY:
            raise struct.error("nested arrays have no use in a model file")
        if kind == _STRING:
            return self._strings(count)
        values: list[Any] = self._scalars(kind, count).tolist()
        return values

    def _strings(self, count: int) -> list[str]:
        # A vocabulary: a hundred thousand short strings, so the loop keeps everything in local names.
        data, position, end = self._data, self.position, len(self._data)
        length_at = struct.Struct("<Q").unpack_from
        strings: list[str] = []
        for _ in range(count):
            (size,) = length_at(data, position)
            position += 8
            if position + size > end:
                raise struct.error("beyond the end")
            strings.append(data[position : position + size].decode("utf-8"))
            position += size
        self.position = position
        return strings

    def _scalars(self, kind: int, count: int) -> npt.NDArray[Any]:
        if kind not in _SCALARS:
            raise struct.error(f"unknown value type {kind}")
        dtype = np.dtype(_SCALARS[kind])
        return np.frombuffer(self.take(dtype.itemsize * count), dtype)


def _half(blocks: Bytes, start: int) -> FloatArray:
    """The float16 at byte `start` of every block, as a column."""
    return blocks[:, start : start + 2].copy().view("<f2").astype(np.float32)


def _nibbles(packed: Bytes) -> npt.NDArray[np.uint8]:
    """Sixteen bytes to thirty-two numbers: the low halves first, then the high halves."""
    return np.concatenate([packed & 0x0F, packed >> 4], axis=1)


def _decode_q4_0(blocks: Bytes) -> FloatArray:
    return _half(blocks, 0) * (_nibbles(blocks[:, 2:]).astype(np.float32) - 8)


def _decode_q4_1(blocks: Bytes) -> FloatArray:
    weights = _nibbles(blocks[:, 4:]).astype(np.float32)
    weights *= _half(blocks, 0)
    weights += _half(blocks, 2)
    return weights


def _decode_q8_0(blocks: Bytes) -> FloatArray:
    return _half(blocks, 0) * blocks[:, 2:].view(np.int8).astype(np.float32)


def _decode_f32(blocks: Bytes) -> FloatArray:
    return blocks.copy().view("<f4")


def _decode_f16(blocks: Bytes) -> FloatArray:
    return _half(blocks, 0)


def _decode_bf16(blocks: Bytes) -> FloatArray:
    wide = blocks.copy().view("<u2").astype(np.uint32) << 16
    return wide.view(np.float32)


_ENCODINGS: dict[int, Encoding] = {
    0: Encoding("F32", 1, 4, _decode_f32),
    1: Encoding("F16", 1, 2, _decode_f16),
    2: Encoding("Q4_0", 32, 18, _decode_q4_0),
    3: Encoding("Q4_1", 32, 20, _decode_q4_1),
    8: Encoding("Q8_0", 32, 34, _decode_q8_0),
    30: Encoding("BF16", 1, 2, _decode_bf16),
}
_UNSUPPORTED = {
    6: "Q5_0", 7: "Q5_1", 9: "Q8_1", 10: "Q2_K", 11: "Q3_K", 12: "Q4_K", 13: "Q5_K", 14: "Q6_K", 15: "Q8_K",
    16: "IQ2_XXS", 17: "IQ2_XS", 18: "IQ3_XXS", 19: "IQ1_S", 20: "IQ4_NL", 21: "IQ3_S", 22: "IQ2_S", 23: "IQ4_XS",
    24: "I8", 25: "I16", 26: "I32", 27: "I64", 28: "F64", 29: "IQ1_M", 34: "TQ1_0", 35: "TQ2_0", 39: "MXFP4",
}  # fmt: skip
