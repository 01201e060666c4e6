"""What a proof found, as JSON for the cache: a later start reads it and checks a few stored rows instead of proving.

Made and read by the selection, which owns the cache's files. Arrays are stored as dtype, shape and bytes, so that a
row comes back to the last bit.
"""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from steelyard.protocols.inputs import Inputs, Name
from steelyard.runtimes.proof.asking import Case
from steelyard.runtimes.proof.measure import Cost
from steelyard.runtimes.proof.outcome import Outcome, Predict
from steelyard.runtimes.proof.prove import Verdict, compare_cases

FORMAT = 1  # of the record; another one is as good as no record


class StoredArray(msgspec.Struct, frozen=True):
    """`data`: the array's bytes in C order, or MessagePack of its flat values where `dtype` is object."""

    dtype: str
    shape: list[int]
    data: bytes


class Probe(msgspec.Struct, frozen=True, kw_only=True):
    """One call and what the model said. `plain` is MessagePack: JSON would lose NaN."""

    names: list[Name]
    rows: int
    matrix: StoredArray | None
    parts: list[StoredArray]
    columnar: bool
    plain: bytes
    float_bits: int
    error: str | None


class Tried(msgspec.Struct, frozen=True, kw_only=True):
    """One candidate: its verdict, and its cost if it was measured."""

    runtime: str
    verdict: Verdict
    cost: Cost | None = None


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """`versions` of the platform and of the libraries that took part: with others the proof must be repeated."""

    runtime: str
    cost: Cost
    row_wise: bool
    reason: str
    tried: list[Tried]
    versions: dict[str, str]
    probes: list[Probe]
    format: int = FORMAT

    @property
    def sentence(self) -> str:
        """«chose onnx: 14 µs for one row, …; treelite refused: 3 of 2,048 rows differ at 1e-3»."""
        own = [f"{self.reason}, {item.verdict.reason}" for item in self.tried if item.runtime == self.runtime]
        others = [
            f"{item.runtime} {item.verdict.reason}"
            for item in self.tried
            if item.runtime != self.runtime and not item.verdict.equal
        ]
        return "; ".join((own or [self.reason]) + others)


def encode_record(record: Record) -> bytes:
    return msgspec.json.format(msgspec.json.encode(record))


def decode_record(data: bytes, versions: dict[str, str]) -> Record | None:
    """None when it is of another format or other versions, or damaged: prove again."""
    try:
        record = msgspec.json.decode(data, type=Record)
    except msgspec.MsgspecError:
        return None
    return record if record.format == FORMAT and record.versions == versions else None


def store_probes(cases: list[Case]) -> list[Probe]:
    """Those that can be stored; values without a MessagePack form are left out."""
    probes = []
    for case in cases:
        try:
            probes.append(_store(case))
        except (TypeError, OverflowError, NotImplementedError, msgspec.MsgspecError):
            continue
    return probes


def check_probes(record: Record, candidate: Predict) -> Verdict:
    """Compares a candidate with what the record stored."""
    return compare_cases([_load(probe) for probe in record.probes], candidate)


def _store(case: Case) -> Probe:
    inputs, expected = case.inputs, case.expected
    return Probe(
        names=list(inputs.names),
        rows=inputs.rows,
        matrix=None if inputs.matrix is None else _pack(inputs.matrix),
        parts=[_pack(part) for part in inputs.parts],
        columnar=inputs.columnar,
        plain=msgspec.msgpack.encode(expected.plain),
        float_bits=expected.float_bits,
        error=expected.error,
    )


def _load(probe: Probe) -> Case:
    matrix = None if probe.matrix is None else _unpack(probe.matrix)
    parts = tuple(_unpack(part) for part in probe.parts)
    inputs = Inputs(tuple(probe.names), probe.rows, matrix, parts, probe.columnar)
    return Case(inputs, Outcome(msgspec.msgpack.decode(probe.plain), probe.float_bits, probe.error))


def _pack(array: NDArray[Any]) -> StoredArray:
    if array.dtype == object:
        return StoredArray("object", list(array.shape), msgspec.msgpack.encode(array.ravel().tolist()))
    return StoredArray(array.dtype.str, list(array.shape), np.ascontiguousarray(array).tobytes())


def _unpack(stored: StoredArray) -> NDArray[Any]:
    if stored.dtype == "object":
        values = msgspec.msgpack.decode(stored.data)
        array = np.empty(len(values), dtype=object)
        array[:] = values
        return array.reshape(stored.shape)
    return np.frombuffer(stored.data, dtype=stored.dtype).reshape(stored.shape)
