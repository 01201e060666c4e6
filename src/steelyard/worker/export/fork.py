"""Exports the model that a worker has just loaded, in a fork of the worker, so that it is loaded once.

Called by the service before any thread of its own runs. The fork ends by itself and leaves nothing in the worker's
memory. It tells by one byte on a pipe that everything was tried; where the pipe ends without it, the replica runs the
exporter as a process of its own.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import traceback
import warnings
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

from steelyard.contracts.worker import EXPORTED, ExportBeside
from steelyard.worker import confine
from steelyard.worker.export.source import Refused, described
from steelyard.worker.log import log

_LIMIT_S = 90
_ATTRIBUTES = {"sklearn": "sklearn_model", "lightgbm": "lgb_model", "xgboost": "xgb_model", "catboost": "cb_model"}
_RTLD_NOLOAD = 4


def export_beside(order: ExportBeside, folder: Path, model: Any) -> None:
    """Begin it. `model` is the loaded `mlflow.pyfunc.PyFuncModel` of `folder`."""
    parent = os.getpid()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of threads that libraries started: the fork needs none of them
            fork = os.fork()
        if not fork:
            _live(order, folder, model, parent)
        threading.Thread(target=_wait_for, args=(fork,), name="export", daemon=True).start()
    except OSError as error:
        log("warning", "export_not_begun", reason=error.strerror or type(error).__name__)
    finally:
        os.close(order.descriptor)


def _wait_for(fork: int) -> None:
    with suppress(ChildProcessError):
        os.waitpid(fork, 0)


def _live(order: ExportBeside, folder: Path, model: Any, parent: int) -> NoReturn:
    """The whole life of the fork."""
    try:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)  # ends the process even where a library waits for a lost thread
        signal.alarm(_LIMIT_S)
        confine.confine(parent)
        _close_sockets()
        _use_one_thread()
        out = Path(order.folder)
        out.mkdir()
        sys.path.extend(place for place in order.tool_path.split(os.pathsep) if place)
        warnings.simplefilter("ignore")
        _convert(folder, model, out)
        os.write(order.descriptor, EXPORTED)
    except BaseException:  # nothing may return into the worker's code
        traceback.print_exc(file=sys.stderr)
    finally:
        with suppress(OSError, ValueError):
            sys.stderr.flush()
        os._exit(0)


def _convert(folder: Path, model: Any, out: Path) -> None:
    """Raises what speaks for another attempt in a process of its own."""
    from steelyard.worker.export.candidates import convert_all  # noqa: PLC0415

    try:
        source = described(folder)
        convert_all(replace(source, model=_native_object(model, source.family)), out)
    except Refused as error:
        print(error, file=sys.stderr)  # noqa: T201  (the log of this process)


def _native_object(model: Any, family: str) -> Any:
    """What the flavor's own loader would give. Raises LookupError where this release of MLflow keeps it elsewhere."""
    implementation = getattr(model, "_model_impl", None)
    native = getattr(implementation, _ATTRIBUTES[family], None)
    if native is None and family == "sklearn":
        native = implementation  # before MLflow 2.2
    if native is None:
        raise LookupError("the loaded model is not where it is looked for")
    return native


def _close_sockets() -> None:
    """The worker's connections end when the worker ends them, not later."""
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            if os.readlink(f"/proc/self/fd/{name}").startswith("socket:"):
                os.close(int(name))


def _use_one_thread() -> None:
    """The threads of an OpenMP library do not live on in a fork, and it would wait for them."""
    with open("/proc/self/maps") as maps:
        libraries = {line.split(maxsplit=5)[5].strip() for line in maps if "omp" in line and ".so" in line}
    for library in libraries:
        with suppress(OSError, AttributeError):
            ctypes.CDLL(library, mode=_RTLD_NOLOAD).omp_set_num_threads(1)
