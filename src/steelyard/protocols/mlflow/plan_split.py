"""The plan for `dataframe_split`: columns in any order, each order compiled once.

What stands before the rows (the names, and an index where there is one) is mostly the same bytes in every request of
a client, so that the newest of these heads are kept: the rest of such a body is nothing but rows. Other bodies are
cut by a scan of their keys. Only bodies whose rows come last are taken; called by `plan.py`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from steelyard.protocols.inputs import Inputs
from steelyard.protocols.mlflow.plan_columns import RowPlan
from steelyard.protocols.mlflow.schema import Column, InputSchema

_MAX_ORDERS, _MAX_HEADS, _MAX_HEAD_BYTES = 64, 4, 64 * 1024
_SPACE = b" \t\r\n"
_OPENING = re.compile(rb'[ \t\r\n]*\{[ \t\r\n]*"dataframe_split"[ \t\r\n]*:[ \t\r\n]*\{')
_KEY = re.compile(rb'[ \t\r\n]*"(columns|index|data)"[ \t\r\n]*:[ \t\r\n]*')
_COMMA = re.compile(rb"[ \t\r\n]*,")
_SCAN: Any = json.JSONDecoder().scan_once  # type: ignore[attr-defined]  # from a place in a text to a value and its end
_NAMES = msgspec.json.Decoder(list[str | int])
_INDEX = msgspec.json.Decoder(list[str | int | float] | None)


class _Order:
    """One order of columns."""

    def __init__(self, plan: RowPlan) -> None:
        self.inputs = plan.inputs
        self.decode = msgspec.json.Decoder(list[plan.row_type]).decode  # type: ignore[name-defined]


@dataclass(frozen=True, slots=True)
class _Head:
    """All of a body before its rows."""

    start: bytes
    order: _Order
    index: list[Any] | None


class SplitPlan:
    def __init__(self, schema: InputSchema) -> None:
        self._columns = schema.columns
        self._named = schema.named
        self._orders: dict[bytes | None, _Order | None] = {}
        self._heads: tuple[_Head, ...] = ()

    def decode(self, body: bytes) -> Inputs | None:
        """Raises what msgspec raises for rows of other types."""
        for head in self._heads:
            if body.startswith(head.start) and body.endswith(b"}}"):
                return _rows(head, body[len(head.start) : -2])
        found = self._head_of(body)
        stop = _end_of_rows(body)
        if found is None or stop is None:
            return None
        inputs = _rows(found, body[len(found.start) : stop])
        if len(found.start) <= _MAX_HEAD_BYTES:
            self._heads = (found, *self._heads[: _MAX_HEADS - 1])
        return inputs

    def _head_of(self, body: bytes) -> _Head | None:
        """Reads keys until `data`: each at most once, so that no second value can hide behind the first."""
        opening = _OPENING.match(body)
        if opening is None:
            return None
        pieces: dict[bytes, bytes] = {}
        at, text = opening.end(), body.decode("latin-1")  # a character per byte: places stay the same
        while (key := _KEY.match(body, at)) is not None:
            if key[1] == b"data":
                order = self._order(pieces.get(b"columns"))
                index = _INDEX.decode(pieces.get(b"index", b"null"))
                return None if order is None else _Head(body[: key.end()], order, index)
            try:
                _, stop = _SCAN(text, key.end())
            except (StopIteration, ValueError, RecursionError):
                return None
            comma = _COMMA.match(body, stop)
            if comma is None or key[1] in pieces:
                return None
            pieces[key[1]] = body[key.end() : stop]
            at = comma.end()
        return None

    def _order(self, text: bytes | None) -> _Order | None:
        if text not in self._orders:
            if len(self._orders) >= _MAX_ORDERS:
                self._orders = {}
            self._orders[text] = self._compiled(None if text is None else _NAMES.decode(text))
        return self._orders[text]

    def _compiled(self, names: Sequence[str | int] | None) -> _Order | None:
        """None where the general path must decide: unknown, missing or repeated names."""
        if names is None:
            names = range(len(self._columns))
        if len(set(map(str, names))) != len(names):
            return None
        if not self._named:
            return _Order(RowPlan(self._columns, names)) if len(names) == len(self._columns) else None
        places = {name: place for place, name in enumerate(names)}
        order = [places[column.name] for column in self._columns if column.name in places]
        missing = any(column.required and column.name not in places for column in self._columns)
        if missing or len(order) != len(names):
            return None
        by_name: dict[Any, Column] = {column.name: column for column in self._columns}
        return _Order(RowPlan([by_name[name] for name in names], names, order))


def _rows(head: _Head, text: bytes) -> Inputs | None:
    rows = head.order.decode(text)
    if not rows or (head.index is not None and len(head.index) != len(rows)):
        return None
    return head.order.inputs(rows, head.index)


def _end_of_rows(body: bytes) -> int | None:
    """Where the two closing braces begin."""
    inner = body.rstrip(_SPACE)
    if not inner.endswith(b"}"):
        return None
    inner = inner[:-1].rstrip(_SPACE)
    return len(inner) - 1 if inner.endswith(b"}") else None
