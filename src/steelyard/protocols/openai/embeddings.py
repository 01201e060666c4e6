"""An embeddings request and its reply: texts in, one vector of floats each out, as OpenAI's SDK sends and reads them.

Called by whoever serves `/v1/embeddings`; the model itself is the caller's. Token ids in place of text are refused,
since they belong to another model's vocabulary.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import Any, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from steelyard.errors import InvalidParameter, ModelFailed
from steelyard.protocols.strict_json import convert, decode_object

MAX_TEXTS = 2048

_encoder = msgspec.json.Encoder()


class _Fields(msgspec.Struct, frozen=True, kw_only=True):
    input: Any
    model: str | None = None
    encoding_format: Literal["float", "base64"] | None = None
    dimensions: int | None = None
    user: str | None = None


@dataclass(frozen=True, slots=True)
class EmbeddingRequest:
    """`dimensions`: the reply's vectors are cut to so many values and made unit length again; None: as they are."""

    texts: list[str]
    as_base64: bool
    dimensions: int | None


def parse_embeddings(body: bytes) -> EmbeddingRequest:
    """Raises BadRequest or InvalidParameter."""
    value = decode_object(body)
    if "input" not in value:
        raise InvalidParameter("The field 'input' is missing; give a string or an array of strings.", param="input")
    fields = convert(value, _Fields)
    texts = [fields.input] if isinstance(fields.input, str) else fields.input
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise InvalidParameter("'input' must be a string or an array of strings.", param="input")
    if not texts or not all(texts):
        raise InvalidParameter("'input' must hold at least one text, and no empty one.", param="input")
    if len(texts) > MAX_TEXTS:
        raise InvalidParameter(f"'input' may hold at most {MAX_TEXTS} texts.", param="input")
    if fields.dimensions is not None and fields.dimensions < 1:
        raise InvalidParameter("'dimensions' must be at least 1.", param="dimensions")
    return EmbeddingRequest(texts, fields.encoding_format == "base64", fields.dimensions)


def render_embeddings(vectors: NDArray[Any], request: EmbeddingRequest, *, model: str, prompt_tokens: int) -> bytes:
    """The reply for `vectors` of shape (texts, dimension). Raises InvalidParameter; ModelFailed for another shape."""
    if vectors.ndim != 2 or len(vectors) != len(request.texts) or vectors.dtype.kind != "f":
        raise ModelFailed("The model returned no vector of floats for each text.")
    if request.dimensions is not None:
        vectors = _cut(vectors, request.dimensions)
    if not np.isfinite(vectors).all():
        raise ModelFailed("The model returned a vector that holds NaN or infinity.")
    data = [
        {"object": "embedding", "index": index, "embedding": vector}
        for index, vector in enumerate(_written(vectors, request))
    ]
    usage = {"prompt_tokens": prompt_tokens, "total_tokens": prompt_tokens}
    return _encoder.encode({"object": "list", "data": data, "model": model, "usage": usage})


def _written(vectors: NDArray[Any], request: EmbeddingRequest) -> list[Any]:
    if not request.as_base64:
        return list(vectors.tolist())
    return [base64.b64encode(vector.astype("<f4").tobytes()).decode() for vector in vectors]


def _cut(vectors: NDArray[Any], dimensions: int) -> NDArray[Any]:
    if dimensions > vectors.shape[1]:
        message = f"'dimensions' must be at most {vectors.shape[1]}, which is what the model gives."
        raise InvalidParameter(message, param="dimensions")
    cut = vectors[:, :dimensions]
    lengths = np.linalg.norm(cut, axis=1, keepdims=True)
    return np.asarray(cut / np.where(lengths == 0, 1, lengths), dtype=vectors.dtype)
