"""Which inputs a model takes, as arrays that rows can be made of: from its signature, or else from its input example.

Used by the generation of rows and by the search for boundaries. It builds `Inputs` exactly as the decoders do, so that
a runtime meets nothing in a proof that a request could not bring.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from steelyard.protocols.inputs import Inputs, Name
from steelyard.protocols.mlflow.schema import ColumnType, InputSchema, Tensor
from steelyard.runtimes.proof.domains import Booleans, Domain, Moments, Numbers, Samples, Texts

Hints = Mapping[Name, Sequence[Any]]
"""Values that matter (thresholds, categories) by column name; of one two-dimensional tensor by the column's place."""

_DTYPES = {
    ColumnType.BOOLEAN: np.dtype(np.bool_),
    ColumnType.INTEGER: np.dtype(np.int32),
    ColumnType.LONG: np.dtype(np.int64),
    ColumnType.FLOAT: np.dtype(np.float32),
    ColumnType.DOUBLE: np.dtype(np.float64),
    ColumnType.DATETIME: np.dtype("datetime64[ns]"),
}
_OBJECT = np.dtype(object)
_UNKNOWN_LENGTH = 8  # of a tensor's free dimension that no example shows
_MAX_PLACES = 2048  # columns of a tensor that have values of their own kind each; a wider one is treated as a whole


class NoLayout(Exception):
    """Rows cannot be made; the text says why, as part of a sentence."""


@dataclass(frozen=True, slots=True)
class Field:
    """One column or tensor. `tail` is the shape of one row's value; `optional`: it may be absent."""

    name: Name
    dtype: np.dtype[Any]
    tail: tuple[int, ...] = ()
    optional: bool = False
    text: bool = False


@dataclass(frozen=True, slots=True)
class Layout:
    """`fixed_rows`: how many rows every call must have; None: any number."""

    fields: tuple[Field, ...]
    columnar: bool
    fixed_rows: int | None = None

    @property
    def cells(self) -> int:
        """Single values in one row."""
        return sum(int(np.prod(field.tail, dtype=np.int64)) for field in self.fields)

    def inputs(self, arrays: Sequence[NDArray[Any]], without: frozenset[int] = frozenset()) -> Inputs:
        """One array per field but those at the places `without`. Numeric columns of one dtype share a matrix."""
        chosen = [(self.fields[place], array) for place, array in enumerate(arrays) if place not in without]
        names = tuple(field.name for field, _ in chosen)
        parts = tuple(array for _, array in chosen)
        rows = len(parts[0]) if parts else 0
        if self.columnar and parts and parts[0].dtype.kind in "iuf" and len({part.dtype for part in parts}) == 1:
            return Inputs(names, rows, np.ascontiguousarray(np.stack(parts, axis=1)), (), True)
        return Inputs(names, rows, None, parts, self.columnar)


def layout_of(schema: InputSchema | None, example: Inputs | None) -> Layout:
    """Raises NoLayout when neither tells the inputs."""
    if schema is not None and schema.columns:
        fields = []
        for place, column in enumerate(schema.columns):
            dtype = _DTYPES.get(column.type, _OBJECT)
            name = column.name if column.name is not None else place
            fields.append(Field(name, dtype, (), not column.required, column.type is ColumnType.STRING))
        return Layout(tuple(fields), True)
    if schema is not None and schema.tensors:
        sizes = {tensor.shape[0] for tensor in schema.tensors if tensor.shape} - {-1}
        if len(sizes) > 1 or any(not tensor.shape for tensor in schema.tensors):
            raise NoLayout("its tensors do not share a first dimension of rows")
        return Layout(tuple(_tensor(tensor, example) for tensor in schema.tensors), False, next(iter(sizes), None))
    if example is None:
        raise NoLayout("it has neither a signature nor an input example")
    pairs = zip(example.names, example.arrays, strict=True)
    fields = [Field(name, array.dtype, array.shape[1:], text=_holds_text(array)) for name, array in pairs]
    return Layout(tuple(fields), example.columnar)


def _tensor(tensor: Tensor, example: Inputs | None) -> Field:
    given = _given(example, tensor.name)
    lengths = given.shape[1:] if given is not None else ()
    tail = tuple(
        size if size >= 0 else (lengths[place] if place < len(lengths) else _UNKNOWN_LENGTH)
        for place, size in enumerate(tensor.shape[1:])
    )
    try:
        dtype = np.dtype(tensor.dtype)
    except TypeError:
        dtype = _OBJECT
    if dtype.kind in "OSU":
        return Field(tensor.name, _OBJECT if given is None else given.dtype, tail, text=True)
    return Field(tensor.name, dtype, tail)


def _given(example: Inputs | None, name: Name) -> NDArray[Any] | None:
    if example is None or not example.rows:
        return None
    if name in example.names:
        return example.arrays[example.names.index(name)]
    return None


def _holds_text(array: NDArray[Any]) -> bool:
    return array.dtype.kind in "OU" and all(value is None or isinstance(value, str) for value in array.ravel()[:1000])


def hints_of(hints: Hints, field: Field, place: int) -> Sequence[Any]:
    """Of one place in the field's flattened row; 0 of a column."""
    own = hints.get(field.name, ())
    return hints.get(place, own) if len(field.tail) == 1 else own


def domains_of(field: Field, example: Inputs | None, hints: Hints) -> list[Domain]:
    """One domain for the whole field, or one for each column of a two-dimensional tensor. Raises NoLayout."""
    given = _given(example, field.name)
    if given is not None and given.shape[1:] != field.tail:
        given = None
    own = hints_of(hints, field, -1)
    kind = field.dtype.kind
    if kind in "iuf":
        if len(field.tail) == 1 and 0 < field.tail[0] <= _MAX_PLACES:
            return [
                Numbers(field.dtype, (), None if given is None else given[:, place], hints_of(hints, field, place))
                for place in range(field.tail[0])
            ]
        return [Numbers(field.dtype, field.tail, given, own)]
    if kind == "b":
        return [Booleans(field.tail, field.optional)]
    if kind == "M":
        return [Moments(field.tail, given, field.dtype)]
    if field.text:
        return [Texts(field.tail, given, own)]
    if given is None:
        raise NoLayout("an input has a type that no rows can be made for")
    return [Samples(given)]
