"""Arrays, objects, maps and any: a theme of the table, one request a line."""

# ruff: noqa: E501
# fmt: off

from support.scoring.case import Case

TITLE = "Arrays, objects, maps and any"
CASES = [
    Case("an array", "arrays", {"dataframe_records": [{"v": [1.5, 2.5], "tags": ["a"]}]}, mlflow="200 v: object [[1.5, 2.5]], tags: object [[\"a\"]]", ours="200 v: object [[1.5, 2.5]], tags: object [[\"a\"]]"),
    Case("an array in split", "arrays", {"dataframe_split": {"columns": ["v", "tags"], "data": [[[1.5, 2.5], ["a"]]]}}, mlflow="200 v: object [[1.5, 2.5]], tags: object [[\"a\"]]", ours="200 v: object [[1.5, 2.5]], tags: object [[\"a\"]]"),
    Case("arrays by row in inputs", "arrays", {"inputs": [{"v": [1.5, 2.5]}, {"v": [3.5]}]}, mlflow="200 v: object [[1.5, 2.5], [3.5]]", ours="200 v: object [[1.5, 2.5], [3.5]]"),
    Case("an array by column in inputs", "arrays", {"inputs": {"v": [1.5, 2.5]}}, mlflow="200 v: object [[1.5, 2.5]]", ours="200 v: object [[1.5, 2.5]]"),
    Case("an array in instances", "arrays", {"instances": [{"v": [1.5, 2.5]}]}, mlflow="400 INVALID_PARAMETER_VALUE", ours="200 v: object [[1.5, 2.5]]", why="The same rows mean the same in every form."),
    Case("integers in an array of doubles", "arrays", {"inputs": [{"v": [1, 2]}]}, mlflow="400 BAD_REQUEST", ours="200 v: object [[1.0, 2.0]]", why="Integers are doubles here as they are in a column."),
    Case("integers and fractions in an array of doubles", "arrays", {"inputs": [{"v": [1, 2.5]}]}, mlflow="200 v: object [[1.0, 2.5]]", ours="200 v: object [[1.0, 2.5]]"),
    Case("large integers in an array of doubles", "arrays", {"inputs": [{"v": [5, 6]}]}, mlflow="400 BAD_REQUEST", ours="200 v: object [[5.0, 6.0]]", why="Integers are doubles here as they are in a column."),
    Case("text in an array of doubles", "arrays", {"inputs": [{"v": ["1.5"]}]}, mlflow="400 BAD_REQUEST", ours="400 v"),
    Case("null in an array of doubles", "arrays", {"inputs": [{"v": [1.5, None]}]}, mlflow="200 v: object [[1.5, nan]]", ours="200 v: object [[1.5, nan]]"),
    Case("a number for an array", "arrays", {"inputs": [{"v": 1.5}]}, mlflow="400 BAD_REQUEST", ours="400 v"),
    Case("null for an array", "arrays", {"inputs": [{"v": None}]}, mlflow="400 BAD_REQUEST", ours="400 v"),
    Case("null for an optional array", "arrays", {"inputs": [{"v": [1.5], "tags": None}]}, mlflow="400 INVALID_PARAMETER_VALUE", ours="200 v: object [[1.5]], tags: object [null]", why="Null is the missing value of every optional column."),
    Case("an empty array", "arrays", {"inputs": [{"v": []}]}, mlflow="200 v: object [[]]", ours="200 v: object [[]]"),
    Case("numbers in an array of strings", "arrays", {"inputs": [{"v": [1.5], "tags": [1]}]}, mlflow="400 BAD_REQUEST", ours="400 tags"),
    Case("a missing array", "arrays", {"inputs": [{"tags": ["a"]}]}, mlflow="400 INVALID_PARAMETER_VALUE", ours="400 v"),
    Case("an array of arrays", "matrix", {"inputs": [{"m": [[1, 2], [3]]}]}, mlflow="400 BAD_REQUEST", ours="200 m: object [[[1, 2], [3]]]", why="MLflow builds a regular numpy array of it first, which these rows are not."),
    Case("an array of arrays with text", "matrix", {"inputs": [{"m": [[1], ["x"]]}]}, mlflow="400 BAD_REQUEST", ours="400 m"),
    Case("an array instead of an array of arrays", "matrix", {"inputs": [{"m": [1, 2]}]}, mlflow="400 BAD_REQUEST", ours="400 m"),
    Case("an object for a column", "object", {"inputs": [{"p": {"id": 1, "name": "n"}}]}, mlflow="200 p: object [{id: 1, name: \"n\"}]", ours="200 p: object [{id: 1, name: \"n\"}]"),
    Case("an object in records", "object", {"dataframe_records": [{"p": {"id": 1, "name": "n"}}]}, mlflow="200 p: object [{id: 1, name: \"n\"}]", ours="200 p: object [{id: 1, name: \"n\"}]"),
    Case("an object without its optional field", "object", {"inputs": [{"p": {"id": 1}}]}, mlflow="200 p: object [{id: 1}]", ours="200 p: object [{id: 1}]"),
    Case("an object without its required field", "object", {"inputs": [{"p": {"name": "n"}}]}, mlflow="400 BAD_REQUEST", ours="400 p"),
    Case("an object with an unknown field", "object", {"inputs": [{"p": {"id": 1, "size": 2}}]}, mlflow="400 BAD_REQUEST", ours="400 p"),
    Case("an object with a wrong type", "object", {"inputs": [{"p": {"id": "1"}}]}, mlflow="400 BAD_REQUEST", ours="400 p"),
    Case("an object with a fraction for a long", "object", {"inputs": [{"p": {"id": 1.5}}]}, mlflow="400 BAD_REQUEST", ours="400 p"),
    Case("text for an object", "object", {"inputs": [{"p": "text"}]}, mlflow="400 BAD_REQUEST", ours="400 p"),
    Case("null for an object", "object", {"inputs": [{"p": None}]}, mlflow="400 BAD_REQUEST", ours="400 p"),
    Case("an object by column", "object", {"inputs": {"p": {"id": 1}}}, mlflow="200 p: object [{id: 1}]", ours="200 p: object [{id: 1}]"),
    Case("a map", "map", {"inputs": [{"m": {"k": 1.5, "ü": 2.5}}]}, mlflow="200 m: object [{k: 1.5, ü: 2.5}]", ours="200 m: object [{k: 1.5, ü: 2.5}]"),
    Case("a map in records", "map", {"dataframe_records": [{"m": {"k": 1.5}}]}, mlflow="200 m: object [{k: 1.5}]", ours="200 m: object [{k: 1.5}]"),
    Case("a map with a wrong value", "map", {"inputs": [{"m": {"k": "x"}}]}, mlflow="400 BAD_REQUEST", ours="400 m"),
    Case("a map with integers", "map", {"inputs": [{"m": {"k": 7}}]}, mlflow="400 BAD_REQUEST", ours="200 m: object [{k: 7.0}]", why="Integers are doubles here as they are in a column."),
    Case("an empty map", "map", {"inputs": [{"m": {}}]}, mlflow="200 m: object [{}]", ours="200 m: object [{}]"),
    Case("an array for a map", "map", {"inputs": [{"m": [1.5]}]}, mlflow="400 BAD_REQUEST", ours="400 m"),
    Case("any: a number", "any", {"inputs": [{"x": 1}]}, mlflow="200 x: int64 [1]", ours="200 x: int64 [1]"),
    Case("any: an object", "any", {"inputs": [{"x": {"a": [1, {"b": None}]}}]}, mlflow="200 x: object [{a: [1, {b: null}]}]", ours="200 x: object [{a: [1, {b: null}]}]"),
    Case("any: different kinds", "any", {"inputs": [{"x": 1}, {"x": "s"}, {"x": [1]}]}, mlflow="200 x: object [1, \"s\", [1]]", ours="200 x: object [1, \"s\", [1]]"),
    Case("any: null", "any", {"inputs": [{"x": None}]}, mlflow="200 x: object [null]", ours="200 x: object [null]"),
    Case("any: in records", "any", {"dataframe_records": [{"x": [1, "s"]}]}, mlflow="200 x: object [[1, \"s\"]]", ours="200 x: object [[1, \"s\"]]"),
]
