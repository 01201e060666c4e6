"""An MLflow signature's inputs as plain values: columns with a type, or tensors with a dtype and a shape.

Read once per model from the JSON text in its MLmodel file, by the pyfunc runtime. Types that we do not decode
ourselves (arrays, objects, maps, any) become `OTHER` and are left to MLflow's own enforcement.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

import msgspec


class ColumnType(enum.Enum):
    BOOLEAN = "boolean"
    INTEGER = "integer"  # 32 bits
    LONG = "long"  # 64 bits
    FLOAT = "float"  # 32 bits
    DOUBLE = "double"
    STRING = "string"
    BINARY = "binary"  # base64 in JSON
    DATETIME = "datetime"  # naive UTC
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class Column:
    name: str | None
    type: ColumnType
    required: bool = True


@dataclass(frozen=True, slots=True)
class Tensor:
    name: str | None
    dtype: str  # a numpy dtype's name
    shape: tuple[int, ...]  # -1: any length


@dataclass(frozen=True, slots=True)
class InputSchema:
    """Either `columns` or `tensors` is empty."""

    columns: tuple[Column, ...] = ()
    tensors: tuple[Tensor, ...] = ()

    @property
    def named(self) -> bool:
        return all(item.name is not None for item in self.columns or self.tensors)

    @property
    def has_other(self) -> bool:
        return any(column.type is ColumnType.OTHER for column in self.columns)


_TYPES = {item.value: item for item in ColumnType}


def parse_input_schema(text: str | None) -> InputSchema | None:
    """The signature's `inputs` JSON; None when the model has none. Raises ValueError when it cannot be read."""
    if not text:
        return None
    try:
        items = msgspec.json.decode(text)
        if not items:
            return None
        if all(item.get("type") == "tensor" for item in items):
            return InputSchema(tensors=tuple(_tensor(item) for item in items))
        return InputSchema(columns=tuple(_column(item) for item in items))
    except (msgspec.MsgspecError, AttributeError, KeyError, TypeError) as error:
        raise ValueError(f"the input signature cannot be read: {error}") from error


def _column(item: dict[str, object]) -> Column:
    name = item.get("name")
    kind = _TYPES.get(str(item["type"]), ColumnType.OTHER)
    return Column(None if name is None else str(name), kind, bool(item.get("required", True)))


def _tensor(item: dict[str, object]) -> Tensor:
    spec = item["tensor-spec"]
    assert isinstance(spec, dict)
    name = item.get("name")
    return Tensor(None if name is None else str(name), str(spec["dtype"]), tuple(int(size) for size in spec["shape"]))
