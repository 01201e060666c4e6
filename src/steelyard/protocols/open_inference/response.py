"""A model's outputs as the protocol's answer: JSON, with the binary tail for outputs that the client wants so.

Called by replica and worker. In JSON, NaN and the infinities are null; the binary form keeps every bit.
"""

from __future__ import annotations

import base64
from typing import Any

import msgspec
import numpy as np

from steelyard.errors import InvalidParameter, ModelFailed
from steelyard.protocols.open_inference.datatypes import DTYPES
from steelyard.protocols.open_inference.envelope import HEADER_LENGTH, InferRequest
from steelyard.protocols.open_inference.metadata import OUTPUT, SYNONYMS
from steelyard.protocols.open_inference.outputs import Output, named_outputs
from steelyard.protocols.query import Answer

_ENCODER = msgspec.json.Encoder()
_BINARY = "application/octet-stream"


def encode(result: Any, request: InferRequest, model: str, version: str = "", output_name: str = OUTPUT) -> Answer:
    """The outputs that `request` asked for. `model` and `version` are the endpoint's and the served entity's names;
    `output_name` is for a result that has no names of its own.

    Raises InvalidParameter for an output that the model does not have, ModelFailed for one that cannot be written.
    """
    outputs = named_outputs(result, output_name)
    tail: list[bytes] = []
    if request.outputs:
        chosen = _chosen(outputs, request, output_name)
        rendered = [_render(output, binary, tail) for output, binary in chosen]
    else:
        rendered = [_render(output, request.binary, tail) for output in outputs]
    reply: dict[str, Any] = {"model_name": model}
    if version:
        reply["model_version"] = version
    if request.id:
        reply["id"] = request.id
    reply["outputs"] = rendered
    try:
        head = _ENCODER.encode(reply)  # writes NaN and the infinities as null
    except (UnicodeEncodeError, OverflowError, TypeError, ValueError) as error:
        raise ModelFailed(f"The model's output cannot be written as JSON: {type(error).__name__}.") from None
    if not tail:
        return Answer(head)
    return Answer(b"".join((head, *tail)), _BINARY, ((HEADER_LENGTH, str(len(head))),))


def _chosen(outputs: list[Output], request: InferRequest, output_name: str) -> list[tuple[Output, bool]]:
    """In the order of the request. A result's only output answers to the names that other servers give it, too."""
    by_name = {output.name: output for output in outputs}
    sole = outputs[0] if len(outputs) == 1 and outputs[0].name == output_name else None
    chosen = []
    for wanted in request.outputs:
        output = by_name.get(wanted.name)
        if output is None and sole is not None and wanted.name in SYNONYMS:
            output = Output(wanted.name, sole.datatype, sole.shape, sole.array, sole.elements, sole.content_type)
        if output is None:
            known = ", ".join(f"'{name[:60]}'" for name in list(by_name)[:5])
            raise InvalidParameter(f"The model has no output '{wanted.name[:100]}'; it has {known}.", param=wanted.name)
        chosen.append((output, wanted.binary))
    return chosen


def _render(output: Output, binary: bool, tail: list[bytes]) -> dict[str, Any]:
    reply: dict[str, Any] = {"name": output.name, "datatype": output.datatype, "shape": output.shape}
    array = output.array
    if array is not None:
        if binary:
            data = np.ascontiguousarray(array, dtype=DTYPES[output.datatype]).tobytes()
            tail.append(data)
            reply["parameters"] = {"binary_data_size": len(data)}
        else:
            reply["data"] = array.ravel().tolist()
        return reply
    return _render_bytes(output, binary, tail, reply)


def _render_bytes(output: Output, binary: bool, tail: list[bytes], reply: dict[str, Any]) -> dict[str, Any]:
    elements, kind = output.elements or [], output.content_type
    if not binary:
        if kind == "base64":
            elements = [base64.b64encode(element).decode() for element in elements]
        reply["parameters"] = {"content_type": kind}
        reply["data"] = elements
        return reply
    if None in elements:  # binary has no null: only JSON can say what is missing
        elements = [msgspec.json.encode(element) for element in elements]
        kind = "pd_json"
    data = b"".join(map(_with_length, elements))
    tail.append(data)
    reply["parameters"] = {"binary_data_size": len(data), **({} if kind == "base64" else {"content_type": kind})}
    return reply


def _with_length(element: str | bytes) -> bytes:
    try:
        data = element.encode() if isinstance(element, str) else element
    except UnicodeEncodeError:
        raise ModelFailed("The model's output holds text that is not valid Unicode.") from None
    return len(data).to_bytes(4, "little") + data
