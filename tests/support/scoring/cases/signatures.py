"""Models without a signature, with type hints, and bodies without a wrapper: a theme of the table, one request a line."""

# ruff: noqa: E501
# fmt: off

from support.scoring.case import Case

TITLE = "Models without a signature, with type hints, and bodies without a wrapper"
CASES = [
    Case("a list", "no signature", {"inputs": [1, 2]}, mlflow="200 int64 [2] [1, 2]", ours="200 int64 [2] [1, 2]"),
    Case("a matrix", "no signature", {"inputs": [[1, 2.5], [3, 4]]}, mlflow="200 float64 [2, 2] [[1.0, 2.5], [3.0, 4.0]]", ours="200 float64 [2, 2] [[1.0, 2.5], [3.0, 4.0]]"),
    Case("ragged lists", "no signature", {"inputs": [[1], [2, 3]]}, mlflow="400 BAD_REQUEST", ours="400 inputs"),
    Case("columns", "no signature", {"inputs": {"p": [1, 2], "q": ["x", "y"]}}, mlflow="200 p: int64 [2] [1, 2], q: <U1 [2] [\"x\", \"y\"]", ours="200 p: int64 [2] [1, 2], q: <U1 [2] [\"x\", \"y\"]"),
    Case("rows", "no signature", {"inputs": [{"p": 1, "q": "x"}, {"p": 2, "q": "y"}]}, mlflow="200 [{p: 1, q: \"x\"}, {p: 2, q: \"y\"}]", ours="200 [{p: 1, q: \"x\"}, {p: 2, q: \"y\"}]"),
    Case("rows in instances", "no signature", {"instances": [{"p": 1, "q": "x"}, {"p": 2, "q": "y"}]}, mlflow="200 p: int64 [2] [1, 2], q: <U1 [2] [\"x\", \"y\"]", ours="200 p: int64 [2] [1, 2], q: <U1 [2] [\"x\", \"y\"]"),
    Case("rows with different keys", "no signature", {"instances": [{"p": 1}, {"q": "y"}]}, mlflow="200 p: int64 [1] [1], q: <U1 [1] [\"y\"]", ours="400 instances", why="MLflow joins them to columns as if they were one row."),
    Case("records", "no signature", {"dataframe_records": [{"p": 1, "q": "x"}, {"p": 2.5, "q": None}]}, mlflow="200 p: float64 [1.0, 2.5], q: object [\"x\", nan]", ours="200 p: float64 [1.0, 2.5], q: object [\"x\", nan]"),
    Case("split", "no signature", {"dataframe_split": {"columns": ["p", "q"], "data": [[1, "x"]]}}, mlflow="200 p: int64 [1], q: object [\"x\"]", ours="200 p: int64 [1], q: object [\"x\"]"),
    Case("split without columns, without a signature", "no signature", {"dataframe_split": {"data": [[1, "x"]]}}, mlflow="200 0: int64 [1], 1: object [\"x\"]", ours="200 0: int64 [1], 1: object [\"x\"]"),
    Case("text", "no signature", {"inputs": "text"}, mlflow="200 <U4 [] \"text\"", ours="200 <U4 [] \"text\""),
    Case("a bare number as inputs", "no signature", {"inputs": 1.5}, mlflow="200 float64 [] 1.5", ours="200 float64 [] 1.5"),
    Case("null as instances", "no signature", {"instances": None}, mlflow="200 object [] null", ours="400 instances", why="There are no rows."),
    Case("large integers", "no signature", {"inputs": [2**63, 1]}, mlflow="200 float64 [2] [9.223372036854776e+18, 1.0]", ours="200 float64 [2] [9.223372036854776e+18, 1.0]"),
    Case("empty records without a signature", "no signature", {"dataframe_records": []}, mlflow="200 nothing", ours="200 nothing"),
    Case("empty inputs without a signature", "no signature", {"inputs": []}, mlflow="200 []", ours="200 []"),
    Case("hinted", "hinted", {"inputs": [{"name": "n", "age": 5}]}, mlflow="200 [\"n 5 None\"]", ours="200 [\"n 5 None\"]"),
    Case("hinted, optional field given", "hinted", {"inputs": [{"name": "n", "age": 5, "note": "x"}]}, mlflow="200 [\"n 5 'x'\"]", ours="200 [\"n 5 'x'\"]"),
    Case("hinted, several rows", "hinted", {"inputs": [{"name": "n", "age": 5}, {"name": "m", "age": 6}]}, mlflow="200 [\"n 5 None\", \"m 6 None\"]", ours="200 [\"n 5 None\", \"m 6 None\"]"),
    Case("hinted, no rows", "hinted", {"inputs": []}, mlflow="200 []", ours="200 []"),
    Case("hinted, a missing field", "hinted", {"inputs": [{"name": "n"}]}, mlflow="400 INVALID_PARAMETER_VALUE", ours="400"),
    Case("hinted, a wrong type", "hinted", {"inputs": [{"name": "n", "age": "old"}]}, mlflow="400 INVALID_PARAMETER_VALUE", ours="400"),
    Case("hinted, digits for a number", "hinted", {"inputs": [{"name": "n", "age": "5"}]}, mlflow="400 INVALID_PARAMETER_VALUE", ours="400"),
    Case("hinted, an unknown field", "hinted", {"inputs": [{"name": "n", "age": 5, "size": 1}]}, mlflow="200 [\"n 5 None\"]", ours="200 [\"n 5 None\"]"),
    Case("hinted, an object", "hinted", {"inputs": {"name": "n", "age": 5}}, mlflow="400 INVALID_PARAMETER_VALUE", ours="400"),
    Case("hinted, in records", "hinted", {"dataframe_records": [{"name": "n", "age": 5}]}, mlflow="400 INVALID_PARAMETER_VALUE", ours="400"),
    Case("hinted, in instances", "hinted", {"instances": [{"name": "n", "age": 5}]}, mlflow="400 INVALID_PARAMETER_VALUE", ours="400"),
    Case("messages", "no signature", {"messages": [{"role": "user", "content": "hi"}]}, mlflow="200 messages: [{role: \"user\", content: \"hi\"}]; {}", ours="200 messages: [{role: \"user\", content: \"hi\"}]; {}"),
    Case("a prompt", "no signature", {"prompt": "hi", "temperature": 0.5}, mlflow="200 prompt: \"hi\", temperature: 0.5; {}", ours="200 prompt: \"hi\", temperature: 0.5; {}"),
    Case("an input", "no signature", {"input": ["hi"]}, mlflow="200 input: [\"hi\"]; {}", ours="200 input: [\"hi\"]; {}"),
    Case("messages and inputs", "no signature", {"messages": [{"role": "user", "content": "hi"}], "inputs": [1]}, mlflow="200 messages: [{role: \"user\", content: \"hi\"}], inputs: [1]; {}", ours="200 int64 [1] [1]", why="A body with one of the four forms is read by it."),
    Case("messages for a model of columns", "table", {"messages": [{"role": "user", "content": "hi"}]}, mlflow="400 INVALID_PARAMETER_VALUE", ours="400 a"),
]
