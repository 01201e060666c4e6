"""Fractions: a theme of the table, one request a line."""

# ruff: noqa: E501
# fmt: off

from support.scoring.case import Case

TITLE = "Fractions"
CASES = [
    Case("double", "double", {"dataframe_records": [{"x": 2.5}]}, mlflow="200 x: float64 [2.5]", ours="200 x: float64 [2.5]"),
    Case("double of an integer", "double", {"dataframe_records": [{"x": 2}]}, mlflow="200 x: float64 [2.0]", ours="200 x: float64 [2.0]"),
    Case("double of a large integer", "double", {"dataframe_records": [{"x": 2**60}]}, mlflow="200 x: float64 [1.152921504606847e+18]", ours="200 x: float64 [1.152921504606847e+18]"),
    Case("double of an integer in inputs", "double", {"inputs": {"x": [2**60]}}, mlflow="200 x: float64 [1.152921504606847e+18]", ours="200 x: float64 [1.152921504606847e+18]"),
    Case("double of integers and fractions", "double", {"dataframe_records": [{"x": 2}, {"x": 2.5}]}, mlflow="200 x: float64 [2.0, 2.5]", ours="200 x: float64 [2.0, 2.5]"),
    Case("double 2^53 + 1", "double", {"dataframe_records": [{"x": 2**53 + 1}]}, mlflow="200 x: float64 [9007199254740992.0]", ours="200 x: float64 [9007199254740992.0]"),
    Case("double \"2.5\"", "double", {"dataframe_records": [{"x": "2.5"}]}, mlflow="200 x: float64 [2.5]", ours="400 x", why="Text is no number."),
    Case("double \"2.5\" in inputs", "double", {"inputs": {"x": ["2.5"]}}, mlflow="200 x: float64 [2.5]", ours="400 x", why="Text is no number."),
    Case("double \"NaN\"", "double", {"dataframe_records": [{"x": "NaN"}]}, mlflow="200 x: float64 [nan]", ours="400 x", why="Text is no number; a missing one is null."),
    Case("double true", "double", {"dataframe_records": [{"x": True}]}, mlflow="200 x: float64 [1.0]", ours="400 x", why="A boolean is no number."),
    Case("double null", "double", {"dataframe_records": [{"x": None}]}, mlflow="200 x: float64 [nan]", ours="200 x: float64 [nan]"),
    Case("double, one null", "double", {"dataframe_records": [{"x": 1.5}, {"x": None}]}, mlflow="200 x: float64 [1.5, nan]", ours="200 x: float64 [1.5, nan]"),
    Case("double null in inputs", "double", {"inputs": {"x": [None]}}, mlflow="200 x: float64 [nan]", ours="200 x: float64 [nan]"),
    Case("double -0.0", "double", {"dataframe_records": [{"x": -0.0}]}, mlflow="200 x: float64 [-0.0]", ours="200 x: float64 [-0.0]"),
    Case("double 5e-324", "double", "{\"dataframe_records\": [{\"x\": 5e-324}]}", mlflow="200 x: float64 [5e-324]", ours="200 x: float64 [5e-324]"),
    Case("double 0.1 + 0.2", "double", {"dataframe_records": [{"x": 0.30000000000000004}]}, mlflow="200 x: float64 [0.30000000000000004]", ours="200 x: float64 [0.30000000000000004]"),
    Case("double an integer of 400 digits", "double", '{"dataframe_records": [{"x": 1' + '0' * 400 + '}]}', mlflow="400 BAD_REQUEST", ours="400 x", shown="{\"dataframe_records\": [{\"x\": 1000…}]}"),
    Case("double an array", "double", {"dataframe_records": [{"x": [1.5]}]}, mlflow="400 BAD_REQUEST", ours="400 x"),
    Case("float", "float", {"dataframe_records": [{"x": 0.1}]}, mlflow="200 x: float32 [0.10000000149011612]", ours="200 x: float32 [0.10000000149011612]"),
    Case("float of an integer", "float", {"dataframe_records": [{"x": 3}]}, mlflow="200 x: float32 [3.0]", ours="200 x: float32 [3.0]"),
    Case("float 2^24 + 1", "float", {"dataframe_records": [{"x": 2**24 + 1}]}, mlflow="200 x: float32 [16777216.0]", ours="200 x: float32 [16777216.0]"),
    Case("float 1e40", "float", {"dataframe_records": [{"x": 1e+40}]}, mlflow="200 x: float32 [inf]", ours="400 x", why="No 32-bit float holds it; MLflow makes it infinite."),
    Case("float 1e40 in inputs", "float", {"inputs": {"x": [1e+40]}}, mlflow="200 x: float32 [inf]", ours="400 x", why="No 32-bit float holds it; MLflow makes it infinite."),
    Case("float null", "float", {"dataframe_records": [{"x": None}]}, mlflow="200 x: float32 [nan]", ours="200 x: float32 [nan]"),
    Case("optional double, one null", "double?", {"dataframe_records": [{"k": 1, "x": 1.5}, {"k": 2, "x": None}]}, mlflow="200 k: int64 [1, 2], x: float64 [1.5, nan]", ours="200 k: int64 [1, 2], x: float64 [1.5, nan]"),
    Case("optional double, nothing but null", "double?", {"dataframe_records": [{"k": 1, "x": None}]}, mlflow="200 k: int64 [1], x: float64 [nan]", ours="200 k: int64 [1], x: float64 [nan]"),
    Case("optional double, nothing but null in split", "double?", {"dataframe_split": {"columns": ["k", "x"], "data": [[1, None]]}}, mlflow="200 k: int64 [1], x: float64 [nan]", ours="200 k: int64 [1], x: float64 [nan]"),
    Case("optional double, nothing but null in inputs", "double?", {"inputs": {"k": [1], "x": [None]}}, mlflow="200 k: int64 [1], x: float64 [nan]", ours="200 k: int64 [1], x: float64 [nan]"),
    Case("optional double, absent", "double?", {"dataframe_records": [{"k": 1}]}, mlflow="200 k: int64 [1]", ours="200 k: int64 [1]"),
    Case("optional float, nothing but null", "float?", {"dataframe_records": [{"k": 1, "x": None}]}, mlflow="200 k: int64 [1], x: float32 [nan]", ours="200 k: int64 [1], x: float32 [nan]"),
]
