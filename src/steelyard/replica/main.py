"""The life of a replica process: listen, load the model, serve, drain, end.

Started by a substrate with a folder that holds `spec.json`. It listens at once, so that its state can be read while
the model loads in a thread. SIGTERM, SIGINT and the end of the lifeline pipe drain it; a model that cannot be loaded
ends it with `failure.json` and status 3; an engine that dies ends it with status 1.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
import traceback
from contextlib import suppress
from functools import partial
from pathlib import Path

import msgspec
import structlog
import uvloop

from steelyard.contracts.replica import FAILED_EXIT_STATUS, FAILURE_FILE, SPEC_FILE, Failure, ReplicaSpec
from steelyard.errors import InternalError, SteelyardError
from steelyard.observe.logs import configure_logs, get_logger
from steelyard.packages import Package, inspect_package, resolve
from steelyard.replica.app import App
from steelyard.replica.generations import Generations
from steelyard.replica.invocations import Invocations
from steelyard.replica.lanes import Lane
from steelyard.runtimes.base import GenerateRuntime, PredictRuntime
from steelyard.runtimes.select import Selection, select
from steelyard.settings import HttpLimits, Settings
from steelyard.wire.server import HttpServer

_ENGINE_DIED_STATUS = 1
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
        return runner.run(_serve(spec, directory, settings.lifeline_fd))


async def _serve(spec: ReplicaSpec, directory: Path, lifeline_fd: int) -> int:
    return await Replica(spec, directory, lifeline_fd).serve()


class Replica:
    """One run of one replica on the running loop; `serve` is its whole life."""

    def __init__(self, spec: ReplicaSpec, directory: Path, lifeline_fd: int = -1) -> None:
        self._spec = spec
        self._directory = directory
        self._lifeline_fd = lifeline_fd
        self._log = get_logger()
        self._stop = asyncio.Event()
        self._stop_reason = ""
        self._app = App(spec)
        self._runtime: GenerateRuntime | None = None
        self._invocations: Invocations | None = None
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
        if selection.generate is None:
            await asyncio.Event().wait()
            raise AssertionError("unreachable")
        reason = await selection.generate.died()
        self._log.error("engine_died", reason=reason)
        return _ENGINE_DIED_STATUS

    async def _load(self, tasks: asyncio.TaskGroup) -> Selection:
        app, spec = self._app, self._spec
        app.detail = "resolving the model"
        package = await self._loader.call(partial(_package, spec))
        selection = select(package, spec.max_concurrency)
        self._log.info("runtime_selected", reason=selection.reason, path=str(package.path))
        runtime = selection.predict or selection.generate
        assert runtime is not None
        app.runtime, app.detail = runtime.name, "loading the model"
        if selection.predict is not None:
            await self._load_predict(selection.predict)
        elif selection.generate is not None:
            await self._load_generate(selection.generate, tasks)
        app.task = runtime.task
        app.load.max_concurrency = runtime.max_concurrency
        return selection

    async def _load_predict(self, runtime: PredictRuntime) -> None:
        await self._loader.call(runtime.load)
        self._app.detail = "predicting the input example"
        began_s = time.monotonic()
        warmed = await self._loader.call(runtime.warm_up)
        self._log.info("warmed_up", example=warmed, seconds=round(time.monotonic() - began_s, 3))
        self._invocations = invocations = Invocations(runtime, self._app.measures)
        self._app.load.occupied = invocations.occupied
        self._app.handlers = invocations

    async def _load_generate(self, runtime: GenerateRuntime, tasks: asyncio.TaskGroup) -> None:
        self._runtime = runtime
        self._app.progress = lambda: runtime.detail
        await runtime.start()
        self._app.load.generation = runtime.load
        self._app.handlers = Generations(runtime, self._spec.endpoint, self._app.measures, tasks)

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
        if self._invocations is not None:
            self._invocations.stop()

    def _failed(self, error: SteelyardError) -> int:
        """Leave the reason where the substrate looks for it."""
        self._log.error("replica_failed", code=error.code, message=error.message)
        body = msgspec.json.encode(Failure(code=error.code, message=error.message))
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


def _package(spec: ReplicaSpec) -> Package:
    return inspect_package(resolve(spec.model_uri, spec.model_version))
