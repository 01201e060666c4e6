"""Queries in MLflow's dialect, the worker's insides without a process, and worker runtimes of real models."""

import json
import socket
import sys
from pathlib import Path
from typing import Any

from steelyard.packages import inspect_package, resolve
from steelyard.protocols.media import Media
from steelyard.protocols.query import Answer, Dialect, Query
from steelyard.runtimes.workers import WorkerRuntime
from steelyard.worker.answer import Answering
from steelyard.worker.coroutines import Coroutines
from steelyard.worker.load import load
from steelyard.worker.pyfunc import PyfuncModel


def query(body: Any, dialect: Dialect = Dialect.MLFLOW, **values: Any) -> Query:
    return Query(dialect, body if isinstance(body, bytes) else json.dumps(body).encode(), Media.JSON, "r-1", **values)


def predictions(answer: Answer) -> Any:
    return json.loads(answer.body)["predictions"]


class Inside:
    """What a worker does with a model, in this process. `end` is the replica's end of its only connection."""

    def __init__(self, path: Any) -> None:
        self.end, connection = socket.socketpair()
        self.model = PyfuncModel(*load(Path(path)))
        self.answering = Answering(self.model, Coroutines(connection))
        self._connection = connection

    def ask(self, body: Any, variant: str = "pyfunc") -> Any:
        return predictions(self.answering.answer(query(body), variant))

    def whole(self, body: Any, dialect: Dialect = Dialect.MLFLOW) -> Any:
        return json.loads(self.answering.answer(query(body, dialect), "pyfunc").body)


def runtime_of(path: Any, **values: Any) -> WorkerRuntime:
    """Not yet loaded."""
    return WorkerRuntime(inspect_package(resolve(str(path))), python=Path(sys.executable), **values)
