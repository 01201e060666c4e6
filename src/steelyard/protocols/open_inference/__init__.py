"""The Open Inference Protocol v2 (KServe, Triton, MLServer): tensors by name, in JSON or in its binary extension.

`Decoder` turns a request's body into `Inputs` by the model's signature, `encode` a model's outputs into the answer,
`metadata` says what a model takes and gives. Replica and worker use the same three; nothing here does I/O.
"""

from steelyard.protocols.open_inference.decode import Decoder
from steelyard.protocols.open_inference.envelope import (
    HEADER_LENGTH,
    InferRequest,
    RequestedOutput,
)
from steelyard.protocols.open_inference.metadata import metadata, output_name
from steelyard.protocols.open_inference.response import encode

__all__ = [
    "HEADER_LENGTH",
    "Decoder",
    "InferRequest",
    "RequestedOutput",
    "encode",
    "metadata",
    "output_name",
]
