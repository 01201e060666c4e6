"""The same rows as each server's clients send them, and the predictions out of each server's answer.

Used by `classic.py`. MLflow, its MLServer runtime and Steelyard get the very same bytes; the others get their natural
form, which has no column names and so is the easier job.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Rows = list[list[float]]


@dataclass(frozen=True, slots=True)
class Dialect:
    encode: Callable[[list[str], Rows], dict[str, Any]]
    predictions: Callable[[Any], list[Any]]


def _split(columns: list[str], rows: Rows) -> dict[str, Any]:
    return {"dataframe_split": {"columns": columns, "data": rows}}


def _data(_: list[str], rows: Rows) -> dict[str, Any]:
    return {"data": rows}


def _tensor(columns: list[str], rows: Rows) -> dict[str, Any]:
    flat = [value for row in rows for value in row]
    shape = [len(rows), len(columns)]
    return {"inputs": [{"name": "input-0", "shape": shape, "datatype": "FP64", "data": flat}]}


MLFLOW = Dialect(_split, lambda answer: list(answer["predictions"]))
PLAIN = Dialect(_data, lambda answer: list(answer["predictions"]))
V2 = Dialect(_tensor, lambda answer: list(answer["outputs"][0]["data"]))


def http_request(path: str, body: dict[str, Any], token: str = "") -> bytes:
    """A whole request with the headers that an ordinary client sends."""
    payload = json.dumps(body, separators=(",", ":")).encode()
    lines = [f"POST {path} HTTP/1.1", "host: localhost", "accept: */*", "user-agent: benchmark"]
    lines += [f"authorization: Bearer {token}"] if token else []
    lines += ["content-type: application/json", f"content-length: {len(payload)}", "", ""]
    return "\r\n".join(lines).encode() + payload


def same(got: list[Any], wanted: list[Any]) -> bool:
    """Integers and labels exactly, floats to nine digits."""
    if len(got) != len(wanted):
        return False
    for one, other in zip(got, wanted, strict=True):
        if isinstance(other, float):
            if not isinstance(one, int | float) or abs(one - other) > 1e-12 + 1e-9 * abs(other):
                return False
        elif one != other:
            return False
    return True
