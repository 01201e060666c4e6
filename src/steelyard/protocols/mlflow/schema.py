"""An MLflow signature's inputs as plain values: columns with a type, or tensors with a dtype and a shape.

Read once per model from the JSON text in its MLmodel file, by whoever decodes for that model. A type that is not a
scalar (arrays, objects, maps, any) has the column type `OTHER` and its whole form in `nested`.
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
class ArrayOf:
    items: Type


@dataclass(frozen=True, slots=True)
class Property:
    name: str
    type: Type
    required: bool = True


@dataclass(frozen=True, slots=True)
class ObjectOf:
    properties: tuple[Property, ...]


@dataclass(frozen=True, slots=True)
class MapOf:
    """Any names, values of one type."""

    values: Type


@dataclass(frozen=True, slots=True)
class AnyValue:
    """Whatever JSON can hold."""


Nested = ArrayOf | ObjectOf | MapOf | AnyValue
Type = ColumnType | Nested


@dataclass(frozen=True, slots=True)
class Column:
    """`nested` is given when `type` is `OTHER`; without it any value goes."""

    name: str | None
    type: ColumnType
    required: bool = True
    nested: Nested | None = None


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


_TYPES = {item.value: item for item in ColumnType if item is not ColumnType.OTHER}


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


def type_of(item: dict[str, object]) -> Type:
    """The `type` of a column, property, array element or param. Raises ValueError for one that MLflow has not."""
    kind = item["type"]
    if kind == "array":
        return ArrayOf(_element(item["items"]))
    if kind == "map":
        return MapOf(_element(item["values"]))
    if kind == "object":
        properties = item["properties"]
        assert isinstance(properties, dict)
        return ObjectOf(
            tuple(
                Property(str(name), type_of(inner), bool(inner.get("required", True)))
                for name, inner in properties.items()
            )
        )
    if kind == "any":
        return AnyValue()
    if kind == "sparkml_vector":
        return ArrayOf(ColumnType.DOUBLE)
    try:
        return _TYPES[str(kind)]
    except KeyError:
        raise ValueError(f"the signature holds the unknown type '{kind}'") from None


def _element(item: object) -> Type:
    assert isinstance(item, dict)
    return type_of(item)


def _column(item: dict[str, object]) -> Column:
    name = item.get("name")
    kind = type_of(item)
    scalar, nested = (kind, None) if isinstance(kind, ColumnType) else (ColumnType.OTHER, kind)
    return Column(None if name is None else str(name), scalar, bool(item.get("required", True)), nested)


def _tensor(item: dict[str, object]) -> Tensor:
    spec = item["tensor-spec"]
    assert isinstance(spec, dict)
    name = item.get("name")
    return Tensor(None if name is None else str(name), str(spec["dtype"]), tuple(int(size) for size in spec["shape"]))
