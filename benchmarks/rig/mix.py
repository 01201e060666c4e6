"""The requests of the soak test: good ones in every form, and bad ones of every kind, with the statuses they may get.

Pure; used by `soak.py`. Weights say how many of a thousand requests are of each kind.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Literal

ROW = [5.1, 3.5, 1.4, 0.2]
OVERSIZED_BYTES = 17 * 1024 * 1024
_JSON = "application/json"

Manner = Literal["ask", "cut", "leave"]  # read the reply; close in the middle of the request; close after it


@dataclass(frozen=True, slots=True)
class Case:
    name: str
    weight: int
    request: bytes
    statuses: frozenset[int]
    manner: Manner = "ask"


def cases(fast: str, fast_columns: list[str], python: str, python_columns: list[str], token: str) -> list[Case]:
    """`fast` is the endpoint of a vectorised model, `python` that of Python code; each takes four numbers a row."""

    def post(endpoint: str, body: bytes, media: str = _JSON, *, bearer: str = token, length: int = -1) -> bytes:
        lines = [f"POST /serving-endpoints/{endpoint}/invocations HTTP/1.1", "host: localhost", "user-agent: soak"]
        lines += [f"authorization: Bearer {bearer}"] if bearer else []
        lines += [f"content-type: {media}"] if media else []
        lines += [f"content-length: {len(body) if length < 0 else length}", "", ""]
        return "\r\n".join(lines).encode() + body

    def split(columns: list[str], *rows: list[Any]) -> bytes:
        return json.dumps({"dataframe_split": {"columns": columns, "data": list(rows)}}).encode()

    good = split(fast_columns, ROW)
    records = json.dumps({"dataframe_records": [dict(zip(fast_columns, ROW, strict=True))]}).encode()
    instances = json.dumps({"instances": [dict(zip(fast_columns, ROW, strict=True))]}).encode()
    csv = (",".join(fast_columns) + "\n" + ",".join(map(str, ROW)) + "\n").encode()
    unknown = split(["unheard of", *fast_columns[1:]], ROW)
    summed = split(python_columns, ROW)
    return [
        _case("one row", 470, post(fast, good), 200),
        _case("records", 100, post(fast, records), 200),
        _case("instances", 50, post(fast, instances), 200),
        _case("CSV", 60, post(fast, csv, "text/csv"), 200),
        _case("1,000 rows", 3, post(fast, split(fast_columns, *[ROW] * 1000)), 200),
        _case("Python model", 50, post(python, summed), 200),
        _case("Python model, 1,000 rows", 1, post(python, split(python_columns, *[ROW] * 1000)), 200),
        _case("Python model that fails", 5, post(python, split(python_columns, [-1.0, *ROW[1:]])), 500),
        _case("Python model, wrong type", 5, post(python, split(python_columns, ["x", *ROW[1:]])), 400),
        _case("no JSON", 30, post(fast, b"{'dataframe_split': }"), 400),
        _case("half a JSON", 20, post(fast, good[: len(good) // 2]), 400),
        _case("wrong type", 40, post(fast, split(fast_columns, ["x", *ROW[1:]])), 400),
        _case("unknown column", 40, post(fast, unknown), 400),
        _case("short row", 10, post(fast, split(fast_columns, ROW[1:])), 400),
        _case("NaN", 20, post(fast, good.replace(b"5.1", b"NaN")), 400),
        _case("Infinity", 10, post(fast, good.replace(b"5.1", b"-Infinity")), 400),
        _case("empty", 15, post(fast, b""), 400),
        _case("wrong media type", 20, post(fast, good, "application/x-protobuf"), 415),
        _case("no token", 10, post(fast, good, bearer=""), 401),
        _case("no such endpoint", 10, post("nobody", good), 404),
        _case("oversized", 1, post(fast, b" " * 65536, length=OVERSIZED_BYTES), 413),
        _case("cut in the middle", 15, post(fast, good)[:-20], manner="cut"),
        _case("left before the answer", 10, post(fast, good), manner="leave"),
        _case("Python model, left before the answer", 5, post(python, summed), manner="leave"),
    ]


def _case(name: str, weight: int, request: bytes, *statuses: int, manner: Manner = "ask") -> Case:
    return Case(name, weight, request, frozenset(statuses), manner)
