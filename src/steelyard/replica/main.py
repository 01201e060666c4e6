"""The life of a replica process: listen, load the model, serve, drain, end.

Started by a substrate with a folder that holds `spec.json`. It listens at once, so that its state can be read while
the model loads in a thread. SIGTERM, SIGINT and the end of the lifeline pipe drain it; a model that cannot be loaded
ends it with `failure.json` and status 3; an engine that dies ends it with status 1.
"""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TypeVar

import msgspec
import structlog
import uvloop

from steelyard.contracts.replica import FAILED_EXIT_STATUS, FAILURE_FILE, LOG_FILE, SPEC_FILE, Failure, ReplicaSpec
from steelyard.errors import InternalError, ModelProcessEnded, SteelyardError
from steelyard.observe.logs import configure_logs, get_logger
from steelyard.packages import Package, inspect_package, resolve
from steelyard.protocols import open_inference
from steelyard.protocols.mlflow import parse_input_schema
from steelyard.replica.app import App
from steelyard.replica.generations import Generations
from steelyard.replica.lanes import Lane
from steelyard.replica.native import MAX_CONCURRENCY, Native
from steelyard.replica.predictions import Predictions
from steelyard.runtimes.base import GenerateRuntime
from steelyard.runtimes.native_model import NativeModel
from steelyard.runtimes.select import Selection, Wishes, select
from steelyard.runtimes.workers import WorkerRuntime
from steelyard.settings import HttpLimits, Settings
from steelyard.substrate import logfiles
from steelyard.wire.server import HttpServer

_MODEL_DIED_STATUS = 1
T = TypeVar("T")

_FLUSH_S = 2.0  # for the last bytes of finished replies


def run(folder: str) -> int:
    """Serve until told to stop. Returns the process's exit status."""
    directory = Path(folder)
    settings = Settings.from_env()
    configure_logs("replica", settings.log_level)
    try:
        spec = msgspec.json.decode((directory / SPEC_FILE).read_bytes(), type=ReplicaSpec)
    except (OSError, msgspec.MsgspecError) as error:
        get_logger().error("spec_unreadable", folder=folder, error=str(error))
        return 2
    os.environ.update(spec.environment_vars)
    structlog.contextvars.bind_contextvars(endpoint=spec.endpoint, replica=spec.id)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_serve(spec, directory, settings))


async def _serve(spec: ReplicaSpec, directory: Path, settings: Settings) -> int:
    return await Replica(spec, directory, settings).serve()


