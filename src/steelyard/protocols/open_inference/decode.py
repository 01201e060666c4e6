"""A request's tensors as the model's `Inputs`, by its signature: one `Decoder` per model, made when it is loaded.

Called by replica and worker. Tensors are found by name, whatever their order; a signature of columns takes one tensor
of shape (n,) or (n, 1) each, or all of them as one tensor of shape (n, columns). Tensors that the signature does not
know are ignored, as MLflow ignores columns.
"""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from steelyard.errors import InvalidParameter
from steelyard.protocols.inputs import Inputs, Name
from steelyard.protocols.mlflow.coerce import DTYPES, objects
from steelyard.protocols.mlflow.schema import Column, ColumnType, InputSchema, Tensor
from steelyard.protocols.mlflow.table import assemble
from steelyard.protocols.mlflow.tensors import check_shape, coerce_tensor
from steelyard.protocols.open_inference.columns import as_column
from steelyard.protocols.open_inference.datatypes import fit
from steelyard.protocols.open_inference.elements import BASE64, texts, unwrapped
from steelyard.protocols.open_inference.envelope import (
    Envelope,
    InferRequest,
    InputTensor,
    content_type,
    model_params,
    read_envelope,
    requested_outputs,
)
from steelyard.protocols.open_inference.tensors import read_tensors, refuse

_NUMERIC = (ColumnType.INTEGER, ColumnType.LONG, ColumnType.FLOAT, ColumnType.DOUBLE)
_LISTED = 5


class Decoder:
    """`schema` is None for a model without a signature: it gets the tensors as they come."""

    def __init__(self, schema: InputSchema | None) -> None:
        self._columns = schema.columns if schema else ()
        self._tensors = schema.tensors if schema else ()
        self._names: tuple[Name, ...] = tuple(
            place if column.name is None else column.name for place, column in enumerate(self._columns)
        )
        kinds = {column.type for column in self._columns}
        kind = kinds.pop() if len(kinds) == 1 and all(column.required for column in self._columns) else None
        self._matrix_dtype = DTYPES[kind] if kind in _NUMERIC else None  # of a table that needs no look at its columns

    def decode(self, body: bytes, json_bytes: int | None = None) -> InferRequest:
        """`json_bytes`: how much of the body is JSON; None: all. Raises BadRequest or InvalidParameter."""
        envelope = read_envelope(body, json_bytes)
        tail = b"" if json_bytes is None else memoryview(body)[json_bytes:]
        inputs = envelope.inputs
        arrays = read_tensors(inputs, tail)
        if len(inputs) > 1:
            _refuse_twins(inputs)
        outputs, binary = requested_outputs(envelope)
        return InferRequest(self._inputs(envelope, arrays), envelope.id, outputs, binary, model_params(envelope))

    def _inputs(self, envelope: Envelope, arrays: list[NDArray[Any]]) -> Inputs:
        inputs = envelope.inputs
        if self._columns:
            if len(inputs) == 1 and arrays[0].ndim == 2 and not self._is_a_column(inputs[0]):
                return self._table(inputs[0], arrays[0], envelope)
            return self._by_name(inputs, arrays, envelope)
        if self._tensors:
            return _signature_tensors(self._tensors, inputs, arrays, envelope)
        return _free(inputs, arrays, envelope)

    def _is_a_column(self, tensor: InputTensor) -> bool:
        """Rather than a table of all."""
        return tensor.name in self._names and (len(self._names) == 1 or tensor.shape[1] != len(self._names))

    def _table(self, tensor: InputTensor, array: NDArray[Any], envelope: Envelope) -> Inputs:
        """All columns in one tensor, in the signature's order."""
        width = len(self._columns)
        if array.shape[1] != width:
            listed = _listed([column.name for column in self._columns])
            raise refuse(tensor.name, f"has {array.shape[1]} values in each row, but the model takes {width}: {listed}")
        if self._matrix_dtype is not None and array.dtype.kind != "O":
            matrix = fit(array, self._matrix_dtype)
            if matrix is not None:
                return Inputs(self._names, len(matrix), matrix)
        kind = _kind(tensor, envelope)
        labels = [tensor.name if column.name is None else column.name for column in self._columns]
        found = [as_column(self._columns[place], labels[place], array[:, place], kind) for place in range(width)]
        return self._assemble(found, len(array))

    def _by_name(self, inputs: list[InputTensor], arrays: list[NDArray[Any]], envelope: Envelope) -> Inputs:
        places = self._places(inputs)
        rows = -1
        found: list[NDArray[Any] | None] = []
        for column, place in zip(self._columns, places, strict=True):
            if place is None:
                found.append(None)
                continue
            tensor = inputs[place]
            array = _one_per_row(tensor, arrays[place], column)
            rows = _same_rows(rows, tensor, array)
            kind = _kind(tensor, envelope) if array.dtype.kind == "O" else None
            found.append(as_column(column, tensor.name, array, kind))
        if rows < 0:
            raise InvalidParameter(f"The request holds none of the model's {self._described()}.", param="inputs")
        return self._assemble(found, rows)

    def _places(self, inputs: list[InputTensor]) -> list[int | None]:
        """Where each column's tensor is; None for an optional column that is not there."""
        places = {tensor.name: place for place, tensor in enumerate(inputs)}
        columns = self._columns
        if all(column.name is None for column in columns):
            wanted = [f"input-{place}" for place in range(len(columns))]
            if not all(name in places for name in wanted):  # then it is their order that counts
                if len(inputs) < len(columns):
                    raise InvalidParameter(f"The model needs {len(columns)} inputs, not {len(inputs)}.", param="inputs")
                return list(range(len(columns)))
            return [places[name] for name in wanted]
        missing = [column.name for column in columns if column.required and column.name not in places]
        if missing:
            raise _missing(missing, self._names, inputs)
        return [places.get(str(column.name)) for column in columns]

    def _described(self) -> str:
        return f"columns {_listed([column.name for column in self._columns])}"

    def _assemble(self, found: list[NDArray[Any] | None], rows: int) -> Inputs:
        columns = {name: array for name, array in zip(self._names, found, strict=True) if array is not None}
        if not columns:
            raise InvalidParameter(f"All of the {self._described()} are missing values.", param="inputs")
        return assemble(columns, rows, None)


