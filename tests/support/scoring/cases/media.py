"""Media types: a theme of the table, one request a line."""

# ruff: noqa: E501
# fmt: off

from support.scoring import arrow_bodies
from support.scoring.case import CSV, Case

TITLE = "Media types"
CASES = [
    Case("application/json", "table", "{\"dataframe_records\": [{\"a\": 1, \"b\": 2.5, \"c\": \"s\"}]}", mlflow="200 a: int64 [1], b: float64 [2.5], c: object [\"s\"]", ours="200 a: int64 [1], b: float64 [2.5], c: object [\"s\"]", media='application/json'),
    Case("no Content-Type", "table", "{\"dataframe_records\": [{\"a\": 1, \"b\": 2.5, \"c\": \"s\"}]}", mlflow="500", ours="200 a: int64 [1], b: float64 [2.5], c: object [\"s\"]", why="A body that looks like JSON is read as JSON.", media=None),
    Case("no Content-Type and CSV", "table", "a,b,c\n1,2.5,s\n", mlflow="500", ours="415", why="The client is at fault, not the server.", media=None),
    Case("upper case", "table", "{\"dataframe_records\": [{\"a\": 1, \"b\": 2.5, \"c\": \"s\"}]}", mlflow="415", ours="200 a: int64 [1], b: float64 [2.5], c: object [\"s\"]", why="Media types have no case (RFC 9110).", media='Application/JSON'),
    Case("charset=utf-8", "table", "{\"dataframe_records\": [{\"a\": 1, \"b\": 2.5, \"c\": \"s\"}]}", mlflow="200 a: int64 [1], b: float64 [2.5], c: object [\"s\"]", ours="200 a: int64 [1], b: float64 [2.5], c: object [\"s\"]", media='application/json; charset=utf-8'),
    Case("charset in upper case", "table", "{\"dataframe_records\": [{\"a\": 1, \"b\": 2.5, \"c\": \"s\"}]}", mlflow="200 a: int64 [1], b: float64 [2.5], c: object [\"s\"]", ours="200 a: int64 [1], b: float64 [2.5], c: object [\"s\"]", media='application/json; charset=UTF-8'),
    Case("charset in quotes", "table", "{\"dataframe_records\": [{\"a\": 1, \"b\": 2.5, \"c\": \"s\"}]}", mlflow="415", ours="200 a: int64 [1], b: float64 [2.5], c: object [\"s\"]", why="Quotes around a parameter are legal (RFC 9110).", media='application/json; charset="utf-8"'),
    Case("Charset as a name", "table", "{\"dataframe_records\": [{\"a\": 1, \"b\": 2.5, \"c\": \"s\"}]}", mlflow="415", ours="200 a: int64 [1], b: float64 [2.5], c: object [\"s\"]", why="Parameter names have no case (RFC 9110).", media='application/json; Charset=utf-8'),
    Case("charset=UTF8", "table", "{\"dataframe_records\": [{\"a\": 1, \"b\": 2.5, \"c\": \"s\"}]}", mlflow="415", ours="200 a: int64 [1], b: float64 [2.5], c: object [\"s\"]", why="A usual spelling of UTF-8.", media='application/json; charset=UTF8'),
    Case("charset=us-ascii", "table", "{\"dataframe_records\": [{\"a\": 1, \"b\": 2.5, \"c\": \"s\"}]}", mlflow="415", ours="200 a: int64 [1], b: float64 [2.5], c: object [\"s\"]", why="ASCII is UTF-8.", media='application/json; charset=us-ascii'),
    Case("charset=latin-1", "table", "{\"dataframe_records\": [{\"a\": 1, \"b\": 2.5, \"c\": \"s\"}]}", mlflow="415", ours="415", media='application/json; charset=iso-8859-1'),
    Case("another parameter", "table", "{\"dataframe_records\": [{\"a\": 1, \"b\": 2.5, \"c\": \"s\"}]}", mlflow="415", ours="200 a: int64 [1], b: float64 [2.5], c: object [\"s\"]", why="Parameters that mean nothing here are ignored.", media='application/json; format=pandas-split'),
    Case("a JSON subtype", "table", "{\"dataframe_records\": [{\"a\": 1, \"b\": 2.5, \"c\": \"s\"}]}", mlflow="415", ours="200 a: int64 [1], b: float64 [2.5], c: object [\"s\"]", why="What ends in +json is JSON.", media='application/vnd.api+json'),
    Case("text/plain", "table", "{\"dataframe_records\": [{\"a\": 1, \"b\": 2.5, \"c\": \"s\"}]}", mlflow="415", ours="415", media='text/plain'),
    Case("a form", "table", "a=1", mlflow="415", ours="415", media='application/x-www-form-urlencoded'),
    Case("nonsense", "table", "{\"dataframe_records\": [{\"a\": 1, \"b\": 2.5, \"c\": \"s\"}]}", mlflow="415", ours="415", media='json'),
    Case("text/csv", "table", "a,b,c\n1,2.5,s\n", mlflow="200 a: int64 [1], b: float64 [2.5], c: object [\"s\"]", ours="200 a: int64 [1], b: float64 [2.5], c: object [\"s\"]", media=CSV),
    Case("text/csv with a charset", "table", "a,b,c\n1,2.5,s\n", mlflow="200 a: int64 [1], b: float64 [2.5], c: object [\"s\"]", ours="200 a: int64 [1], b: float64 [2.5], c: object [\"s\"]", media='text/csv; charset=utf-8'),
    Case("text/csv with header=present", "table", "a,b,c\n1,2.5,s\n", mlflow="415", ours="200 a: int64 [1], b: float64 [2.5], c: object [\"s\"]", why="RFC 4180 defines this parameter.", media='text/csv; header=present'),
    Case("Parquet", "table", arrow_bodies.PARQUET, mlflow="200 a: int64 [1], b: float64 [2.5], c: object [\"s\"]", ours="200 a: int64 [1], b: float64 [2.5], c: object [\"s\"]", media='application/vnd.apache.parquet', shown="(the table as Parquet)"),
    Case("Arrow stream", "table", arrow_bodies.STREAM, mlflow="415", ours="200 a: int64 [1], b: float64 [2.5], c: object [\"s\"]", why="Taken as Parquet is, for batches.", media='application/vnd.apache.arrow.stream', shown="(the table as Arrow stream)"),
]
