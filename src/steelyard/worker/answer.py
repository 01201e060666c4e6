"""A query's whole way in the worker: decode its body, have the model predict, render the output.

Called by a slot's thread, each query on its own. Every error that leaves here is of `errors.py` (or `Gone`): what
MLflow refuses is the client's fault, what the model raises is the model's, its trace in the log and nowhere else.
"""

from __future__ import annotations

import inspect
import traceback
import warnings
from collections.abc import AsyncIterator, Iterator
from typing import Any

from steelyard.contracts.worker import PRIMARY_VARIANT
from steelyard.errors import BadRequest, ModelFailed, ModelLoadError, SteelyardError
from steelyard.protocols import open_inference
from steelyard.protocols.inputs import Inputs
from steelyard.protocols.media import Media
from steelyard.protocols.mlflow import Decoded, Format, render_plain, render_predictions
from steelyard.protocols.openai.embeddings import parse_embeddings, render_embeddings
from steelyard.protocols.query import Answer, Dialect, Query
from steelyard.worker.coroutines import Coroutines, Gone
from steelyard.worker.embeddings import embeddings_of
from steelyard.worker.load import sentence
from steelyard.worker.log import log
from steelyard.worker.outcome import float_bits, packed
from steelyard.worker.pyfunc import PyfuncModel, failure


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
        decoded = self._decode(query)
        output = self._predict(decoded, variant)
        render = render_plain if decoded.format is Format.UNWRAPPED else render_predictions
        return Answer(render(output))

    def stream(self, query: Query) -> Iterator[bytes]:
        """The answer's pieces, each rendered. Raises SteelyardError or Gone; closing it ends the model's work."""
        if not self._model.streams:
            raise BadRequest("This model cannot stream; send the request without 'stream'.")
        decoded = self._decode(query)
        pieces: Iterator[Any] | None = None
        try:
            produced = self._model.predict_stream(self._data(decoded), decoded.params)
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
            with warnings.catch_warnings():  # rows that only a proof would send
                warnings.simplefilter("ignore")
                output = self._run(Decoded(inputs, Format.SPLIT), variant, expected=False)
            return packed(output), float_bits(output), None
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

    def _decode(self, query: Query) -> Decoded:
        if query.dialect is not Dialect.CHAT:
            return self._model.codec.decode(query.body, query.media)
        decoded = self._model.codec.decode(query.body, Media.JSON)
        if decoded.format is not Format.UNWRAPPED or not isinstance(decoded.free.get("messages"), list):
            raise BadRequest("The field 'messages' must be an array.", param="messages")
        decoded.free.pop("model", None)  # the endpoint's name, which the model knows nothing of
        return decoded

    def _infer(self, query: Query, variant: str) -> Answer:
        request = self._model.open_inference.decode(query.body, query.json_bytes)
        decoded = Decoded(request.inputs, Format.INPUTS, None, request.params)
        if self._model.package.from_type_hints and len(request.inputs.names) == 1:
            decoded = Decoded(None, Format.INPUTS, request.inputs.arrays[0].tolist(), request.params)
        output = self._predict(decoded, variant)
        return open_inference.encode(output, request, query.model, query.version, output_name=self._model.output_name)

    def _embed(self, query: Query) -> Answer:
        request = parse_embeddings(query.body)
        output = self._run(Decoded(None, Format.UNWRAPPED, {"input": request.texts}), PRIMARY_VARIANT)
        vectors, tokens = embeddings_of(output)
        return Answer(render_embeddings(vectors, request, model=query.model, prompt_tokens=tokens))

    def _predict(self, decoded: Decoded, variant: str) -> Any:
        """A variant is proven for typed rows without params; everything else goes by MLflow's own way."""
        typed = decoded.inputs is not None and decoded.params is None
        return self._run(decoded, variant if typed else PRIMARY_VARIANT)

    def _run(self, decoded: Decoded, variant: str, *, expected: bool = True) -> Any:
        """`expected`: the model should answer, so that its failure is worth a line in the log."""
        model = self._model
        try:
            if variant == "native" and decoded.inputs is not None:
                output = model.predict_native(decoded.inputs)
            elif variant == "frame":
                output = model.predict_past_enforcement(self._data(decoded))
            else:
                output = model.predict(self._data(decoded), decoded.params)
            return self._coroutines.result(output) if inspect.isawaitable(output) else output
        except Gone:
            raise
        except BaseException as error:
            raise (_told(error) if expected else failure(error)[0]) from error

    def _data(self, decoded: Decoded) -> Any:
        return decoded.free if decoded.inputs is None else self._model.model_input(decoded.inputs)


def _told(error: BaseException) -> SteelyardError:
    told, of_the_model = failure(error)
    if of_the_model:
        log("error", "prediction_failed", trace="".join(traceback.format_exception(error)))
    return told
