"""The engine as a child process: starts it, sends it commands, hears its events, notices its end.

`llm.LlmRuntime` owns one. It knows the frames on the socket, nothing of text or requests, and never imports torch.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import sys
from collections.abc import AsyncGenerator, Callable

import msgspec

from steelyard.engine.messages import (
    Command,
    EngineOptions,
    Event,
    Failed,
    FrameReader,
    Limits,
    Loaded,
    Loading,
    Shutdown,
    frame,
)
from steelyard.errors import ModelLoadError

_STOP_TIMEOUT_S = 5.0


class EngineProcess:
    """`on_end` is called once, with the reason, if it ends though nobody stopped it."""

    def __init__(
        self, options: EngineOptions, on_event: Callable[[Event], None], on_end: Callable[[str], None]
    ) -> None:
        self._options = options
        self._on_event = on_event
        self._on_end = on_end
        self._process: asyncio.subprocess.Process | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._reading: asyncio.Task[None] | None = None
        self._stopping = False

    async def start(self, on_loading: Callable[[str], None]) -> Limits:
        """Raises ModelLoadError."""
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable, "-P", "-m", "steelyard.engine",
                str(theirs.fileno()), msgspec.json.encode(self._options).decode(),
                pass_fds=[theirs.fileno()],
                stdin=asyncio.subprocess.DEVNULL,
                env={**os.environ, "OMP_WAIT_POLICY": "PASSIVE"},
            )  # fmt: skip
        reader, self._writer = await asyncio.open_connection(sock=ours)
        events = _events(reader)
        async for event in events:
            match event:
                case Loading():
                    on_loading(event.detail)
                case Failed():
                    raise ModelLoadError(event.message)
                case Loaded():
                    self._reading = asyncio.create_task(self._read(events), name="engine-events")
                    return event.limits
        raise ModelLoadError(f"The engine process ended while it loaded the model ({await self._exit_reason()}).")

    def send(self, command: Command) -> None:
        if self._writer is not None and not self._writer.is_closing():
            self._writer.write(frame(command))

    async def stop(self) -> None:
        self._stopping = True
        self.send(Shutdown())
        if self._writer is not None:
            self._writer.close()
        if self._process is not None:
            try:
                await asyncio.wait_for(self._process.wait(), _STOP_TIMEOUT_S)
            except TimeoutError:
                self._process.kill()
                await self._process.wait()
        if self._reading is not None:
            self._reading.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._reading

    async def _read(self, events: AsyncGenerator[Event, None]) -> None:
        reason = "it broke its protocol"
        try:
            async for event in events:
                self._on_event(event)
            reason = await self._exit_reason()
        except (ValueError, msgspec.MsgspecError) as error:
            reason = f"it broke its protocol: {error}"
        finally:
            if not self._stopping:
                self._on_end(f"The engine process ended unexpectedly ({reason}).")

    async def _exit_reason(self) -> str:
        if self._process is None:
            return "it did not start"
        status = await self._process.wait()
        if status == -9:
            return "killed; was it out of memory?"
        return f"signal {-status}" if status < 0 else f"exit status {status}"


async def _events(reader: asyncio.StreamReader) -> AsyncGenerator[Event, None]:
    """Until end of file."""
    frames = FrameReader()
    decoder = msgspec.msgpack.Decoder(Event)
    while True:
        try:
            data = await reader.read(1 << 16)
        except ConnectionError:
            return
        if not data:
            return
        for body in frames.feed(data):
            yield decoder.decode(body)
