"""An invocation's data as what a pyfunc model takes: a pandas frame, an array, a dict of arrays, or the body itself.

Called in a model's worker with the model's input schema, where no `MlflowCodec` is at hand. It only puts the decoder
(`general.py`, `untyped.py`) and the frame (`frame.py`) together.
"""

from __future__ import annotations

from typing import Any

from steelyard.protocols.mlflow.frame import to_model_input
from steelyard.protocols.mlflow.general import decode_invocation
from steelyard.protocols.mlflow.request import Format, Invocation
from steelyard.protocols.mlflow.schema import InputSchema
from steelyard.protocols.mlflow.untyped import free_payload


def build_payload(invocation: Invocation, schema: InputSchema | None) -> Any:
    """The model's input. Raises BadRequest or InvalidParameter naming the column."""
    if invocation.format is Format.UNWRAPPED:
        return invocation.data
    if schema is None:
        return free_payload(invocation)
    return to_model_input(decode_invocation(invocation, schema), schema)