class Replica:
    """One run of one replica on the running loop; `serve` is its whole life."""

    def __init__(self, spec: ReplicaSpec, directory: Path, settings: Settings) -> None:
        self._spec = spec
        self._directory = directory
        self._settings = settings
        self._lifeline_fd = settings.lifeline_fd
        self._log = get_logger()
        self._stop = asyncio.Event()
        self._stop_reason = ""
        self._app = App(spec)
        self._runtime: GenerateRuntime | None = None
        self._stop_lanes: Callable[[], None] = _nothing
        self._close_worker: Callable[[], None] = _nothing
        self._dead: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._loader = Lane("load", 1, 1)  # daemon threads: a load that hangs cannot keep the process

    async def serve(self) -> int:
        """Returns the exit status."""
        self._watch_for_the_end()
        server = HttpServer(self._app.handle, HttpLimits.behind_router(), idle_timeouts=False, hop=True)
        try:
            await server.listen(self._spec.address)
        except (OSError, ValueError) as error:
            return self._failed(InternalError(f"The replica cannot listen on {self._spec.address}: {error}."))
        self._log.info("replica_listening", address=self._spec.address)
        status = 0
        async with asyncio.TaskGroup() as tasks:
            life = tasks.create_task(self._live(tasks))
            stop = tasks.create_task(self._stop.wait())
            await asyncio.wait({life, stop}, return_when=asyncio.FIRST_COMPLETED)
            if life.done():
                status = life.result()
            life.cancel()
            stop.cancel()
            await self._drain(server)
        if self._runtime is not None:
            await self._runtime.stop()
        await asyncio.to_thread(self._close_worker)
        self._log.info("replica_stopped", status=status)
        return status

    async def _live(self, tasks: asyncio.TaskGroup) -> int:
        """Load, be ready, and return only when something went wrong: the exit status."""
        began_s = time.monotonic()
        try:
            selection = await self._load(tasks)
        except SteelyardError as error:
            return self._failed(error)
        except Exception as error:  # a library's fault that no runtime foresaw
            self._log.error("load_failed", trace=traceback.format_exc())
            return self._failed(InternalError(f"The model cannot be loaded: {type(error).__name__}: {error}."))
        if self._app.state == "starting":
            self._app.state, self._app.detail = "ready", ""
        self._log.info("replica_ready", seconds=round(time.monotonic() - began_s, 3), runtime=self._app.runtime)
        reason = await (selection.generate.died() if selection.generate is not None else self._dead)
        self._log.error("model_died", reason=reason)
        return _MODEL_DIED_STATUS

    async def _load(self, tasks: asyncio.TaskGroup) -> Selection:
        app, spec = self._app, self._spec
        app.detail = "resolving the model"
        package = await self._loader.call(partial(_package, spec))
        selection = await self._loader.call(partial(select, package, self._wishes()))
        app.reason = selection.reason
        self._log.info("runtime_selected", reason=selection.reason, path=str(package.path))
        if selection.native is not None:
            self._serve_native(selection.native)
        elif selection.worker is not None:
            self._serve_worker(selection.worker)
        else:
            assert selection.generate is not None
            await self._load_generate(selection.generate, tasks)
        if selection.generate is None:
            app.metadata = _metadata(spec, app.runtime or "", selection.package or package)
        gc.collect()
        gc.freeze()  # what is loaded stays: a full collection must not walk over it between two requests
        gc.set_threshold(50_000, 20, 50)  # and requests make no cycles that outlive them
        return selection

    def _wishes(self) -> Wishes:
        app = self._app

        def say(detail: str) -> None:
            app.detail = detail

        def building(under_way: bool) -> None:
            app.building = under_way

        spec = self._spec
        labels = {"endpoint": spec.endpoint, "replica": spec.id}
        return Wishes(self._settings, spec.max_concurrency, spec.environment_vars, labels, say, building)

    def _serve_native(self, model: NativeModel) -> None:
        app = self._app
        native = Native(model, self._spec.endpoint, self._spec.served_entity, app.measures)
        self._stop_lanes = native.stop
        app.runtime = model.runtime.name
        app.load.max_concurrency = self._spec.max_concurrency or MAX_CONCURRENCY
        app.load.lanes = 1
        app.load.occupied = native.occupied
        app.handlers = native

    def _serve_worker(self, runtime: WorkerRuntime) -> None:
        app, loop = self._app, asyncio.get_running_loop()
        predictions = Predictions(runtime, self._spec.endpoint, self._spec.served_entity, app.measures)

        def resize(width: int) -> None:
            predictions.resize(width)
            app.load.max_concurrency = runtime.most_requests
            app.load.lanes = runtime.max_concurrency

        runtime.on_resize = partial(_on_loop, loop, resize)
        runtime.on_hung = partial(_on_loop, loop, predictions.worker_hung)
        runtime.on_dead = partial(_on_loop, loop, self._worker_dead)
        self._stop_lanes, self._close_worker = predictions.stop, runtime.close
        app.runtime, app.task = runtime.name, runtime.task
        app.load.max_concurrency = runtime.most_requests
        app.load.lanes = runtime.max_concurrency
        app.load.occupied = predictions.occupied
        app.handlers = predictions

    def _worker_dead(self, reason: str) -> None:
        if not self._dead.done():
            self._dead.set_result(reason)

    async def _load_generate(self, runtime: GenerateRuntime, tasks: asyncio.TaskGroup) -> None:
        self._runtime = runtime
        app = self._app
        app.progress = lambda: runtime.detail
        app.runtime, app.detail = runtime.name, "loading the model"
        await runtime.start()
        app.task, app.context_length = runtime.task, runtime.context_length
        app.load.max_concurrency = runtime.max_concurrency
        app.load.generation = runtime.load
        app.handlers = Generations(runtime, self._spec.endpoint, app.measures, tasks)

    async def _drain(self, server: HttpServer) -> None:
        """Refuse new requests, let the running ones finish for a while, then cut what is left."""
        app = self._app
        app.state, app.detail = "draining", self._stop_reason
        self._log.info("replica_draining", reason=self._stop_reason, open_requests=app.load.open_requests)
        idle = asyncio.Event()
        app.load.on_idle = idle.set
        if app.load.open_requests:
            with suppress(TimeoutError):
                await asyncio.wait_for(idle.wait(), self._spec.drain_timeout_s)
        await server.stop(_FLUSH_S if app.load.open_requests == 0 else 0.0)
        self._stop_lanes()

    def _failed(self, error: SteelyardError) -> int:
        """Leave the reason where the substrate looks for it."""
        message = error.message
        if isinstance(error, ModelProcessEnded) and (said := logfiles.last_words(self._directory / LOG_FILE)):
            message = f"{message} It last printed: {said}"
        self._log.error("replica_failed", code=error.code, message=message)
        body = msgspec.json.encode(Failure(code=error.code, message=message))
        draft = self._directory / f".{FAILURE_FILE}"
        draft.write_bytes(body)
        draft.replace(self._directory / FAILURE_FILE)
        return FAILED_EXIT_STATUS

    def _watch_for_the_end(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._end, signal.Signals(number).name)
        if self._lifeline_fd >= 0:
            os.set_blocking(self._lifeline_fd, False)
            loop.add_reader(self._lifeline_fd, self._read_lifeline)

    def _read_lifeline(self) -> None:
        try:
            data = os.read(self._lifeline_fd, 4096)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            asyncio.get_running_loop().remove_reader(self._lifeline_fd)
            self._end("the platform is gone")

    def _end(self, reason: str) -> None:
        if not self._stop.is_set():
            self._stop_reason = reason
            self._stop.set()


def _metadata(spec: ReplicaSpec, runtime: str, package: Package) -> bytes:
    """For `GET /v2/model`."""
    try:
        inputs, outputs = parse_input_schema(package.signature_inputs), parse_input_schema(package.signature_outputs)
    except ValueError:  # outputs that only MLflow understands
        inputs = outputs = None
    told = open_inference.metadata(spec.endpoint, [spec.served_entity], f"steelyard_{runtime}", inputs, outputs)
    return msgspec.json.encode(told)


def _on_loop(loop: asyncio.AbstractEventLoop, call: Callable[[T], None], value: T) -> None:
    """From any thread; nothing when the loop is closed, since the process ends then."""
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(call, value)


def _nothing() -> None:
    """There is nothing to give back yet."""


def _package(spec: ReplicaSpec) -> Package:
    return inspect_package(resolve(spec.model_uri, spec.model_version))
