"""A query's whole way in the worker: decode its body, have the model predict, render the output.

Called by a slot's thread, each query on its own. Every error that leaves here is of `errors.py` (or `Gone`): what
MLflow refuses is the client's fault, what the model raises is the model's, its trace in the log and nowhere else.
"""

from __future__ import annotations

import inspect
import traceback
from collections.abc import AsyncIterator, Iterator
from typing import Any

from steelyard.contracts.worker import PRIMARY_VARIANT
from steelyard.errors import BadRequest, ModelFailed, ModelLoadError, SteelyardError
from steelyard.protocols import open_inference
from steelyard.protocols.inputs import Inputs, Records
from steelyard.protocols.media import Media
from steelyard.protocols.mlflow import (
    Format,
    Invocation,
    build_payload,
    parse_invocation,
    render_plain,
    render_predictions,
)
from steelyard.protocols.openai.embeddings import parse_embeddings, render_embeddings
from steelyard.protocols.query import Answer, Dialect, Query
from steelyard.protocols.strict_json import decode_object
from steelyard.worker.coroutines import Coroutines, Gone
from steelyard.worker.embeddings import embeddings_of
from steelyard.worker.load import sentence
from steelyard.worker.log import log
from steelyard.worker.outcome import float_bits, packed, plain
from steelyard.worker.pyfunc import PyfuncModel, failure
from steelyard.worker.rows import inputs_of, payload_of


class Answering:
    """One slot's view of the model, which all slots share."""

    def __init__(self, model: PyfuncModel, coroutines: Coroutines) -> None:
        self._model = model
        self._coroutines = coroutines

    def answer(self, query: Query, variant: str) -> Answer:
        """Raises SteelyardError or Gone."""
        if query.dialect is Dialect.OPEN_INFERENCE:
            return self._infer(query, variant)
        if query.dialect is Dialect.EMBEDDINGS:
            return self._embed(query)
        invocation = _invocation(query)
        output = self._predict(invocation, variant)
        return Answer(_render(invocation, output))

    def stream(self, query: Query) -> Iterator[bytes]:
        """The answer's pieces, each rendered. Raises SteelyardError or Gone; closing it ends the model's work."""
        if not self._model.streams:
            raise BadRequest("This model cannot stream; send the request without 'stream'.")
        invocation = _invocation(query)
        data, params = self._inputs(invocation)
        pieces: Iterator[Any] | None = None
        try:
            produced = self._model.predict_stream(data, params)
            pieces = self._coroutines.items(produced) if isinstance(produced, AsyncIterator) else iter(produced)
            for piece in pieces:
                yield render_plain(piece)
        except (Gone, GeneratorExit):
            raise
        except BaseException as error:
            raise _told(error) from error
        finally:
            close = getattr(pieces, "close", None)
            if close is not None:
                close()

    def outcome(self, inputs: Inputs, variant: str) -> tuple[bytes, int | None, str | None]:
        """What a variant returns for the rows: `Compared`'s payload and fields. Raises BadRequest: no such variant."""
        if variant not in self._model.variants:
            raise BadRequest(f"This model has no variant '{variant}'.")
        try:
            output = self._run(inputs, None if variant == "native" else payload_of(inputs), None, variant)
            return packed(plain(output)), float_bits(output), None
        except SteelyardError as error:
            return b"", None, type(error).__name__

    def warm_up(self) -> bool:
        """Predict the model's own example; False when it has none. Raises ModelLoadError when the model fails at it.

        A refused example only warns: the packaging is at fault, not the model.
        """
        example = self._model.package.example
        if example is None:
            return False
        try:
            self.answer(Query(Dialect.MLFLOW, example, Media.JSON), PRIMARY_VARIANT)
        except ModelFailed as error:
            reason = f": {sentence(error.__cause__)}" if error.__cause__ else ""
            raise ModelLoadError(f"The model fails on its own input example: {error.message}{reason}") from error
        except SteelyardError as error:
            log("warning", "input_example_refused", reason=error.message)
            return False
        return True

    def _infer(self, query: Query, variant: str) -> Answer:
        request = self._model.open_inference.decode(query.body, query.json_bytes)
        if request.params is not None:
            variant = PRIMARY_VARIANT
        data = payload_of(request.inputs)
        if self._model.package.from_type_hints and len(request.inputs.names) == 1:
            data = request.inputs.arrays[0].tolist()
        output = self._run(request.inputs, data, request.params, variant)
        return open_inference.encode(output, request, query.model)

    def _embed(self, query: Query) -> Answer:
        request = parse_embeddings(query.body)
        output = self._run(None, {"input": request.texts}, None, PRIMARY_VARIANT)
        vectors, tokens = embeddings_of(output)
        return Answer(render_embeddings(vectors, request, model=query.model, prompt_tokens=tokens))

    def _predict(self, invocation: Invocation, variant: str) -> Any:
        data, params = self._inputs(invocation)
        if variant != PRIMARY_VARIANT and invocation.format is not Format.UNWRAPPED and params is None:
            inputs = inputs_of(data) if variant == "native" else None
            if variant != "native" or inputs is not None:
                return self._run(inputs, data, None, variant)
        return self._run(None, data, params, PRIMARY_VARIANT)

    def _run(self, inputs: Inputs | None, data: Any, params: dict[str, Any] | None, variant: str) -> Any:
        model = self._model
        try:
            if variant == "native" and inputs is not None:
                output = model.predict_native(inputs)
            elif variant == "frame":
                output = model.predict_past_enforcement(data, params)
            else:
                output = model.predict(data, params)
            return self._coroutines.result(output) if inspect.isawaitable(output) else output
        except Gone:
            raise
        except BaseException as error:
            raise _told(error) from error

    def _inputs(self, invocation: Invocation) -> tuple[Any, dict[str, Any] | None]:
        model = self._model
        if invocation.format is Format.UNWRAPPED:  # a chat-like body: the signature's params stand beside the messages
            data = invocation.data
            params = {key: value for key, value in data.items() if key in model.param_names}
            return {key: value for key, value in data.items() if key not in params}, params or None
        if model.package.from_type_hints:
            if invocation.format is not Format.INPUTS:
                raise BadRequest("The model's inputs follow Python type hints; send them in 'inputs'.")
            return invocation.data, invocation.params
        return build_payload(invocation, model.schema), invocation.params


def _invocation(query: Query) -> Invocation:
    if query.dialect is Dialect.MLFLOW:
        return parse_invocation(query.body, query.media)
    value = decode_object(query.body)
    if not isinstance(value.get("messages"), list):
        raise BadRequest("The field 'messages' must be an array.", param="messages")
    value.pop("model", None)  # the endpoint's name, which the model knows nothing of
    return Invocation(Format.UNWRAPPED, value, None, None, value.get("stream") is True)


def _render(invocation: Invocation, output: Any) -> bytes:
    if invocation.format is Format.UNWRAPPED:
        return render_plain(output)
    return render_predictions(plain(output) if isinstance(output, Records) else output)


def _told(error: BaseException) -> SteelyardError:
    told, of_the_model = failure(error)
    if of_the_model:
        log("error", "prediction_failed", trace="".join(traceback.format_exception(error)))
    return told
