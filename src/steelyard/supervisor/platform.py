"""The platform's life: from a cleared home to running processes, to a signal, to no process at all.

Entered by the command line. It supervises; it never touches the store, and it sees no request.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import signal
import sys
import time
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from types import TracebackType
from typing import Self

import httpx

from steelyard.settings import Settings
from steelyard.substrate import logfiles
from steelyard.supervisor.child import Child
from steelyard.supervisor.ground import (
    LEFTOVER_PATIENCE_S,
    ProcessFiles,
    StartError,
    free_port,
    locked_home,
    private_folder,
)
from steelyard.supervisor.journal import Journal

READY_TIMEOUT_S = 60.0
SNAPSHOT_TIMEOUT_S = 10.0
GIVE_UP_AFTER = 3  # early ends of a process during the start
STOP_MARGIN_S = 5.0  # beyond the drain timeout that routers and control keep themselves
SWEEP_PATIENCE_S = 2.0
BOUND_LOGS_EVERY_S = 10.0
_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class Supervisor:
    """See the room's docstring. Enter it in the main thread, once."""

    def __init__(self, settings: Settings) -> None:
        self.settings = replace(settings, home=settings.home.absolute())
        self.first_token: str | None = None
        self._ended = asyncio.Event()
        self._hurry = asyncio.Event()
        self._waiting = 0
        self._cancelled = False
        self._owner: asyncio.Task[object] | None = None
        self._stack = AsyncExitStack()
        self._journal = Journal(self.settings.logs_dir / "supervisor.log")
        self._control: Child | None = None
        self._routers: list[Child] = []

    async def __aenter__(self) -> Self:
        """Raises StartError; then nothing that was started is left."""
        self._owner = asyncio.current_task()
        self._catch_signals()
        try:
            await self._start()
        except BaseException as error:
            await self._stack.aclose()
            self._release_signals()
            if isinstance(error, asyncio.CancelledError) and self._is_our_cancellation():
                raise StartError("Stopped by a signal before the platform was ready.") from error
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        try:
            await self._stack.aclose()
        finally:
            self._release_signals()
        return kind is asyncio.CancelledError and self._is_our_cancellation()

    async def wait(self) -> None:
        """Until a signal or `stop`."""
        self._waiting += 1
        try:
            await self._ended.wait()
        finally:
            self._waiting -= 1

    def stop(self) -> None:
        """Ends `wait`."""
        self._ended.set()

    async def _start(self) -> None:
        """Each thing that must be undone is put on the stack as soon as it is done."""
        self._stack.enter_context(locked_home(self.settings.home))
        files = ProcessFiles(self.settings)
        await files.clear(LEFTOVER_PATIENCE_S)
        private_folder(self.settings.sockets)
        self.settings.logs_dir.mkdir(mode=0o700, exist_ok=True)
        self._journal.note("platform_starts", pid=os.getpid(), home=str(self.settings.home))
        self.settings = replace(self.settings, port=free_port(self.settings.host, self.settings.port))
        lifeline, write_end = os.pipe()
        self._stack.callback(os.close, lifeline)
        self._stack.callback(os.close, write_end)
        self._stack.push_async_callback(self._sweep, files)
        self._control = self._child("control", ["steelyard.control"], lifeline, files)
        self._routers = [
            self._child(f"router-{index}", ["steelyard.router", "--index", str(index)], lifeline, files)
            for index in range(self.settings.routers)
        ]
        self._stack.push_async_callback(self._stop_children)
        children = [self._control, *self._routers]
        tasks = [asyncio.create_task(child.run(), name=child.name) for child in children]
        tasks.append(asyncio.create_task(self._bound_logs(children), name="logs"))
        self._stack.push_async_callback(_cancel, tasks)
        await self._until_alive(self._control, self.settings.control_address)
        if self.settings.auth:
            self.first_token = await self._ask_for_token()
        for index, router in enumerate(self._routers):
            await self._until_alive(router, self.settings.router_address(index))
        await self._until_routers_know_the_endpoints()

    def _child(self, name: str, module: list[str], lifeline: int, files: ProcessFiles) -> Child:
        environment = {**os.environ, **replace(self.settings, lifeline_fd=lifeline).to_env()}
        return Child(
            name,
            [sys.executable, "-P", "-m", *module],  # -P: a folder that `up` is called from must not shadow modules
            environment=environment,
            descriptors=[lifeline],
            log_path=self.settings.logs_dir / f"{name}.log",
            note_pid=files.write,
            journal=self._journal,
        )

    async def _until_alive(self, child: Child, address: str) -> None:
        deadline_s = time.monotonic() + READY_TIMEOUT_S
        async with _client(address) as client:
            while True:
                with suppress(httpx.HTTPError, OSError):
                    if (await client.get("/livez")).status_code == 200:
                        return
                if child.is_misconfigured or child.ended_early >= GIVE_UP_AFTER:
                    raise StartError(f"{child.name} does not start: {_reason(child.last_words())}")
                if time.monotonic() > deadline_s:
                    raise StartError(f"{child.name} does not answer after {READY_TIMEOUT_S:g} s; see {child.log_path}.")
                await asyncio.sleep(0.05)

    async def _until_routers_know_the_endpoints(self) -> None:
        """Without a snapshot a router can only refuse. If they take long, the platform is up nevertheless."""
        deadline_s = time.monotonic() + SNAPSHOT_TIMEOUT_S
        async with _client(self.settings.control_address) as client:
            while time.monotonic() < deadline_s:
                with suppress(httpx.HTTPError, OSError, ValueError):
                    if (await client.get("/internal/routers")).json().get("up_to_date"):
                        return
                await asyncio.sleep(0.05)
        self._journal.note("routers_not_up_to_date", after_s=SNAPSHOT_TIMEOUT_S)

    async def _ask_for_token(self) -> str | None:
        """A token when the one that the command line has saved does not open this platform (or there is none)."""
        known = ""
        with suppress(OSError, ValueError, AttributeError):
            saved = json.loads(self.settings.client_file.read_bytes()).get("token") or ""
            known = hashlib.sha256(str(saved).encode()).hexdigest()
        async with _client(self.settings.control_address) as client:
            try:
                reply = await client.post("/internal/first-token", params={"known": known})
                reply.raise_for_status()
            except httpx.HTTPError as error:
                raise StartError("control could not create the first token; see its log.") from error
            token = reply.json()["token"]
            return str(token) if token else None

    async def _stop_children(self) -> None:
        """Routers first, since they still need replicas for what they have begun."""
        grace_s = self.settings.drain_timeout_s + STOP_MARGIN_S
        await asyncio.gather(*(router.stop(grace_s, self._hurry) for router in self._routers))
        if self._control is not None:
            await self._control.stop(grace_s, self._hurry)

    async def _sweep(self, files: ProcessFiles) -> None:
        """Whatever was missed ends now."""
        killed = await files.clear(0.0 if self._hurry.is_set() else SWEEP_PATIENCE_S)
        if killed:
            self._journal.note("processes_killed_at_the_end", count=killed)
        for path in self.settings.sockets.glob("*.sock"):
            path.unlink(missing_ok=True)
        with suppress(OSError):
            self.settings.sockets.rmdir()
        self._journal.note("platform_stopped")

    async def _bound_logs(self, children: list[Child]) -> None:
        while True:
            for path in (self._journal.path, *(child.log_path for child in children)):
                await asyncio.to_thread(logfiles.bound, path)
            await asyncio.sleep(BOUND_LOGS_EVERY_S)

    def _catch_signals(self) -> None:
        for signum in _SIGNALS:
            asyncio.get_running_loop().add_signal_handler(signum, self._signalled)

    def _release_signals(self) -> None:
        for signum in _SIGNALS:
            asyncio.get_running_loop().remove_signal_handler(signum)

    def _signalled(self) -> None:
        if self._ended.is_set():
            self._hurry.set()
            return
        self._ended.set()
        if not self._waiting and self._owner is not None:
            self._cancelled = True
            self._owner.cancel()

    def _is_our_cancellation(self) -> bool:
        """True once for the cancellation that a signal caused, unless somebody else has cancelled us too."""
        if not self._cancelled or self._owner is None:
            return False
        self._cancelled = False
        return self._owner.uncancel() <= 0


async def _cancel(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _client(address: str) -> httpx.AsyncClient:
    transport = httpx.AsyncHTTPTransport(uds=address.removeprefix("unix:"), verify=False)
    return httpx.AsyncClient(transport=transport, base_url="http://platform", timeout=5.0)


def _reason(last_words: str) -> str:
    """What a process logged last, as a sentence: our logs are JSON, a crash is not."""
    last = last_words.splitlines()[-1]
    try:
        line = json.loads(last)
        return str(line.get("reason") or line.get("event") or last)
    except (ValueError, AttributeError):
        return last
