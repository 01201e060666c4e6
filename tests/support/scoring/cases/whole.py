"""Whole numbers: a theme of the table, one request a line."""

# ruff: noqa: E501
# fmt: off

from support.scoring.case import Case

TITLE = "Whole numbers"
CASES = [
    Case("long", "long", {"dataframe_records": [{"x": 1}]}, mlflow="200 x: int64 [1]", ours="200 x: int64 [1]"),
    Case("long 1.0", "long", {"dataframe_records": [{"x": 1.0}]}, mlflow="200 x: int64 [1]", ours="200 x: int64 [1]"),
    Case("long 1.0 in inputs", "long", {"inputs": {"x": [1.0]}}, mlflow="200 x: int64 [1]", ours="200 x: int64 [1]"),
    Case("long 1.5", "long", {"dataframe_records": [{"x": 1.5}]}, mlflow="200 x: int64 [1]", ours="400 x", why="MLflow cuts the fraction off."),
    Case("long 1.5 in inputs", "long", {"inputs": {"x": [1.5]}}, mlflow="200 x: int64 [1]", ours="400 x", why="MLflow cuts the fraction off."),
    Case("long 1e3", "long", "{\"dataframe_records\": [{\"x\": 1e3}]}", mlflow="200 x: int64 [1000]", ours="200 x: int64 [1000]"),
    Case("long \"1\"", "long", {"dataframe_records": [{"x": "1"}]}, mlflow="200 x: int64 [1]", ours="400 x", why="Text is no number."),
    Case("long \"1\" in inputs", "long", {"inputs": {"x": ["1"]}}, mlflow="200 x: int64 [1]", ours="400 x", why="Text is no number."),
    Case("long true", "long", {"dataframe_records": [{"x": True}]}, mlflow="200 x: int64 [1]", ours="400 x", why="A boolean is no number."),
    Case("long null", "long", {"dataframe_records": [{"x": None}]}, mlflow="400 BAD_REQUEST", ours="400 x"),
    Case("long 2^53 + 1", "long", {"dataframe_records": [{"x": 2**53 + 1}]}, mlflow="200 x: int64 [9007199254740993]", ours="200 x: int64 [9007199254740993]"),
    Case("long 2^53 + 1 in inputs", "long", {"inputs": {"x": [2**53 + 1]}}, mlflow="200 x: int64 [9007199254740993]", ours="200 x: int64 [9007199254740993]"),
    Case("long 2^53 + 1 beside a fraction", "long", {"dataframe_records": [{"x": 2**53 + 1}, {"x": 1.0}]}, mlflow="200 x: int64 [9007199254740992, 1]", ours="200 x: int64 [9007199254740993, 1]", why="MLflow goes through doubles and changes the value."),
    Case("long 2^63 - 1", "long", {"dataframe_records": [{"x": 2**63 - 1}]}, mlflow="200 x: int64 [9223372036854775807]", ours="200 x: int64 [9223372036854775807]"),
    Case("long 2^63", "long", {"dataframe_records": [{"x": 2**63}]}, mlflow="200 x: int64 [-9223372036854775808]", ours="400 x", why="MLflow wraps it to the smallest long."),
    Case("long 2^63 in inputs", "long", {"inputs": {"x": [2**63]}}, mlflow="400 BAD_REQUEST", ours="400 x"),
    Case("long -2^63", "long", {"dataframe_records": [{"x": -(2**63)}]}, mlflow="200 x: int64 [-9223372036854775808]", ours="200 x: int64 [-9223372036854775808]"),
    Case("long 2^64", "long", {"dataframe_records": [{"x": 2**64}]}, mlflow="400 BAD_REQUEST", ours="400 x"),
    Case("long an array", "long", {"dataframe_records": [{"x": [1]}]}, mlflow="400 BAD_REQUEST", ours="400 x"),
    Case("long an object", "long", {"dataframe_records": [{"x": {"v": 1}}]}, mlflow="400 BAD_REQUEST", ours="400 x"),
    Case("integer", "integer", {"dataframe_records": [{"x": 1}]}, mlflow="200 x: int32 [1]", ours="200 x: int32 [1]"),
    Case("integer 1.5", "integer", {"dataframe_records": [{"x": 1.5}]}, mlflow="200 x: int32 [1]", ours="400 x", why="MLflow cuts the fraction off."),
    Case("integer 2^31", "integer", {"dataframe_records": [{"x": 2**31}]}, mlflow="200 x: int32 [-2147483648]", ours="400 x", why="MLflow wraps it to the smallest integer."),
    Case("integer 2^31 in inputs", "integer", {"inputs": {"x": [2**31]}}, mlflow="400 BAD_REQUEST", ours="400 x"),
    Case("integer null", "integer", {"dataframe_records": [{"x": None}]}, mlflow="400 BAD_REQUEST", ours="400 x"),
    Case("optional long, one null", "long?", {"dataframe_records": [{"k": 1, "x": 1}, {"k": 2, "x": None}]}, mlflow="400 BAD_REQUEST", ours="400 x"),
    Case("optional long, nothing but null", "long?", {"dataframe_records": [{"k": 1, "x": None}]}, mlflow="400 BAD_REQUEST", ours="200 k: int64 [1]", why="As good as absent: integers have no missing value."),
    Case("optional long, absent", "long?", {"dataframe_records": [{"k": 1}]}, mlflow="200 k: int64 [1]", ours="200 k: int64 [1]"),
    Case("optional long, absent in one row", "long?", {"dataframe_records": [{"k": 1, "x": 5}, {"k": 2}]}, mlflow="400 BAD_REQUEST", ours="400 x"),
    Case("optional integer, one null", "integer?", {"dataframe_records": [{"k": 1, "x": 1}, {"k": 2, "x": None}]}, mlflow="400 BAD_REQUEST", ours="400 x"),
    Case("optional long null in inputs", "long?", {"inputs": {"k": [1, 2], "x": [1, None]}}, mlflow="400 BAD_REQUEST", ours="400 x"),
]
