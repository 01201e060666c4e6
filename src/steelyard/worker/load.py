"""Loads an MLflow model in the worker, through `mlflow.pyfunc`, and says in one sentence why it cannot.

Called once by the service. The trace of a failure goes to the log; the sentence goes to the user.
"""

from __future__ import annotations

import gc
import logging
import os
import traceback
import warnings
from pathlib import Path
from typing import Any

from steelyard.errors import ModelLoadError
from steelyard.packages import Kind, Location, Package, inspect_package
from steelyard.worker.log import log

_QUIET = {"MLFLOW_DISABLE_TELEMETRY": "true", "DO_NOT_TRACK": "true", "_MLFLOW_IS_IN_SERVING_ENVIRONMENT": "true"}


_GC_AS_BEFORE = gc.get_threshold()
_GC_WHILE_LOADING = (100_000, 20, 20)  # imports leave no garbage, and looking for it takes a tenth of their time


def load(path: Path) -> tuple[Package, Any]:
    """The package and its `mlflow.pyfunc.PyFuncModel`. Raises ModelLoadError; what the model raised is its cause."""
    package = inspect_package(Location(path, Kind.MLFLOW))
    if "python_function" not in package.flavors:
        raise ModelLoadError(f"The model has no python_function flavor, only {', '.join(package.flavors)}.")
    os.environ.update(_QUIET)
    gc.set_threshold(*_GC_WHILE_LOADING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import mlflow.pyfunc  # noqa: PLC0415  (seconds to import)

            logging.getLogger("mlflow").setLevel(logging.ERROR)
            return package, mlflow.pyfunc.load_model(str(path), suppress_warnings=True)
    except ImportError as error:
        log("error", "model_load_failed", trace=traceback.format_exc())
        if (error.name or "").partition(".")[0] == "mlflow":
            raise ModelLoadError("MLflow models need mlflow; install steelyard[mlflow].") from error
        raise ModelLoadError(f"The model needs a module that is not installed: {sentence(error)}") from error
    except Exception as error:  # the model's own code ran
        log("error", "model_load_failed", trace=traceback.format_exc())
        raise ModelLoadError(f"The model cannot be loaded: {type(error).__name__}: {sentence(error)}") from error
    except SystemExit as error:
        log("error", "model_load_failed", trace=traceback.format_exc())
        raise ModelLoadError("The model cannot be loaded: it tried to end its process.") from error
    finally:
        gc.set_threshold(*_GC_AS_BEFORE)
        gc.freeze()  # what is loaded stays: no collection walks over it between two requests


def forbidden(error: BaseException | None) -> bool:
    """Whether a lack of permission is at the bottom of it."""
    while error is not None:
        if isinstance(error, PermissionError):
            return True
        error = error.__cause__ or error.__context__
    return False


def sentence(error: BaseException) -> str:
    """The first line of what an error says, for a user who deploys (never for one who queries)."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[0][:300].rstrip(".") + "."
