"""An inference request's envelope: which tensors it holds, which outputs it wants and how, where JSON ends.

`read_envelope` is called by `decode.py` on each body. It checks the JSON's shape only; the tensors' data is checked
in `tensors.py`, by datatype and size.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec

from steelyard.errors import BadRequest, InvalidParameter
from steelyard.protocols.inputs import Inputs
from steelyard.protocols.strict_json import convert, decode_object, json_type

HEADER_LENGTH = "inference-header-content-length"  # header of requests and answers with binary data
# Ours or Triton's own; everything else in `parameters` is the model's
_RESERVED = frozenset((
    "binary_data_output", "content_type", "headers", "priority", "sequence_end", "sequence_id", "sequence_start",
    "timeout",
))  # fmt: skip


class InputTensor(msgspec.Struct):
    """As the JSON has it. `data` is None when the tensor is binary."""

    name: str
    datatype: str
    shape: list[int]
    data: Any = None
    parameters: dict[str, Any] | None = None


class OutputTensor(msgspec.Struct):
    name: str
    parameters: dict[str, Any] | None = None


class Envelope(msgspec.Struct):
    inputs: list[InputTensor]
    id: str = ""
    outputs: list[OutputTensor] | None = None
    parameters: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class RequestedOutput:
    name: str
    binary: bool


@dataclass(slots=True)
class InferRequest:
    """A decoded request. `outputs`: what the client asked for, in its order; empty: all, binary if `binary`.

    `params` are the request's parameters that are meant for the model.
    """

    inputs: Inputs
    id: str = ""
    outputs: tuple[RequestedOutput, ...] = ()
    binary: bool = False
    params: dict[str, Any] | None = None


_decode = msgspec.json.Decoder(Envelope).decode


def read_envelope(body: bytes, json_bytes: int | None) -> Envelope:
    """The JSON part of a body. Raises BadRequest or InvalidParameter."""
    if json_bytes is not None:
        if json_bytes > len(body):
            raise BadRequest(
                f"The header Inference-Header-Content-Length says {json_bytes} bytes of JSON, but the body has"
                f" {len(body)}."
            )
        body = body[:json_bytes]
    try:
        envelope = _decode(body)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        raise _fault(body) from None
    if not envelope.inputs:
        raise InvalidParameter("The request holds no inputs.", param="inputs")
    return envelope


def requested_outputs(envelope: Envelope) -> tuple[tuple[RequestedOutput, ...], bool]:
    """The outputs that the client named, and whether those that say nothing of it are binary. Raises BadRequest."""
    every = bool(envelope.parameters) and _flag(envelope.parameters or {}, "binary_data_output", "The request")
    if not envelope.outputs:
        return (), every
    names = [output.name for output in envelope.outputs]
    if len(set(names)) != len(names):
        raise InvalidParameter("The request names an output twice.", param="outputs")
    return tuple(RequestedOutput(output.name, _binary(output, every)) for output in envelope.outputs), every


def model_params(envelope: Envelope) -> dict[str, Any] | None:
    """The parameters that are meant for the model; None when there are none."""
    if not envelope.parameters:
        return None
    params = {
        name: value
        for name, value in envelope.parameters.items()
        if name not in _RESERVED and not name.startswith("triton_")
    }
    return params or None


def content_type(parameters: dict[str, Any] | None) -> str | None:
    """MLServer's name for how the data is to be read: "pd", "np", "str", "base64", …; None when it says none."""
    value = parameters.get("content_type") if parameters else None
    return value if isinstance(value, str) else None


def _binary(output: OutputTensor, every: bool) -> bool:
    parameters = output.parameters
    if not parameters:
        return every
    label = f"Output '{output.name[:100]}'"
    if parameters.get("classification"):
        raise InvalidParameter(f"{label}: classification is not supported.", param=output.name)
    if "shared_memory_region" in parameters:
        raise InvalidParameter(f"{label}: shared memory is not supported.", param=output.name)
    return _flag(parameters, "binary_data", label) if "binary_data" in parameters else every


def _flag(parameters: dict[str, Any], name: str, label: str) -> bool:
    value = parameters.get(name, False)
    if not isinstance(value, bool):
        raise InvalidParameter(f"{label}: '{name}' must be true or false, not {json_type(value)}.", param=name)
    return value


def _fault(body: bytes) -> BadRequest:
    """What is wrong with JSON that is no envelope, said of the tensor that it is in."""
    try:
        value = decode_object(body)
        inputs = value.get("inputs")
        for number, item in enumerate(inputs if isinstance(inputs, list) else ()):
            _check_input(number, item)
        convert(value, Envelope)
    except BadRequest as error:
        return error
    return BadRequest("The body is not an inference request.")


def _check_input(number: int, item: Any) -> None:
    name = item.get("name") if isinstance(item, dict) else None
    label = f"Input '{name[:100]}'" if isinstance(name, str) else f"Input {number}"
    try:
        msgspec.convert(item, InputTensor)
    except (msgspec.ValidationError, RecursionError, OverflowError) as error:
        reason, _, path = str(error).partition(" - at `$")
        field = path.strip("`.").partition("[")[0]
        where = f"'{field}': " if field else ""
        reason = reason.replace("`", "'")
        raise InvalidParameter(
            f"{label}: {where}{reason[:1].lower()}{reason[1:]}.", param=name if isinstance(name, str) else "inputs"
        ) from None
