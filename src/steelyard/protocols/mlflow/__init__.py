"""MLflow's `/invocations` dialect.

`parse_invocation` reads the envelope, `build_payload` the data by the model's signature, `render_predictions` writes
the reply.
"""

from steelyard.protocols.mlflow.payload import build_payload
from steelyard.protocols.mlflow.request import Format, Invocation, parse_invocation
from steelyard.protocols.mlflow.response import render_plain, render_predictions, to_plain
from steelyard.protocols.mlflow.schema import Column, ColumnType, InputSchema, Tensor, parse_input_schema

__all__ = [
    "Column",
    "ColumnType",
    "Format",
    "InputSchema",
    "Invocation",
    "Tensor",
    "build_payload",
    "parse_input_schema",
    "parse_invocation",
    "render_plain",
    "render_predictions",
    "to_plain",
]
