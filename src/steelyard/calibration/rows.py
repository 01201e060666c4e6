"""Requests for a classic model, of wanted row counts: the rows of the model's own input example, over and over.

`lanes.py` sends them. Without an example, rows are made from the tensors that the replica says it takes
(`GET /v2/model`). An input that cannot be repeated is sent as it is: the model then costs so much per request.
"""

from __future__ import annotations

from typing import Any

import msgspec

PATH = b"/invocations"
MAX_BODY_BYTES = 48 * 1024  # of what a replica takes in one go; larger bodies are worked on by several threads
MAX_ROWS = 1024
_KEPT_BODIES = 64
_VALUES: dict[str, object] = {"BOOL": True, "BYTES": "a", "FP16": 0.5, "FP32": 0.5, "FP64": 0.5}


class Rows:
    """A body is `before`, as many `rows` as wanted, and `after`; rows repeat in turn."""

    def __init__(self, before: bytes, rows: list[bytes], after: bytes) -> None:
        self._before, self._rows, self._after = before, rows, after
        self._bodies: dict[int, bytes] = {}

    @property
    def max_rows(self) -> int:
        """1: the body stays as it is."""
        if not self._after:
            return 1
        longest = max(len(row) for row in self._rows) + 1
        return max(1, min(MAX_ROWS, MAX_BODY_BYTES // longest))

    def body(self, rows: int) -> bytes:
        if not self._after:
            return self._before
        known = self._bodies.get(rows)
        if known is None:
            if len(self._bodies) >= _KEPT_BODIES:
                del self._bodies[next(iter(self._bodies))]
            cycle = self._rows * -(-rows // len(self._rows))
            known = self._bodies[rows] = self._before + b",".join(cycle[:rows]) + self._after
        return known


def rows_of_example(example: bytes) -> Rows | None:
    """From a body for `/invocations`; None when it is not JSON or holds nothing."""
    try:
        body = msgspec.json.decode(example)
    except msgspec.DecodeError:
        return None
    if not isinstance(body, dict):
        return None
    for key in ("dataframe_split", "dataframe_records", "instances", "inputs"):
        if key in body and (found := _repeatable(body, key)) is not None:
            return found
    return Rows(example, [], b"")


def rows_of_metadata(metadata: bytes) -> Rows | None:
    """From what the replica says it takes; None when it does not say."""
    try:
        inputs = msgspec.json.decode(metadata)["inputs"]
        names = [str(item["name"]) for item in inputs]
        values = [_value(item["datatype"], item["shape"][1:]) for item in inputs]
        columns = all(item["shape"] == [-1, 1] for item in inputs)
        batches = all(item["shape"][0] == -1 for item in inputs)
    except (msgspec.DecodeError, KeyError, TypeError, IndexError):
        return None
    if not names or not batches:
        return None
    if columns:
        row = msgspec.json.encode([value[0] for value in values])
        return Rows(b'{"dataframe_split":{"columns":%b,"data":[' % msgspec.json.encode(names), [row], b"]}}")
    if len(names) == 1:
        return Rows(b'{"inputs":[', [msgspec.json.encode(values[0])], b"]}")
    single = {name: [value] for name, value in zip(names, values, strict=True)}
    return Rows(msgspec.json.encode({"inputs": single}), [], b"")


def _repeatable(body: dict[str, Any], key: str) -> Rows | None:
    value = body[key]
    if key == "dataframe_split":
        if not isinstance(value, dict) or not isinstance(value.get("data"), list) or not value["data"]:
            return None
        frame = {name: part for name, part in value.items() if name not in ("data", "index")}
        rest = {name: part for name, part in body.items() if name != key}
        before = msgspec.json.encode(frame)[:-1] + (b"," if frame else b"")
        tail = msgspec.json.encode(rest)[1:-1]
        after = b"]}" + (b"," + tail if tail else b"") + b"}"
        return Rows(b'{"dataframe_split":' + before + b'"data":[', _encoded(value["data"]), after)
    if not isinstance(value, list) or not value:
        return None
    tail = msgspec.json.encode({name: part for name, part in body.items() if name != key})[1:-1]
    after = b"]" + (b"," + tail if tail else b"") + b"}"
    return Rows(b'{"%b":[' % key.encode(), _encoded(value), after)


def _encoded(rows: list[Any]) -> list[bytes]:
    return [msgspec.json.encode(row) for row in rows]


def _value(datatype: str, shape: list[int]) -> Any:
    """One plausible element, nested as deep as the shape; an open dimension holds one."""
    if not shape:
        return _VALUES.get(datatype, 1)
    return [_value(datatype, shape[1:])] * max(1, shape[0])
