"""Every error that a client can meet, with its HTTP status and its stable code.

Raised where the fault is known, turned into a reply in one place per process (`wire` for protocol faults,
`router`/`replica`/`control` for the rest) through `SteelyardError.body()`, or in the shape of a path's own dialect:
databricks-sdk takes an `error` object for the message, openai clients look nowhere else, and Open Inference clients
want a text there. A message is one sentence that says what was wrong and what to do; it never holds a stack trace or
a secret.
"""

from __future__ import annotations

import math
from typing import ClassVar

import msgspec


class SteelyardError(Exception):
    """Base of all errors with a reply. `retry_after_s` becomes a `Retry-After` header (whole seconds, at least 1)."""

    status: ClassVar[int] = 500
    code: ClassVar[str] = "INTERNAL_ERROR"
    kind: ClassVar[str] = "server_error"

    def __init__(self, message: str, *, param: str | None = None, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        self.retry_after_s = retry_after_s

    def body(self) -> bytes:
        """UTF-8 JSON as databricks-sdk and MLflow read it: `error_code`, `message`, and `param` where one is named."""
        fault = {"error_code": self.code, "message": self.message}
        return msgspec.json.encode(fault if self.param is None else {**fault, "param": self.param})

    def openai_body(self) -> bytes:
        """The same for openai clients, with their `error` object beside it."""
        error = {"message": self.message, "type": self.kind, "param": self.param, "code": self.code}
        return msgspec.json.encode({"error": error, "error_code": self.code, "message": self.message})

    def open_inference_body(self) -> bytes:
        """The same for clients of the Open Inference Protocol: `error` is the message."""
        return msgspec.json.encode({"error": self.message})

    def headers(self) -> list[tuple[bytes, bytes]]:
        """Reply headers, content type included."""
        headers = [(b"content-type", b"application/json")]
        if self.retry_after_s is not None:
            headers.append((b"retry-after", str(max(1, math.ceil(self.retry_after_s))).encode()))
        return headers


class BadRequest(SteelyardError):
    """The input is wrong; the message names what."""

    status = 400
    code = "BAD_REQUEST"
    kind = "invalid_request_error"


class InvalidParameter(BadRequest):
    """A named field has a value that is not allowed; `param` names it."""

    code = "INVALID_PARAMETER_VALUE"


class InvalidState(BadRequest):
    """The request is well-formed but the endpoint's state forbids it (stopped, update in progress)."""

    code = "INVALID_STATE"


class AlreadyExists(BadRequest):
    code = "RESOURCE_ALREADY_EXISTS"


class ContextTooLong(BadRequest):
    """The prompt, or prompt plus requested output, exceeds the model's context window."""

    code = "context_length_exceeded"


class Unauthenticated(SteelyardError):
    status = 401
    code = "UNAUTHENTICATED"
    kind = "authentication_error"

    def headers(self) -> list[tuple[bytes, bytes]]:
        return [*super().headers(), (b"www-authenticate", b"Bearer")]


class NotFound(SteelyardError):
    status = 404
    code = "RESOURCE_DOES_NOT_EXIST"
    kind = "not_found_error"


class MethodNotAllowed(SteelyardError):
    """`allow` names the methods that the path takes, for the `Allow` header that a 405 must carry."""

    status = 405
    code = "METHOD_NOT_ALLOWED"
    kind = "invalid_request_error"

    def __init__(self, message: str, *, allow: str) -> None:
        super().__init__(message)
        self.allow = allow

    def headers(self) -> list[tuple[bytes, bytes]]:
        return [*super().headers(), (b"allow", self.allow.encode())]


class RequestTimeout(SteelyardError):
    """The client was too slow to send its request."""

    status = 408
    code = "REQUEST_TIMEOUT"
    kind = "invalid_request_error"


class Conflict(SteelyardError):
    """Another change is in progress; try again when it is over."""

    status = 409
    code = "RESOURCE_CONFLICT"
    kind = "invalid_request_error"


class PayloadTooLarge(SteelyardError):
    status = 413
    code = "PAYLOAD_TOO_LARGE"
    kind = "invalid_request_error"


class UriTooLong(SteelyardError):
    status = 414
    code = "URI_TOO_LONG"
    kind = "invalid_request_error"


class UnsupportedMediaType(SteelyardError):
    status = 415
    code = "UNSUPPORTED_MEDIA_TYPE"
    kind = "invalid_request_error"


class ExpectationFailed(SteelyardError):
    status = 417
    code = "EXPECTATION_FAILED"
    kind = "invalid_request_error"


class TooManyRequests(SteelyardError):
    """Capacity is contended or a budget is spent; `retry_after_s` is when it is worth trying again."""

    status = 429
    code = "RESOURCE_EXHAUSTED"
    kind = "rate_limit_error"


class RateLimited(TooManyRequests):
    """A limit that was set for the endpoint, the user or the group is spent; capacity has no part in it."""

    code = "REQUEST_LIMIT_EXCEEDED"


class HeadersTooLarge(SteelyardError):
    status = 431
    code = "HEADERS_TOO_LARGE"
    kind = "invalid_request_error"


class InternalError(SteelyardError):
    status = 500


class ModelFailed(SteelyardError):
    """The model itself raised while predicting. The user's model is at fault, not the platform."""

    status = 500
    code = "MODEL_ERROR"


class MethodNotImplemented(SteelyardError):
    """No path takes this method, for nobody here knows it."""

    status = 501
    code = "NOT_IMPLEMENTED"
    kind = "invalid_request_error"


class BadUpstream(SteelyardError):
    """A replica died or broke its answer, and the request could not be saved elsewhere."""

    status = 502
    code = "REPLICA_FAILED"


class ModelHung(BadUpstream):
    """The model's process answered nothing any more and was replaced, and another try was not possible."""

    code = "MODEL_HUNG"


class Unavailable(SteelyardError):
    """Nothing can serve the request now."""

    status = 503
    code = "TEMPORARILY_UNAVAILABLE"


class DeadlineExceeded(SteelyardError):
    status = 504
    code = "DEADLINE_EXCEEDED"
    kind = "timeout_error"


class ModelLoadError(SteelyardError):
    """The model cannot be loaded or fails on its own input example. Fails a deployment, never one request."""

    status = 500
    code = "MODEL_LOAD_FAILED"


class ModelProcessEnded(ModelLoadError):
    """The model's code ended its own process while it was loaded; what it printed last may tell why."""
