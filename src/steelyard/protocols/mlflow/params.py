"""The `params` of a request by the signature's params schema: checked, and the defaults filled in.

Built once per model by `codec.py`. What it returns passes MLflow's own check unchanged; what is unknown to the schema
is dropped, as MLflow does. A null stands for no value, where the param takes one value.
"""

from __future__ import annotations

import copy
import datetime
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from steelyard.errors import InvalidParameter
from steelyard.protocols.mlflow import scalars
from steelyard.protocols.mlflow.nested import nested
from steelyard.protocols.mlflow.scalars import SCALARS, Refused, given
from steelyard.protocols.mlflow.schema import ColumnType, Type, type_of

Params = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Param:
    """`is_list`: the shape (-1,), any number of values."""

    name: str
    type: Type
    default: Any
    is_list: bool


@dataclass(frozen=True, slots=True)
class ParamsSchema:
    params: tuple[Param, ...]

    @property
    def names(self) -> frozenset[str]:
        return frozenset(param.name for param in self.params)


def parse_params_schema(text: str | None) -> ParamsSchema | None:
    """The signature's `params` JSON; None when the model has none. Raises ValueError when it cannot be read."""
    if not text:
        return None
    try:
        items = msgspec.json.decode(text)
        return ParamsSchema(tuple(_param(item) for item in items)) if items else None
    except (msgspec.MsgspecError, AttributeError, KeyError, TypeError, Refused) as error:
        raise ValueError(f"the params of the signature cannot be read: {error}") from error


def check_params(params: Params | None, schema: ParamsSchema | None) -> Params | None:
    """Every param of the schema, as given or by default; None for a model that takes none. Raises InvalidParameter."""
    if schema is None:
        return None
    params = params or {}
    return {
        param.name: _checked(param, params[param.name]) if param.name in params else copy.deepcopy(param.default)
        for param in schema.params
    }


def _param(item: dict[str, Any]) -> Param:
    kind = type_of({**item, "type": item.get("type") or item["dtype"]})
    param = Param(str(item["name"]), kind, None, item.get("shape") is not None)
    return Param(param.name, kind, _value(param, item["default"]), param.is_list)


def _checked(param: Param, value: Any) -> Any:
    try:
        return _value(param, value)
    except (Refused, RecursionError) as reason:
        message = "nested too deeply" if isinstance(reason, RecursionError) else str(reason)
        raise InvalidParameter(f"Param '{param.name}': {message}.", param=param.name) from None


def _value(param: Param, value: Any) -> Any:
    if param.is_list:
        if not isinstance(value, list):
            raise Refused(f"expected an array of values, got {given(value)}")
        return [_single(param.type, item) for item in value]
    return _single(param.type, value)


def _single(kind: Type, value: Any) -> Any:
    if not isinstance(kind, ColumnType):
        nested(kind, value, required=True, path="")
        return value  # checked, and otherwise as it came: models expect what JSON gives
    return None if value is None else _ONE[kind](value)


def _integer(kind: ColumnType) -> Callable[[Any], int]:
    one = SCALARS[kind]

    def integer(value: Any) -> int:
        if isinstance(value, float):
            raise Refused("expected an integer, got a number with a decimal point")
        return int(one(value))

    return integer


def _date(value: Any) -> datetime.date:
    """A date stays one, as in MLflow; a date and time becomes naive UTC."""
    if isinstance(value, str) and "T" not in value and " " not in value:
        try:
            return datetime.date.fromisoformat(value)
        except ValueError:
            pass
    moment: datetime.datetime = scalars.moment(value).astype("datetime64[us]").item()
    return moment


_ONE: dict[ColumnType, Callable[[Any], Any]] = {
    **SCALARS,
    ColumnType.INTEGER: _integer(ColumnType.INTEGER),
    ColumnType.LONG: _integer(ColumnType.LONG),
    ColumnType.DATETIME: _date,
}