def _signature_tensors(
    tensors: tuple[Tensor, ...], inputs: list[InputTensor], arrays: list[NDArray[Any]], envelope: Envelope
) -> Inputs:
    if tensors[0].name is None:
        if len(inputs) != 1:
            raise InvalidParameter(f"The model takes one input, not {len(inputs)}.", param="inputs")
        array = _as_tensor(tensors[0], inputs[0], arrays[0], envelope)
        return Inputs((None,), len(array), None, (array,), columnar=False)
    places = {tensor.name: place for place, tensor in enumerate(inputs)}
    missing = [tensor.name for tensor in tensors if tensor.name not in places]
    if missing:
        raise _missing(missing, tuple(tensor.name for tensor in tensors), inputs)
    parts, rows = [], -1
    for tensor in tensors:
        place = places[str(tensor.name)]
        array = _as_tensor(tensor, inputs[place], arrays[place], envelope)
        rows = _same_rows(rows, inputs[place], array)
        parts.append(array)
    return Inputs(tuple(tensor.name for tensor in tensors), rows, None, tuple(parts), columnar=False)


def _as_tensor(tensor: Tensor, given: InputTensor, array: NDArray[Any], envelope: Envelope) -> NDArray[Any]:
    """In the signature's dtype and shape."""
    if len(tensor.shape) == 1 and array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    array = check_shape(tensor, given.name, array)
    if array.dtype.kind == "O":
        array = _read_elements(given, array, _kind(given, envelope))
    if array.dtype == tensor.dtype:
        return array
    return coerce_tensor(tensor, given.name, array)


def _free(inputs: list[InputTensor], arrays: list[NDArray[Any]], envelope: Envelope) -> Inputs:
    """Without a signature: one tensor is the model's input itself, several are named; "pd" makes them columns."""
    columnar = content_type(envelope.parameters) == "pd"
    rows, parts = -1, []
    for tensor, given in zip(inputs, arrays, strict=True):
        array = given
        if array.dtype.kind == "O":
            array = _read_elements(tensor, array, _kind(tensor, envelope))
        if columnar:
            array = _one_per_row(tensor, array, None)
        rows = _same_rows(rows, tensor, array)
        parts.append(array)
    if len(parts) == 1 and not columnar and content_type(envelope.parameters) != "dict":
        return Inputs((None,), rows, None, tuple(parts), columnar=False)
    return Inputs(tuple(tensor.name for tensor in inputs), rows, None, tuple(parts), columnar=columnar)


def _read_elements(tensor: InputTensor, array: NDArray[Any], kind: str | None) -> NDArray[Any]:
    """BYTES as text, or as bytes where it is base64; integers and booleans with nulls are refused."""
    values = array.ravel().tolist()
    if tensor.datatype != "BYTES":
        raise refuse(tensor.name, f"holds null, which {tensor.datatype} cannot")
    read = unwrapped if kind == BASE64 else texts
    return objects(read(tensor.name, values, kind), len(values)).reshape(array.shape)


def _one_per_row(tensor: InputTensor, array: NDArray[Any], column: Column | None) -> NDArray[Any]:
    """(n, 1) as (n,); a column of arrays keeps its further dimensions."""
    if array.ndim == 1:
        return array
    if array.ndim == 2 and array.shape[1] == 1:
        return array[:, 0]
    if column is not None and column.type is ColumnType.OTHER and array.dtype.kind != "O":
        return array
    raise refuse(tensor.name, f"must have the shape [n] or [n, 1], not {list(array.shape)}")


def _same_rows(rows: int, tensor: InputTensor, array: NDArray[Any]) -> int:
    if rows not in (-1, len(array)):
        raise refuse(tensor.name, f"has {len(array)} rows, but the inputs before it have {rows}")
    return len(array)


def _kind(tensor: InputTensor, envelope: Envelope) -> str | None:
    """How a BYTES tensor is to be read: what it says, else what the request says of all."""
    return content_type(tensor.parameters) or content_type(envelope.parameters)


def _refuse_twins(inputs: list[InputTensor]) -> None:
    names = {tensor.name for tensor in inputs}
    if len(names) != len(inputs):
        seen: set[str] = set()
        for tensor in inputs:
            if tensor.name in seen:
                raise refuse(tensor.name, "is there twice")
            seen.add(tensor.name)


def _missing(missing: list[str | None], known: tuple[Name, ...], inputs: list[InputTensor]) -> InvalidParameter:
    unknown = [tensor.name for tensor in inputs if tensor.name not in known]
    hint = f" The request has {_listed(unknown)}, which the model does not know." if unknown else ""
    return InvalidParameter(f"The model needs {_listed(missing)}, which the request lacks.{hint}", param=missing[0])


def _listed(names: list[Any]) -> str:
    """Up to five names, the rest counted."""
    quoted = ", ".join(f"'{str(name)[:60]}'" for name in names[:_LISTED])
    return quoted + (f" and {len(names) - _LISTED} more" if len(names) > _LISTED else "")
