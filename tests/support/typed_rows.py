"""Signatures, rows that fit them and the bodies that clients write of them, and what makes two `Inputs` the same."""

from __future__ import annotations

import base64
import datetime
import json
from collections.abc import Iterator
from typing import Any

import numpy as np
from hypothesis import strategies as st

from steelyard.protocols.inputs import Inputs
from steelyard.protocols.mlflow.scalars import FLOAT32_MAX
from steelyard.protocols.mlflow.schema import (
    AnyValue,
    ArrayOf,
    Column,
    ColumnType,
    InputSchema,
    MapOf,
    ObjectOf,
    Property,
    Tensor,
)

FLOATS = st.floats(allow_nan=False, allow_infinity=False)
LONGS = st.integers(-(2**63), 2**63 - 1)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=5)
MOMENTS = st.datetimes(datetime.datetime(1700, 1, 1), datetime.datetime(2200, 1, 1))
VALUES: dict[ColumnType, Any] = {
    ColumnType.DOUBLE: FLOATS | LONGS | st.integers(-(10**30), 10**30),
    ColumnType.FLOAT: st.floats(-FLOAT32_MAX, FLOAT32_MAX) | LONGS,
    ColumnType.LONG: LONGS | st.integers(-3, 3).map(float),
    ColumnType.INTEGER: st.integers(-(2**31), 2**31 - 1),
    ColumnType.BOOLEAN: st.booleans(),
    ColumnType.STRING: TEXTS,
    ColumnType.BINARY: st.binary(max_size=5).map(lambda raw: base64.b64encode(raw).decode()),
    ColumnType.DATETIME: MOMENTS.map(datetime.datetime.isoformat),
}
NESTED: list[tuple[Any, Any]] = [
    (AnyValue(), TEXTS | LONGS | st.lists(TEXTS, max_size=2)),
    (ArrayOf(ColumnType.DOUBLE), st.lists(FLOATS | st.none(), max_size=3)),
    (ArrayOf(ArrayOf(ColumnType.LONG)), st.lists(st.lists(LONGS, max_size=2), max_size=2)),
    (MapOf(ColumnType.STRING), st.dictionaries(TEXTS, TEXTS, max_size=2)),
    (
        ObjectOf((Property("a", ColumnType.LONG), Property("b", ColumnType.STRING, required=False))),
        st.fixed_dictionaries({"a": LONGS}, optional={"b": TEXTS | st.none()}),
    ),
]
NULLABLE = set(ColumnType) - {ColumnType.INTEGER, ColumnType.LONG, ColumnType.BOOLEAN, ColumnType.OTHER}
ROWS = list[list[Any]]


@st.composite
def tables(draw: st.DrawFn, nested: bool = False) -> tuple[InputSchema, ROWS]:
    """A signature of named columns and up to three rows that fit it; an optional column may be all null."""
    names = draw(st.lists(NAMES, min_size=1, max_size=4, unique=True))
    alike = draw(st.none() | st.sampled_from(list(VALUES)))
    rows, columns, parts = draw(st.integers(1, 3)), [], []
    for name in names:
        required = draw(st.booleans())
        if nested and draw(st.booleans()):
            shape, values = draw(st.sampled_from(NESTED))
            columns.append(Column(name, ColumnType.OTHER, required, shape))
        else:
            kind = alike or draw(st.sampled_from(list(VALUES)))
            columns.append(Column(name, kind, required))
            nulls = kind in NULLABLE or (kind is ColumnType.BOOLEAN and not required)
            values = VALUES[kind] | st.none() if nulls else VALUES[kind]
        absent = not required and draw(st.integers(0, 4)) == 0
        parts.append([None] * rows if absent else draw(st.lists(values, min_size=rows, max_size=rows)))
    return InputSchema(tuple(columns)), [list(row) for row in zip(*parts, strict=True)]


