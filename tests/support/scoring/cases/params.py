"""Params: a theme of the table, one request a line."""

# ruff: noqa: E501
# fmt: off

from support.scoring.case import Case

TITLE = "Params"
CASES = [
    Case("no params", "params", {"inputs": {"x": [1.5]}}, mlflow="200 x: float64 [1.5]; {count: 5, flag: false, rate: 0.5, since: 2024-01-01T00:00:00, steps: [1, 2], text: \"a\"}", ours="200 x: float64 [1.5]; {count: 5, flag: false, rate: 0.5, since: 2024-01-01T00:00:00, steps: [1, 2], text: \"a\"}"),
    Case("an empty object of params", "params", {"inputs": {"x": [1.5]}, "params": {}}, mlflow="200 x: float64 [1.5]; {count: 5, flag: false, rate: 0.5, since: 2024-01-01T00:00:00, steps: [1, 2], text: \"a\"}", ours="200 x: float64 [1.5]; {count: 5, flag: false, rate: 0.5, since: 2024-01-01T00:00:00, steps: [1, 2], text: \"a\"}"),
    Case("null as params", "params", {"inputs": {"x": [1.5]}, "params": None}, mlflow="200 x: float64 [1.5]; {count: 5, flag: false, rate: 0.5, since: 2024-01-01T00:00:00, steps: [1, 2], text: \"a\"}", ours="200 x: float64 [1.5]; {count: 5, flag: false, rate: 0.5, since: 2024-01-01T00:00:00, steps: [1, 2], text: \"a\"}"),
    Case("some params", "params", {"inputs": {"x": [1.5]}, "params": {"text": "b", "count": 7}}, mlflow="200 x: float64 [1.5]; {count: 7, flag: false, rate: 0.5, since: 2024-01-01T00:00:00, steps: [1, 2], text: \"b\"}", ours="200 x: float64 [1.5]; {count: 7, flag: false, rate: 0.5, since: 2024-01-01T00:00:00, steps: [1, 2], text: \"b\"}"),
    Case("all params", "params", {"inputs": {"x": [1.5]}, "params": {"text": "b", "count": 7, "rate": 1.5, "flag": True, "since": "2025-01-01T00:00:00", "steps": [3]}}, mlflow="200 x: float64 [1.5]; {count: 7, flag: true, rate: 1.5, since: 2025-01-01T00:00:00, steps: [3], text: \"b\"}", ours="200 x: float64 [1.5]; {count: 7, flag: true, rate: 1.5, since: 2025-01-01T00:00:00, steps: [3], text: \"b\"}"),
    Case("an unknown param", "params", {"inputs": {"x": [1.5]}, "params": {"color": "red"}}, mlflow="200 x: float64 [1.5]; {count: 5, flag: false, rate: 0.5, since: 2024-01-01T00:00:00, steps: [1, 2], text: \"a\"}", ours="200 x: float64 [1.5]; {count: 5, flag: false, rate: 0.5, since: 2024-01-01T00:00:00, steps: [1, 2], text: \"a\"}"),
    Case("an unknown param beside a known one", "params", {"inputs": {"x": [1.5]}, "params": {"color": "red", "count": 7}}, mlflow="200 x: float64 [1.5]; {count: 7, flag: false, rate: 0.5, since: 2024-01-01T00:00:00, steps: [1, 2], text: \"a\"}", ours="200 x: float64 [1.5]; {count: 7, flag: false, rate: 0.5, since: 2024-01-01T00:00:00, steps: [1, 2], text: \"a\"}"),
    Case("a number for a text param", "params", {"inputs": {"x": [1.5]}, "params": {"text": 5}}, mlflow="400 INVALID_PARAMETER_VALUE", ours="400 text"),
    Case("an integer for a double param", "params", {"inputs": {"x": [1.5]}, "params": {"rate": 2}}, mlflow="200 x: float64 [1.5]; {count: 5, flag: false, rate: 2.0, since: 2024-01-01T00:00:00, steps: [1, 2], text: \"a\"}", ours="200 x: float64 [1.5]; {count: 5, flag: false, rate: 2.0, since: 2024-01-01T00:00:00, steps: [1, 2], text: \"a\"}"),
    Case("a whole fraction for a long param", "params", {"inputs": {"x": [1.5]}, "params": {"count": 7.0}}, mlflow="400 INVALID_PARAMETER_VALUE", ours="400 count"),
    Case("a fraction for a long param", "params", {"inputs": {"x": [1.5]}, "params": {"count": 7.5}}, mlflow="400 INVALID_PARAMETER_VALUE", ours="400 count"),
    Case("text for a long param", "params", {"inputs": {"x": [1.5]}, "params": {"count": "7"}}, mlflow="400 INVALID_PARAMETER_VALUE", ours="400 count"),
    Case("a boolean for a long param", "params", {"inputs": {"x": [1.5]}, "params": {"count": True}}, mlflow="400 INVALID_PARAMETER_VALUE", ours="400 count"),
    Case("an integer for a boolean param", "params", {"inputs": {"x": [1.5]}, "params": {"flag": 1}}, mlflow="400 INVALID_PARAMETER_VALUE", ours="400 flag"),
    Case("text for a boolean param", "params", {"inputs": {"x": [1.5]}, "params": {"flag": "true"}}, mlflow="400 INVALID_PARAMETER_VALUE", ours="400 flag"),
    Case("null for a param", "params", {"inputs": {"x": [1.5]}, "params": {"count": None}}, mlflow="200 x: float64 [1.5]; {count: null, flag: false, rate: 0.5, since: 2024-01-01T00:00:00, steps: [1, 2], text: \"a\"}", ours="200 x: float64 [1.5]; {count: null, flag: false, rate: 0.5, since: 2024-01-01T00:00:00, steps: [1, 2], text: \"a\"}"),
    Case("2^63 for a long param", "params", {"inputs": {"x": [1.5]}, "params": {"count": 2**63}}, mlflow="200 x: float64 [1.5]; {count: 9223372036854775808, flag: false, rate: 0.5, since: 2024-01-01T00:00:00, steps: [1, 2], text: \"a\"}", ours="400 count", why="No long holds it."),
    Case("a time for a datetime param", "params", {"inputs": {"x": [1.5]}, "params": {"since": "2025-01-01 12:00:00"}}, mlflow="200 x: float64 [1.5]; {count: 5, flag: false, rate: 0.5, since: 2025-01-01T12:00:00, steps: [1, 2], text: \"a\"}", ours="200 x: float64 [1.5]; {count: 5, flag: false, rate: 0.5, since: 2025-01-01T12:00:00, steps: [1, 2], text: \"a\"}"),
    Case("a date for a datetime param", "params", {"inputs": {"x": [1.5]}, "params": {"since": "2025-01-01"}}, mlflow="200 x: float64 [1.5]; {count: 5, flag: false, rate: 0.5, since: 2025-01-01, steps: [1, 2], text: \"a\"}", ours="200 x: float64 [1.5]; {count: 5, flag: false, rate: 0.5, since: 2025-01-01, steps: [1, 2], text: \"a\"}"),
    Case("words for a datetime param", "params", {"inputs": {"x": [1.5]}, "params": {"since": "yesterday"}}, mlflow="400 INVALID_PARAMETER_VALUE", ours="400 since"),
    Case("a number for a datetime param", "params", {"inputs": {"x": [1.5]}, "params": {"since": 5}}, mlflow="400 INVALID_PARAMETER_VALUE", ours="400 since"),
    Case("an empty list param", "params", {"inputs": {"x": [1.5]}, "params": {"steps": []}}, mlflow="200 x: float64 [1.5]; {count: 5, flag: false, rate: 0.5, since: 2024-01-01T00:00:00, steps: [], text: \"a\"}", ours="200 x: float64 [1.5]; {count: 5, flag: false, rate: 0.5, since: 2024-01-01T00:00:00, steps: [], text: \"a\"}"),
    Case("a list param with text", "params", {"inputs": {"x": [1.5]}, "params": {"steps": ["3"]}}, mlflow="400 INVALID_PARAMETER_VALUE", ours="400 steps"),
    Case("a list param of two dimensions", "params", {"inputs": {"x": [1.5]}, "params": {"steps": [[3]]}}, mlflow="400 INVALID_PARAMETER_VALUE", ours="400 steps"),
    Case("a number for a list param", "params", {"inputs": {"x": [1.5]}, "params": {"steps": 3}}, mlflow="400 INVALID_PARAMETER_VALUE", ours="400 steps"),
    Case("a list for a plain param", "params", {"inputs": {"x": [1.5]}, "params": {"count": [7]}}, mlflow="400 INVALID_PARAMETER_VALUE", ours="400 count"),
    Case("params that are an array", "params", {"inputs": {"x": [1.5]}, "params": [1]}, mlflow="400 INVALID_PARAMETER_VALUE", ours="400 params"),
    Case("params that are text", "params", {"inputs": {"x": [1.5]}, "params": "x"}, mlflow="400 INVALID_PARAMETER_VALUE", ours="400 params"),
    Case("params beside records", "params", {"dataframe_records": [{"x": 1.5}], "params": {"count": 7}}, mlflow="200 x: float64 [1.5]; {count: 7, flag: false, rate: 0.5, since: 2024-01-01T00:00:00, steps: [1, 2], text: \"a\"}", ours="200 x: float64 [1.5]; {count: 7, flag: false, rate: 0.5, since: 2024-01-01T00:00:00, steps: [1, 2], text: \"a\"}"),
    Case("params for a model without any", "table", {"dataframe_records": [{"a": 1, "b": 2.5, "c": "s"}], "params": {"count": 7}}, mlflow="200 a: int64 [1], b: float64 [2.5], c: object [\"s\"]; {}", ours="200 a: int64 [1], b: float64 [2.5], c: object [\"s\"]", why="The model takes none and gets none."),
    Case("params that are an array for a model without any", "table", {"dataframe_records": [{"a": 1, "b": 2.5, "c": "s"}], "params": [1]}, mlflow="200 a: int64 [1], b: float64 [2.5], c: object [\"s\"]; {}", ours="400 params", why="Params are an object."),
    Case("a param in a body without a wrapper", "no signature", {"prompt": "hello", "count": 7}, mlflow="200 prompt: \"hello\", count: 7; {}", ours="200 prompt: \"hello\", count: 7; {}"),
]
