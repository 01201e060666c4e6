"""What a model takes and gives, in the protocol's words, from its signature; and what its only output is called.

Called by the replica once per model. The names here are the ones that requests may use and answers have.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from steelyard.protocols.mlflow.schema import Column, ColumnType, InputSchema, Tensor
from steelyard.protocols.open_inference.datatypes import BYTES, datatype_of

OUTPUT = "predict"  # of a result without names
SYNONYMS = frozenset((OUTPUT, "output-0", "output-1"))  # what other servers call it

_COLUMNS: dict[ColumnType, tuple[str, str | None]] = {
    ColumnType.BOOLEAN: ("BOOL", None),
    ColumnType.INTEGER: ("INT32", None),
    ColumnType.LONG: ("INT64", None),
    ColumnType.FLOAT: ("FP32", None),
    ColumnType.DOUBLE: ("FP64", None),
    ColumnType.STRING: (BYTES, "str"),
    ColumnType.BINARY: (BYTES, "base64"),
    ColumnType.DATETIME: (BYTES, "datetime"),
    ColumnType.OTHER: (BYTES, "pd_json"),
}


def metadata(
    name: str, versions: list[str], platform: str, inputs: InputSchema | None, outputs: InputSchema | None
) -> dict[str, Any]:
    """The body of `GET /v2/models/{name}`. Without a signature the lists of tensors are empty."""
    return {
        "name": name,
        "versions": versions,
        "platform": platform,
        "inputs": _tensors(inputs, [-1, 1], "input-0"),
        "outputs": _tensors(outputs, [-1], OUTPUT),
    }


def output_name(outputs: InputSchema | None) -> str:
    """The name of a result that has none of its own: the signature's, if it names exactly one output."""
    items: tuple[Column | Tensor, ...] = (outputs.columns or outputs.tensors) if outputs else ()
    return items[0].name or OUTPUT if len(items) == 1 else OUTPUT


def _tensors(schema: InputSchema | None, column_shape: list[int], sole: str) -> list[dict[str, Any]]:
    if schema is None:
        return []
    items: tuple[Column | Tensor, ...] = schema.columns or schema.tensors
    prefix = "input" if sole != OUTPUT else "output"
    names = [item.name or (sole if len(items) == 1 else f"{prefix}-{place}") for place, item in enumerate(items)]
    if schema.tensors:
        return [
            {"name": name, "datatype": _datatype(tensor.dtype), "shape": list(tensor.shape)}
            for name, tensor in zip(names, schema.tensors, strict=True)
        ]
    return [
        _column(name, column.type, column.required, column_shape)
        for name, column in zip(names, schema.columns, strict=True)
    ]


def _column(name: str, kind: ColumnType, required: bool, shape: list[int]) -> dict[str, Any]:
    datatype, content_type = _COLUMNS[kind]
    result: dict[str, Any] = {"name": name, "datatype": datatype, "shape": shape}
    parameters: dict[str, Any] = {}
    if content_type is not None:
        parameters["content_type"] = content_type
    if not required:
        parameters["optional"] = True
    if parameters:
        result["parameters"] = parameters
    return result


def _datatype(name: str) -> str:
    try:
        return datatype_of(np.dtype(name)) or BYTES
    except TypeError:
        return BYTES
