"""MLflow's `/invocations` dialect.

`MlflowCodec` decodes a body by the model's signature, `render_predictions` writes the reply; `parse_envelope` reads
all but the data.
"""

from steelyard.protocols.mlflow.codec import Decoded, MlflowCodec
from steelyard.protocols.mlflow.frame import to_frame, to_model_input
from steelyard.protocols.mlflow.request import Format, Invocation, parse_envelope, parse_invocation
from steelyard.protocols.mlflow.response import render_plain, render_predictions, to_plain
from steelyard.protocols.mlflow.schema import Column, ColumnType, InputSchema, Tensor, parse_input_schema

__all__ = [
    "Column",
    "ColumnType",
    "Decoded",
    "Format",
    "InputSchema",
    "Invocation",
    "MlflowCodec",
    "Tensor",
    "parse_envelope",
    "parse_input_schema",
    "parse_invocation",
    "render_plain",
    "render_predictions",
    "to_frame",
    "to_model_input",
    "to_plain",
]
