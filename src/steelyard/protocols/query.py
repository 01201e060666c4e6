"""One query of a model, whatever dialect it speaks, before anything of its body is read; and the answer to it.

Made by the replica from an HTTP request, answered in the replica's own process (a native runtime) or in the model's
worker. Plain values, so that both ends of that socket mean the same.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from steelyard.protocols.media import Media


class Dialect(enum.Enum):
    MLFLOW = "mlflow"  # /invocations
    CHAT = "chat"  # /v1/chat/completions of a model that takes messages: the body is the model's input
    EMBEDDINGS = "embeddings"  # /v1/embeddings
    OPEN_INFERENCE = "open_inference"  # /v2/models/…/infer


@dataclass(slots=True)  # not frozen: that costs 2 µs per query
class Query:
    """`model` and `version`: the names of the endpoint and the served entity. `json_bytes`: how much of an Open
    Inference body is JSON (`Inference-Header-Content-Length`); None: all."""

    dialect: Dialect
    body: bytes
    media: Media
    request_id: str = ""
    model: str = ""
    version: str = ""
    json_bytes: int | None = None


@dataclass(slots=True)
class Answer:
    """A whole reply of status 200; `headers` beside content-type, names in lower case. `rows` of the query's input; 0:
    it has none, or they were not counted."""

    body: bytes
    content_type: str = "application/json"
    headers: tuple[tuple[str, str], ...] = ()
    rows: int = 0
