"""A decoder compiled from a signature for the bodies that clients mostly send: typed by msgspec, no pandas.

`MlflowCodec` asks it first. It accepts a subset of what the general path (`general.py`) accepts and decodes it to the
same arrays, bit for bit; for everything else, faults and oddities alike, it says None, so that the general path alone
decides and gives every error.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType
from msgspec.structs import astuple

from steelyard.protocols.inputs import Inputs
from steelyard.protocols.mlflow.plan_columns import ColumnPlan, RowPlan, json_type
from steelyard.protocols.mlflow.plan_split import SplitPlan
from steelyard.protocols.mlflow.plan_tensors import TensorsPlan
from steelyard.protocols.mlflow.schema import ArrayOf, ColumnType, InputSchema, ObjectOf

_NOT_OURS = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, ValueError, OverflowError)

Read = Callable[[Any], "Inputs | None"]
_Fields = dict[str, Any]
_ALWAYS: Any = object()  # a field without a default
_BY_ROW = ("instances", "inputs")


class Plan:
    """Safe in any number of threads."""

    def __init__(self, split: SplitPlan | None, fields: _Fields, readers: dict[str, Read]) -> None:
        """`fields`: each format's type in JSON; `readers` make rows of it."""
        envelope = _struct("Envelope", [(name, kind | UnsetType, UNSET) for name, kind in fields.items()])
        self._split = split
        self._decode = msgspec.json.Decoder(envelope).decode
        self._readers = tuple(readers.items())

    def decode(self, body: bytes) -> Inputs | None:
        """The body's typed rows, or None: the general path decides."""
        try:
            if self._split is not None and body.find(b'"dataframe_split"', 0, 64) >= 0:  # `in` costs far more
                return self._split.decode(body)
            return self._read(self._decode(body))
        except _NOT_OURS:
            return None

    def _read(self, envelope: Any) -> Inputs | None:
        data: Any = UNSET
        for name, reader in self._readers:
            value = getattr(envelope, name)
            if value is not UNSET:
                if data is not UNSET:
                    return None
                data, read = value, reader
        return read(data) if data is not UNSET and data else None


def compile_plan(schema: InputSchema) -> Plan | None:
    """None for a signature that nothing can be compiled from."""
    if schema.tensors:
        return _tensor_plan(schema)
    if not schema.columns or not schema.named:  # columns without names are rare, and the general path's
        return None
    fields, readers = _named_fields(schema)
    return Plan(SplitPlan(schema), fields, readers)


def _named_fields(schema: InputSchema) -> tuple[_Fields, dict[str, Read]]:
    columns = schema.columns
    rows = RowPlan(columns, [column.name for column in columns])
    row = _named_struct(
        "Row", [(column.name, json_type(column), _ALWAYS if column.required else UNSET) for column in columns]
    )
    whole = _named_struct(
        "Columns",
        [(column.name, list[json_type(column)], _ALWAYS if column.required else UNSET) for column in columns],  # type: ignore[misc]
    )
    if row is None or whole is None:
        return {}, {}
    by_column = ColumnPlan(columns)
    one_row = any(isinstance(column.nested, ArrayOf | ObjectOf) for column in columns)
    sole = columns[0] if len(columns) == 1 and columns[0].type is not ColumnType.OTHER else None

    def records(items: list[Any]) -> Inputs | None:
        return rows.inputs([astuple(item) for item in items])

    def inputs(value: Any) -> Inputs | None:
        if not isinstance(value, list):
            return records([value]) if one_row else by_column.inputs(astuple(value))
        if sole is None or _all(value, row):
            return records(value)
        return None if any(isinstance(item, row) for item in value) else by_column.inputs([value])

    item: Any = row if sole is None else row | json_type(sole)
    bodies: Any = (row if one_row else whole) | list[item]
    fields = {"dataframe_records": list[row], "instances": list[item], "inputs": bodies}  # type: ignore[valid-type]
    return fields, {"dataframe_records": records, "instances": inputs, "inputs": inputs}


def _tensor_plan(schema: InputSchema) -> Plan | None:
    try:
        plan = TensorsPlan(schema)
    except (KeyError, TypeError, ValueError):
        return None
    bare = plan.tensors[0].json_type
    if not schema.named:
        return Plan(None, dict.fromkeys(_BY_ROW, bare), dict.fromkeys(_BY_ROW, lambda data: plan.inputs([data])))
    tensors = [(tensor.name, item) for tensor, item in zip(schema.tensors, plan.tensors, strict=True)]
    whole = _named_struct("Tensors", [(name, item.json_type, _ALWAYS) for name, item in tensors])
    row = _named_struct("Row", [(name, item.row_type, _ALWAYS) for name, item in tensors])
    if whole is None or row is None:
        return None
    if len(tensors) == 1:

        def only(value: Any) -> Inputs | None:
            if not isinstance(value, list):
                return plan.inputs(astuple(value))
            if isinstance(value[0], row):
                return plan.inputs([[astuple(item)[0] for item in value]]) if _all(value, row) else None
            return None if any(isinstance(item, row) for item in value) else plan.inputs([value])

        instances: Any = list[row | plan.tensors[0].row_type]  # type: ignore[misc]
        return Plan(None, {"instances": instances, "inputs": whole | bare}, dict.fromkeys(_BY_ROW, only))

    def rows(value: list[Any]) -> Inputs | None:
        return plan.inputs([list(items) for items in zip(*map(astuple, value), strict=True)])

    fields = {"instances": list[row], "inputs": whole}  # type: ignore[valid-type]
    return Plan(None, fields, {"instances": rows, "inputs": lambda value: plan.inputs(astuple(value))})


def _all(items: list[Any], kind: type) -> bool:
    return all(isinstance(item, kind) for item in items)


def _named_struct(title: str, items: Sequence[tuple[str | None, Any, Any]]) -> Any:
    """A struct of fields (name in JSON, type, default); None when msgspec cannot have such names."""
    fields: list[Any] = []
    for place, (_, kind, default) in enumerate(items):
        name = f"f{place}"
        fields.append((name, kind) if default is _ALWAYS else (name, kind | UnsetType, default))
    try:
        return _struct(title, fields, {f"f{place}": name for place, (name, _, _) in enumerate(items)})
    except (ValueError, TypeError):
        return None


def _struct(title: str, fields: list[Any], rename: dict[str, Any] | None = None) -> Any:
    return msgspec.defstruct(title, fields, rename=rename, forbid_unknown_fields=True, gc=False, kw_only=True)
