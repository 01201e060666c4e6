"""Any MLflow model, run by its own loader through `mlflow.pyfunc`: the runtime that always fits.

The replica calls it in threads. Inputs are decoded by `protocols/mlflow` before MLflow's own enforcement sees them.
What the model raises becomes a `ModelFailed` of one sentence that echoes neither the exception's text nor the rows;
the stack trace goes to the replica's log.
"""

from __future__ import annotations

import logging
import os
import re
import traceback
import warnings
from collections.abc import Iterator
from typing import Any

from steelyard.errors import BadRequest, InvalidParameter, ModelFailed, ModelLoadError, SteelyardError
from steelyard.observe.logs import get_logger
from steelyard.observe.machine import usable_cores
from steelyard.packages import Package
from steelyard.protocols.media import Media
from steelyard.protocols.mlflow import (
    Format,
    InputSchema,
    Invocation,
    build_payload,
    parse_input_schema,
    parse_invocation,
    render_predictions,
)

_QUIET = {"MLFLOW_DISABLE_TELEMETRY": "true", "DO_NOT_TRACK": "true", "_MLFLOW_IS_IN_SERVING_ENVIRONMENT": "true"}
_SCHEMA_FAULTS = ("Failed to enforce schema", "Failed to validate data against type hint")
_PARAM_FAULTS = ("Invalid parameters found", "Parameters must be a dictionary", "Parameters schema")
_NAME = re.compile(r"(?:column|inputs?|key|param(?:eter)?s? found: \{\() ?\[?[`']([^`']+)[`']")


class PyfuncRuntime:
    """One loaded pyfunc model."""

    name = "pyfunc"

    def __init__(self, package: Package, max_concurrency: int | None = None) -> None:
        self.task = package.task
        self.max_concurrency = max_concurrency or usable_cores()
        self.streams = package.streamable
        self._package = package
        self._schema: InputSchema | None = None
        self._param_names: frozenset[str] = frozenset()
        self._model: Any = None
        self._log = get_logger()

    def load(self) -> None:
        if "python_function" not in self._package.flavors:
            raise ModelLoadError(f"The model has no python_function flavor, only {', '.join(self._package.flavors)}.")
        os.environ.update(_QUIET)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                import mlflow.pyfunc  # noqa: PLC0415  (seconds to import; only such replicas pay)

                logging.getLogger("mlflow").setLevel(logging.ERROR)
                self._model = mlflow.pyfunc.load_model(str(self._package.path), suppress_warnings=True)
            self._read_signature()
        except ModelLoadError:
            raise
        except ImportError as error:
            self._log.error("model_load_failed", trace=traceback.format_exc())
            if (error.name or "").partition(".")[0] == "mlflow":
                raise ModelLoadError("MLflow models need mlflow; install steelyard[mlflow].") from error
            raise ModelLoadError(f"The model needs a module that is not installed: {_sentence(error)}") from error
        except Exception as error:  # the model's own code ran
            self._log.error("model_load_failed", trace=traceback.format_exc())
            raise ModelLoadError(f"The model cannot be loaded: {type(error).__name__}: {_sentence(error)}") from error

    def warm_up(self) -> bool:
        """A refused example only warns: the packaging is at fault, not the model."""
        if self._package.example is None:
            return False
        try:
            output = self.predict(parse_invocation(self._package.example, Media.JSON))
            render_predictions(output)
        except ModelFailed as error:
            reason = f": {_sentence(error.__cause__)}" if error.__cause__ else ""
            raise ModelLoadError(f"The model fails on its own input example: {error.message}{reason}") from error
        except SteelyardError as error:
            self._log.warning("input_example_refused", reason=error.message)
            return False
        return True

    def predict(self, invocation: Invocation) -> Any:
        inputs, params = self._inputs(invocation)
        try:
            return self._model.predict(inputs, params=params)
        except Exception as error:
            raise self._failure(error) from error

    def predict_stream(self, invocation: Invocation) -> Iterator[Any]:
        if not self.streams:
            raise BadRequest("This model cannot stream; send the request without 'stream'.")
        inputs, params = self._inputs(invocation)
        try:
            yield from self._model.predict_stream(inputs, params=params)
        except Exception as error:
            raise self._failure(error) from error

    def _inputs(self, invocation: Invocation) -> tuple[Any, dict[str, Any] | None]:
        if invocation.format is Format.UNWRAPPED:  # a chat-like body: the signature's params stand beside the messages
            data = invocation.data
            params = {key: value for key, value in data.items() if key in self._param_names}
            return {key: value for key, value in data.items() if key not in params}, params or None
        if self._package.from_type_hints:
            if invocation.format is not Format.INPUTS:
                raise BadRequest("The model's inputs follow Python type hints; send them in 'inputs'.")
            return invocation.data, invocation.params
        return build_payload(invocation, self._schema), invocation.params

    def _read_signature(self) -> None:
        try:
            self._schema = parse_input_schema(self._package.signature_inputs)
            params = self._model.metadata.get_params_schema()
            self._param_names = frozenset(item.name for item in params.params) if params else frozenset()
        except (ValueError, AttributeError) as error:
            raise ModelLoadError(f"The model's signature cannot be read: {_sentence(error)}") from error

    def _failure(self, error: Exception) -> SteelyardError:
        """MLflow's refusals of the input are the client's fault; everything else is the model's."""
        if isinstance(error, SteelyardError):
            return error
        text = str(getattr(error, "message", ""))
        if type(error).__module__.startswith("mlflow."):
            if text.startswith(_SCHEMA_FAULTS):
                return _schema_fault(text)
            if text.startswith(_PARAM_FAULTS):
                names = re.findall(r"\('([^']+)',", text)
                named = f": {', '.join(names)}" if names else ""
                return InvalidParameter(f"The params do not fit the model's signature{named}.", param="params")
        self._log.error("prediction_failed", trace="".join(traceback.format_exception(error)))
        return ModelFailed(f"The model raised {type(error).__name__}; its log has the details under this request's id.")


def _schema_fault(text: str) -> InvalidParameter:
    """MLflow's message holds the submitted rows; only the reason at its end may leave, if it names no value."""
    reason = text.rpartition("Error: ")[2].splitlines()[0].strip() if "Error: " in text else ""
    found = _NAME.search(reason)
    param = found[1] if found else None
    if not reason or " data " in reason or "`" in reason or len(reason) > 300:
        return InvalidParameter("The input does not fit the model's signature.", param=param)
    return InvalidParameter(f"The input does not fit the model's signature: {reason.rstrip('.')}.", param=param)


def _sentence(error: BaseException) -> str:
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[0][:300].rstrip(".") + "."
