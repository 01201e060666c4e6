"""Columns of a table: a theme of the table, one request a line."""

# ruff: noqa: E501
# fmt: off

from support.scoring.case import CSV, Case

TITLE = "Columns of a table"
CASES = [
    Case("another order in split", "table", {"dataframe_split": {"columns": ["c", "a", "b"], "data": [["s", 1, 2.5]]}}, mlflow="200 a: int64 [1], b: float64 [2.5], c: object [\"s\"]", ours="200 a: int64 [1], b: float64 [2.5], c: object [\"s\"]"),
    Case("another order in records", "table", {"dataframe_records": [{"c": "s", "b": 2.5, "a": 1}]}, mlflow="200 a: int64 [1], b: float64 [2.5], c: object [\"s\"]", ours="200 a: int64 [1], b: float64 [2.5], c: object [\"s\"]"),
    Case("a column too many in records", "table", {"dataframe_records": [{"a": 1, "b": 2.5, "c": "s", "d": 4}]}, mlflow="200 a: int64 [1], b: float64 [2.5], c: object [\"s\"]", ours="200 a: int64 [1], b: float64 [2.5], c: object [\"s\"]"),
    Case("a column too many in split", "table", {"dataframe_split": {"columns": ["a", "b", "c", "d"], "data": [[1, 2.5, "s", 4]]}}, mlflow="200 a: int64 [1], b: float64 [2.5], c: object [\"s\"]", ours="200 a: int64 [1], b: float64 [2.5], c: object [\"s\"]"),
    Case("a column too many in inputs", "table", {"inputs": {"a": [1], "b": [2.5], "c": ["s"], "d": [4, 5]}}, mlflow="400 INVALID_PARAMETER_VALUE", ours="200 a: int64 [1], b: float64 [2.5], c: object [\"s\"]", why="It is dropped, as in every other form."),
    Case("a missing column in records", "table", {"dataframe_records": [{"a": 1, "b": 2.5}]}, mlflow="400 INVALID_PARAMETER_VALUE", ours="400 c"),
    Case("a missing column in split", "table", {"dataframe_split": {"columns": ["a", "b"], "data": [[1, 2.5]]}}, mlflow="400 INVALID_PARAMETER_VALUE", ours="400 c"),
    Case("a missing column in inputs", "table", {"inputs": {"a": [1], "b": [2.5]}}, mlflow="400 INVALID_PARAMETER_VALUE", ours="400 c"),
    Case("a missing column in instances", "table", {"instances": [{"a": 1, "b": 2.5}]}, mlflow="400 INVALID_PARAMETER_VALUE", ours="400 c"),
    Case("another case", "table", {"dataframe_records": [{"A": 1, "b": 2.5, "c": "s"}]}, mlflow="400 INVALID_PARAMETER_VALUE", ours="400 a"),
    Case("a column missing in one row", "table", {"dataframe_records": [{"a": 1, "b": 2.5, "c": "s"}, {"a": 2, "c": "t"}]}, mlflow="200 a: int64 [1, 2], b: float64 [2.5, nan], c: object [\"s\", \"t\"]", ours="400 b", why="MLflow fills it with a missing value; null says that on purpose."),
    Case("a string column missing in one row", "table", {"dataframe_records": [{"a": 1, "b": 2.5, "c": "s"}, {"a": 2, "b": 3.5}]}, mlflow="200 a: int64 [1, 2], b: float64 [2.5, 3.5], c: object [\"s\", nan]", ours="400 c", why="MLflow fills it with a missing value; null says that on purpose."),
    Case("a column too many in one row", "table", {"dataframe_records": [{"a": 1, "b": 2.5, "c": "s"}, {"a": 1, "b": 2.5, "c": "s", "d": 1}]}, mlflow="200 a: int64 [1, 1], b: float64 [2.5, 2.5], c: object [\"s\", \"s\"]", ours="200 a: int64 [1, 1], b: float64 [2.5, 2.5], c: object [\"s\", \"s\"]"),
    Case("columns of different length in inputs", "table", {"inputs": {"a": [1, 2], "b": [2.5], "c": ["s"]}}, mlflow="400 INVALID_PARAMETER_VALUE", ours="400 inputs"),
    Case("rows as arrays in inputs", "table", {"inputs": [[1, 2.5, "s"]]}, mlflow="400 BAD_REQUEST", ours="400 inputs"),
    Case("rows as arrays in instances", "table", {"instances": [[1, 2.5, "s"]]}, mlflow="400 BAD_REQUEST", ours="400 instances"),
    Case("objects and arrays mixed", "table", {"inputs": [{"a": 1, "b": 2.5, "c": "s"}, [1, 2.5, "s"]]}, mlflow="400 BAD_REQUEST", ours="400 inputs"),
    Case("names beyond ASCII", "unicode", {"dataframe_records": [{"größe (m²)": 1.5, "名前": "花"}]}, mlflow="200 größe (m²): float64 [1.5], 名前: object [\"花\"]", ours="200 größe (m²): float64 [1.5], 名前: object [\"花\"]"),
    Case("names beyond ASCII in CSV", "unicode", "größe (m²),名前\n1.5,花\n", mlflow="200 größe (m²): float64 [1.5], 名前: object [\"花\"]", ours="200 größe (m²): float64 [1.5], 名前: object [\"花\"]", media=CSV),
    Case("unnamed columns in inputs", "unnamed", {"inputs": [[1.5, 2]]}, mlflow="400 INVALID_PARAMETER_VALUE", ours="200 0: float64 [1.5], 1: int64 [2]", why="MLflow casts all columns to the first one's type, then refuses its own cast."),
    Case("unnamed columns in split", "unnamed", {"dataframe_split": {"data": [[1.5, 2]]}}, mlflow="200 0: float64 [1.5], 1: int64 [2]", ours="200 0: float64 [1.5], 1: int64 [2]"),
    Case("unnamed columns with names in split", "unnamed", {"dataframe_split": {"columns": ["p", "q"], "data": [[1.5, 2]]}}, mlflow="200 p: float64 [1.5], q: int64 [2]", ours="200 p: float64 [1.5], q: int64 [2]"),
    Case("unnamed columns with names in records", "unnamed", {"dataframe_records": [{"p": 1.5, "q": 2}]}, mlflow="200 p: float64 [1.5], q: int64 [2]", ours="200 p: float64 [1.5], q: int64 [2]"),
    Case("one unnamed column too few", "unnamed", {"inputs": [[1.5]]}, mlflow="400 INVALID_PARAMETER_VALUE", ours="400 inputs"),
    Case("one unnamed column too few in split", "unnamed", {"dataframe_split": {"data": [[1.5]]}}, mlflow="400 INVALID_PARAMETER_VALUE", ours="400"),
    Case("one unnamed column too many", "unnamed", {"inputs": [[1.5, 2, 3]]}, mlflow="400 INVALID_PARAMETER_VALUE", ours="400 inputs"),
    Case("unnamed columns in CSV", "unnamed", "p,q\n1.5,2\n", mlflow="200 p: float64 [1.5], q: int64 [2]", ours="200 p: float64 [1.5], q: int64 [2]", media=CSV),
    Case("texts", "texts", {"inputs": ["a", "b"]}, mlflow="200 0: object [\"a\", \"b\"]", ours="200 0: object [\"a\", \"b\"]"),
    Case("texts in instances", "texts", {"instances": ["a", "b"]}, mlflow="200 0: object [\"a\", \"b\"]", ours="200 0: object [\"a\", \"b\"]"),
    Case("one bare text", "texts", {"inputs": "a"}, mlflow="200 0: object [\"a\"]", ours="200 0: object [\"a\"]"),
    Case("texts as an object", "texts", {"inputs": {"t": ["a"]}}, mlflow="400 BAD_REQUEST", ours="200 t: object [\"a\"]", why="One column is one column, whatever its name."),
    Case("texts in rows", "texts", {"inputs": [["a"], ["b"]]}, mlflow="200 0: object [\"a\", \"b\"]", ours="200 0: object [\"a\", \"b\"]"),
    Case("a single column as a list", "long", {"inputs": [1, 2]}, mlflow="200 x: int64 [1, 2]", ours="200 x: int64 [1, 2]"),
    Case("a single column as a bare value", "long", {"inputs": 1}, mlflow="400 INVALID_PARAMETER_VALUE", ours="200 x: int64 [1]", why="A bare value is one row, as it is for an unnamed column."),
]
