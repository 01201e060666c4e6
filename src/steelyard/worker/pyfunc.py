"""A loaded MLflow model and the ways of having it predict: `pyfunc`, and the faster `frame` and `native`.

`pyfunc` is MLflow's own `predict`, its enforcement included, and right by definition. `frame` calls the flavor's
implementation with the same typed frame or arrays, past the enforcement; `native` calls the library's own model on
arrays, without pandas (`native.py`). Either is used only where a proof has found it equal. Called by `answer.py`.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, cast

from steelyard.contracts.worker import PRIMARY_VARIANT
from steelyard.errors import BadRequest, InvalidParameter, ModelFailed, ModelLoadError, SteelyardError
from steelyard.packages import Package
from steelyard.protocols.inputs import Inputs
from steelyard.protocols.mlflow import InputSchema, MlflowCodec, parse_input_schema, to_frame, to_model_input
from steelyard.protocols.open_inference import Decoder, output_name
from steelyard.worker.load import sentence
from steelyard.worker.native import native_predict
from steelyard.worker.parts import Evidence

_HINT_FAULTS = ("Failed to validate data against type hint", "Expected list, but got ", "Expected dict, but got ")
_SCHEMA_FAULTS = ("Failed to enforce schema", *_HINT_FAULTS)
_PARAM_FAULTS = ("Invalid parameters found", "Parameters must be a dictionary", "Parameters schema")
_NAME = re.compile(r"(?:column|inputs?|key|param(?:eter)?s? found: \{\() ?\[?[`']([^`']+)[`']")

Params = dict[str, Any] | None


class PyfuncModel:
    """`codec` and `open_inference` decode for it; `variants` are the ways that it can be asked in."""

    def __init__(self, package: Package, model: Any) -> None:
        """Raises ModelLoadError if the signature cannot be read."""
        self.package = package
        try:
            self.codec = MlflowCodec(package.signature_inputs, package.signature_params, package.from_type_hints)
        except ValueError as error:
            raise ModelLoadError(f"The model's signature cannot be read: {sentence(error)}") from error
        schema = self._schema = self.codec.schema
        self.open_inference = Decoder(schema)
        self.output_name = _output_name(package)
        self.streams = package.streamable and hasattr(model, "predict_stream")
        self._model = model
        self._predict = _with_params(model.predict)
        self._past_enforcement = _past_enforcement(package, model, schema)
        self._native = native_predict(package.flavors, model) if self._past_enforcement is not None else None
        ways = {"frame": self._past_enforcement, "native": self._native}
        self.variants = (PRIMARY_VARIANT, *(name for name, way in ways.items() if way is not None))
        self.evidence = {variant: Evidence() for variant in self.variants}

    def model_input(self, inputs: Inputs) -> Any:
        """A frame, an array or a dict of arrays, as MLflow's own enforcement would give."""
        if self._schema is not None:
            return to_model_input(inputs, self._schema)
        if inputs.columnar:
            return to_frame(inputs)
        arrays = inputs.arrays
        return arrays[0] if inputs.names == (None,) else dict(zip(inputs.names, arrays, strict=True))

    def predict(self, data: Any, params: Params) -> Any:
        """MLflow's own. Raises whatever the model raises; `failure` makes an error of it."""
        return self._predict(data, params)

    def predict_past_enforcement(self, data: Any) -> Any:
        """The variant `frame`."""
        assert self._past_enforcement is not None
        return self._past_enforcement(data, None)

    def predict_native(self, inputs: Inputs) -> Any:
        """The variant `native`."""
        assert self._native is not None
        return self._native(inputs)

    def predict_stream(self, data: Any, params: Params) -> Iterator[Any] | AsyncIterator[Any]:
        """An asynchronous iterator where the model's own is one."""
        produce = self._model.predict_stream
        implementation = getattr(self._model, "_model_impl", None)
        own = getattr(getattr(implementation, "python_model", None), "predict_stream", None)
        if inspect.isasyncgenfunction(own):  # MLflow would loop over it as over a plain one
            produce = getattr(self._model, "_predict_stream", produce)
        return cast(Iterator[Any] | AsyncIterator[Any], _with_params(produce)(data, params))


def failure(error: BaseException) -> tuple[SteelyardError, bool]:
    """MLflow's refusals of the input are the client's fault; everything else is the model's. Says whether it is."""
    if isinstance(error, SteelyardError):
        return error, False
    if isinstance(error, SystemExit | KeyboardInterrupt):
        return ModelFailed("The model tried to end its process."), True
    text = str(getattr(error, "message", ""))
    if type(error).__module__.startswith("mlflow."):
        if text.startswith(_SCHEMA_FAULTS):
            return _schema_fault(text), False
        if text.startswith(_PARAM_FAULTS):
            names = re.findall(r"\('([^']+)',", text)
            named = f": {', '.join(names)}" if names else ""
            message = f"The params do not fit the model's signature{named}."
            return InvalidParameter(message, param="params"), False
    message = f"The model raised {type(error).__name__}; its log has the details under this request's id."
    return ModelFailed(message), True


def _output_name(package: Package) -> str:
    try:
        return output_name(parse_input_schema(package.signature_outputs))
    except ValueError:  # outputs that only MLflow understands
        return output_name(None)


def _schema_fault(text: str) -> InvalidParameter:
    """MLflow's message holds the submitted rows; only the reason at its end may leave, if it names no value."""
    reason = text.rpartition("Error: ")[2].splitlines()[0].strip() if "Error: " in text else ""
    found = _NAME.search(reason)
    param = found[1] if found else None
    if not reason or " data " in reason or "`" in reason or len(reason) > 300:
        return InvalidParameter("The input does not fit the model's signature.", param=param)
    return InvalidParameter(f"The input does not fit the model's signature: {reason.rstrip('.')}.", param=param)


def _with_params(function: Callable[..., Any]) -> Callable[[Any, Params], Any]:
    """The function as one of data and params, for the MLflow releases and models that know no params."""
    accepted = inspect.signature(function).parameters.get("params")
    if accepted is not None and accepted.kind is not inspect.Parameter.VAR_KEYWORD:
        return lambda data, params: function(data, params=params)

    def without(data: Any, params: Params) -> Any:
        if params:
            raise BadRequest("This model takes no params.", param="params")
        return function(data)

    return without


def _past_enforcement(package: Package, model: Any, schema: InputSchema | None) -> Callable[[Any, Params], Any] | None:
    """The flavor's implementation, where this release has it and our decoder knows all the types that it would get."""
    if schema is None or schema.has_other or package.from_type_hints:
        return None
    from_example = getattr(model.metadata, "_is_type_hint_from_example", None)
    if from_example is not None and from_example():  # MLflow turns the frame into the example's own shape
        return None
    function = getattr(model, "_predict_fn", None)
    if function is None:
        function = getattr(getattr(model, "_model_impl", None), "predict", None)
    return _with_params(function) if callable(function) else None
