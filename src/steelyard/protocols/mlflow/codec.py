"""A model's own decoder of `/invocations` bodies: built once from its signature, used for every request.

Replica and worker hold the same one, so that a native runtime and the model's own code get the same rows. The compiled
plan is asked first; what it leaves, faults above all, is the general path's. It never looks at a model.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from steelyard.errors import BadRequest
from steelyard.protocols.inputs import Inputs, Outputs
from steelyard.protocols.media import Media
from steelyard.protocols.mlflow.general import decode_invocation, decode_table
from steelyard.protocols.mlflow.params import check_params, parse_params_schema
from steelyard.protocols.mlflow.plan import compile_plan
from steelyard.protocols.mlflow.request import Format, Invocation, parse_envelope, parse_invocation
from steelyard.protocols.mlflow.response import render_plain, render_predictions
from steelyard.protocols.mlflow.schema import InputSchema, parse_input_schema
from steelyard.protocols.mlflow.untyped import free_payload, free_table


@dataclass(slots=True)
class Decoded:
    """Either `inputs`, typed by the signature, or `free`: what a model without one takes, what type hints describe, or
    the whole body of a chat-like request. `format` is for `encode`: only UNWRAPPED makes a difference to an answer, so
    that typed rows of the compiled plan are SPLIT whatever they came as."""

    inputs: Inputs | None
    format: Format
    free: Any = None
    params: dict[str, Any] | None = None
    stream: bool = False
    client_request_id: str | None = None


class MlflowCodec:
    """Raises ValueError when the signature cannot be read. Safe in any number of threads."""

    def __init__(
        self, signature_inputs: str | None, signature_params: str | None = None, from_type_hints: bool = False
    ) -> None:
        self.schema: InputSchema | None = parse_input_schema(signature_inputs)
        self._params = parse_params_schema(signature_params)
        self._from_type_hints = from_type_hints
        typed = self.schema is not None and not from_type_hints
        self._plan = compile_plan(self.schema) if typed and self.schema is not None else None

    @property
    def batchable(self) -> bool:
        """Whether rows of several requests may be joined: not where the signature fixes their number."""
        return self.schema is not None and all(tensor.shape[:1] == (-1,) for tensor in self.schema.tensors)

    def check(self, body: bytes, media: Media) -> bool:
        """Whether to stream, before the data is decoded. Raises BadRequest for a wrong envelope."""
        return media is Media.JSON and parse_envelope(body).stream

    def decode(self, body: bytes, media: Media) -> Decoded:
        """Raises BadRequest or InvalidParameter naming the column."""
        if self._plan is not None and media is Media.JSON:
            inputs = self._plan.decode(body)
            if inputs is not None:
                return Decoded(inputs, Format.SPLIT, None, check_params(None, self._params) if self._params else None)
        return self._decode_table(body, media) if media.is_columnar else self._decode(parse_invocation(body, media))

    def encode(self, output: Outputs | Any, format: Format) -> bytes:
        """The reply's JSON. Raises ModelFailed for an output that has no JSON form."""
        return render_plain(output) if format is Format.UNWRAPPED else render_predictions(output)

    def _decode_table(self, body: bytes, media: Media) -> Decoded:
        if self._from_type_hints:
            raise BadRequest("The model's inputs follow Python type hints; send them as JSON in 'inputs'.")
        params = check_params(None, self._params)
        if self.schema is None:
            return Decoded(None, Format.SPLIT, free_table(body, media), params)
        return Decoded(decode_table(body, media, self.schema), Format.SPLIT, None, params)

    def _decode(self, invocation: Invocation) -> Decoded:
        layout = invocation.format
        if layout is Format.UNWRAPPED:
            return self._unwrapped(invocation)
        inputs, free = None, None
        if self._from_type_hints:
            if layout is not Format.INPUTS:
                raise BadRequest("The model's inputs follow Python type hints; send them in 'inputs'.")
            free = invocation.data
        elif self.schema is None:
            free = free_payload(invocation)
        else:
            inputs = decode_invocation(invocation, self.schema)
        params = check_params(invocation.params, self._params)
        return Decoded(inputs, layout, free, params, invocation.stream, invocation.client_request_id)

    def _unwrapped(self, invocation: Invocation) -> Decoded:
        """The signature's params stand beside the messages."""
        names = self._params.names if self._params is not None else ()
        given = {name: value for name, value in invocation.data.items() if name in names}
        data = {name: value for name, value in invocation.data.items() if name not in given}
        params = check_params(given, self._params) or {}  # never None, as in MLflow: such models ask it for values
        return Decoded(None, Format.UNWRAPPED, data, params, invocation.stream, invocation.client_request_id)