@st.composite
def tensors(draw: st.DrawFn) -> tuple[InputSchema, dict[str, Any]]:
    """A signature of one or two tensors, and their nested lists by name ("" for the unnamed one)."""
    names = draw(st.sampled_from([[None], ["x"], ["x", "y"]]))
    rows, specs, data = draw(st.integers(1, 2)), [], {}
    for name in names:
        rest = draw(st.lists(st.integers(1, 3), max_size=2))
        dtype, values = draw(st.sampled_from(TENSOR_VALUES))
        shape = tuple(draw(st.sampled_from([size, -1])) for size in rest)
        specs.append(Tensor(name, dtype, (-1, *shape)))
        data[name or ""] = draw(lists([rows, *rest], values))
    return InputSchema(tensors=tuple(specs)), data


TENSOR_VALUES: list[tuple[str, Any]] = [
    ("float64", FLOATS | LONGS | st.none()),
    ("float32", st.floats(-FLOAT32_MAX, FLOAT32_MAX) | LONGS | st.none()),
    ("float16", st.floats(-6e4, 6e4)),
    ("int64", LONGS),
    ("int32", st.integers(-(2**31), 2**31 - 1)),
    ("uint8", st.integers(0, 255)),
    ("bool", st.booleans()),
    ("str", TEXTS),
]


def lists(shape: list[int], values: Any) -> Any:
    for size in reversed(shape):
        values = st.lists(values, min_size=size, max_size=size)
    return values


def table_bodies(names: list[str], rows: ROWS) -> Iterator[dict[str, Any]]:
    """The same rows in every JSON format."""
    records = [dict(zip(names, row, strict=True)) for row in rows]
    yield {"dataframe_split": {"columns": names, "data": rows}}
    yield {"dataframe_split": {"index": list(range(len(rows))), "columns": names, "data": rows}}
    yield {"dataframe_records": records}
    yield {"instances": records}
    yield {"inputs": records}
    yield {"inputs": {name: list(part) for name, part in zip(names, zip(*rows, strict=True), strict=True)}}


def tensor_bodies(data: dict[str, Any]) -> Iterator[dict[str, Any]]:
    if len(data) == 1:
        yield {"inputs": next(iter(data.values()))}
        yield {"instances": next(iter(data.values()))}
    if "" not in data:
        yield {"inputs": data}
        if len({len(part) for part in data.values()}) == 1:
            yield {"instances": [dict(zip(data, row, strict=True)) for row in zip(*data.values(), strict=True)]}


WRITERS: list[dict[str, Any]] = [
    {},
    {"separators": (",", ":")},
    {"ensure_ascii": False},
    {"indent": 1},
    {"sort_keys": True},
]


def written(body: Any, style: dict[str, Any]) -> bytes:
    return json.dumps(body, **style).encode()


def same(one: Inputs, other: Inputs) -> None:
    """Bit for bit: names, order, dtypes, layout, values and where they are missing."""
    assert one.names == other.names
    assert list(map(type, one.names)) == list(map(type, other.names))
    assert (one.rows, one.columnar, one.index) == (other.rows, other.columnar, other.index)
    assert (one.matrix is None) == (other.matrix is None)
    if one.matrix is not None and other.matrix is not None:
        assert one.matrix.flags.c_contiguous
        assert other.matrix.flags.c_contiguous
        same_array(one.matrix, other.matrix)
    assert len(one.parts) == len(other.parts)
    for mine, its in zip(one.parts, other.parts, strict=True):
        same_array(mine, its)


def same_array(one: np.ndarray, other: np.ndarray) -> None:
    assert one.dtype == other.dtype
    assert one.shape == other.shape
    if one.dtype.kind == "f":
        missing = np.isnan(one)
        assert np.array_equal(missing, np.isnan(other))
        assert one[~missing].tobytes() == other[~missing].tobytes()  # tells 0.0 from -0.0
    elif one.dtype.kind == "O":
        for mine, its in zip(one.ravel(), other.ravel(), strict=True):
            same_value(mine, its)
    else:
        assert one.tobytes() == other.tobytes()


def same_value(one: Any, other: Any) -> None:
    assert type(one) is type(other)
    if isinstance(one, dict):
        assert list(one) == list(other)
        for name in one:
            same_value(one[name], other[name])
    elif isinstance(one, list):
        assert len(one) == len(other)
        for mine, its in zip(one, other, strict=True):
            same_value(mine, its)
    elif isinstance(one, np.ndarray):
        same_array(one, other)
    elif isinstance(one, float | np.floating):
        same_array(np.asarray(one), np.asarray(other))
    else:
        assert one == other
