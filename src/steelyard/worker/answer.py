"""A query's whole way in the worker: decode its body, have the model predict, render the output.

Called by a slot's thread, each query on its own. Every error that leaves here is of `errors.py` (or `Gone`): what
MLflow refuses is the client's fault, what the model raises is the model's, its trace in the log and nowhere else.
"""

from __future__ import annotations

import inspect
import traceback
import warnings
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from functools import partial
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
from steelyard.worker.parts import Evidence
from steelyard.worker.pyfunc import PyfuncModel, failure


@dataclass(slots=True)
class Asked:
    """A decoded query, and what makes its answer of the model's output."""

    decoded: Decoded
    render: Callable[[Any], Answer]

    def answer(self, output: Any) -> Answer:
        """Of the model's output for this query alone."""
        answer = self.render(output)
        answer.rows = rows_of(self.decoded)
        return answer

    @property
    def shareable(self) -> Inputs | None:
        """Its rows, where they may be joined with others': typed, without params or labels of their own."""
        inputs = self.decoded.inputs
        if inputs is None or not inputs.rows or inputs.index is not None or self.decoded.params is not None:
            return None
        return inputs


class Answering:
    """One slot's view of the model, which all slots share."""

    def __init__(self, model: PyfuncModel, coroutines: Coroutines) -> None:
        self._model = model
        self._coroutines = coroutines

    def answer(self, query: Query, variant: str) -> Answer:
        """Raises SteelyardError or Gone."""
        if query.dialect is Dialect.EMBEDDINGS:
            return self._embed(query)
        return self.answer_prepared(self.prepare(query), variant)

    def prepare(self, query: Query) -> Asked:
        """What there is to do before the model is asked. Raises BadRequest and its kin."""
        if query.dialect is Dialect.OPEN_INFERENCE:
            return self._prepare_inference(query)
        decoded = self._decode(query)
        render = render_plain if decoded.format is Format.UNWRAPPED else render_predictions
        return Asked(decoded, lambda output: Answer(render(output)))

    def answer_prepared(self, asked: Asked, variant: str, *, learn: bool = False) -> Answer:
        """The rest. `learn`: from its output, whether calls may be shared. Raises SteelyardError or Gone."""
        output = self._predict(asked.decoded, variant)
        if learn and (inputs := asked.shareable) is not None:
            self.evidence(variant).learn(output, inputs.rows)
        return asked.answer(output)

    def predict_rows(self, inputs: Inputs, variant: str) -> Any:
        """The model's output for rows of several requests; its failure is no news yet. Raises SteelyardError, Gone."""
        return self._run(Decoded(inputs, Format.SPLIT), variant, expected=False)

    def evidence(self, variant: str) -> Evidence:
        """Of whether rows of several requests may share a call; one for all slots."""
        return self._model.evidence[variant]

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
            cause = error.__cause__
            reason = f"{type(cause).__name__}: {sentence(cause)}" if cause is not None else error.message
            raise ModelLoadError(f"The model fails on its own input example: {reason}") from error
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

    def _prepare_inference(self, query: Query) -> Asked:
        request = self._model.open_inference.decode(query.body, query.json_bytes)
        decoded = Decoded(request.inputs, Format.INPUTS, None, request.params)
        if self._model.package.from_type_hints and len(request.inputs.names) == 1:
            decoded = Decoded(None, Format.INPUTS, request.inputs.arrays[0].tolist(), request.params)
        name = self._model.output_name
        encode = partial(open_inference.encode, request=request, model=query.model, version=query.version)
        return Asked(decoded, partial(encode, output_name=name))

    def _embed(self, query: Query) -> Answer:
        request = parse_embeddings(query.body)
        output = self._run(Decoded(None, Format.UNWRAPPED, {"input": request.texts}), PRIMARY_VARIANT)
        vectors, tokens = embeddings_of(output)
        body = render_embeddings(vectors, request, model=query.model, prompt_tokens=tokens)
        return Answer(body, rows=len(vectors))

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
            if inspect.isawaitable(output):
                self.evidence(variant).apart = "the model is asynchronous, so that its calls run side by side"
                output = self._coroutines.result(output)
            return output
        except Gone:
            raise
        except BaseException as error:
            raise (_told(error) if expected else failure(error)[0]) from error

    def _data(self, decoded: Decoded) -> Any:
        return decoded.free if decoded.inputs is None else self._model.model_input(decoded.inputs)


def rows_of(decoded: Decoded) -> int:
    """Of the input; whatever has no rows counts as one."""
    if decoded.inputs is not None:
        return decoded.inputs.rows
    return max(1, len(decoded.free)) if isinstance(decoded.free, list) else 1


def _told(error: BaseException) -> SteelyardError:
    told, of_the_model = failure(error)
    if of_the_model:
        log("error", "prediction_failed", trace="".join(traceback.format_exception(error)))
    return told
