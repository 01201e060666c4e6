"""A native runtime together with the dialects that reach it: typed rows out of a query, an answer out of its outputs.

Made by `proven.py` for a model that was proven, used by the replica. It decides nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from steelyard.errors import BadRequest
from steelyard.protocols import open_inference
from steelyard.protocols.inputs import Inputs, Outputs
from steelyard.protocols.media import Media
from steelyard.protocols.mlflow import InputSchema, MlflowCodec, render_predictions
from steelyard.protocols.query import Answer, Dialect, Query
from steelyard.runtimes.base import RowRuntime
from steelyard.runtimes.proof.measure import Cost

Render = Callable[[Outputs], "bytes | Answer"]  # bytes are JSON


class NativeModel:
    """`cost` is the runtime's, as it was measured. Methods may be called on any thread."""

    def __init__(self, runtime: RowRuntime, cost: Cost, codec: MlflowCodec, outputs: InputSchema | None) -> None:
        self.runtime = runtime
        self.cost = cost
        self.batchable = codec.batchable  # whether rows of several requests may be one call
        self._codec = codec
        self._tensors = open_inference.Decoder(codec.schema)
        self._output_name = open_inference.output_name(outputs)

    def decode(self, query: Query) -> tuple[Inputs, Render]:
        """The rows of a query and what renders their answers. Raises BadRequest and its kin."""
        if query.dialect is Dialect.OPEN_INFERENCE:
            request = self._tensors.decode(query.body, query.json_bytes)
            encode = partial(
                open_inference.encode,
                request=request,
                model=query.model,
                version=query.version,
                output_name=self._output_name,
            )
            return request.inputs, encode
        return self.decode_rows(query.body, query.media), render_predictions

    def decode_rows(self, body: bytes, media: Media) -> Inputs:
        """The rows of an MLflow body. Raises BadRequest and its kin."""
        decoded = self._codec.decode(body, media)
        if decoded.stream:
            raise BadRequest("This model cannot stream; send the request without 'stream'.")
        if decoded.inputs is None:
            raise BadRequest(
                "This model takes rows; send 'dataframe_split', 'dataframe_records', 'instances' or 'inputs'."
            )
        return decoded.inputs
