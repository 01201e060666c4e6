"""The engine's life in its process: take commands, make a step, send what it produced; sleep when there is nothing.

`__main__.py` runs it. One thread, no lock: commands are applied between steps, so a cancelled request's blocks are
free before the next one. The peer's end of file means that nobody wants answers any more, and ends the process.
"""

from __future__ import annotations

import select
import socket
import time

import msgspec

from steelyard.engine.core import Engine
from steelyard.engine.messages import (
    AddRequest,
    Cancel,
    Command,
    Event,
    FrameReader,
    GetStats,
    Rejected,
    Shutdown,
    StepDone,
    frame,
)


class Gone(Exception):
    """The other side of the socket is no more."""


class Connection:
    """The engine's end of the socket pair. Blocking writes: a reader that does not keep up slows the engine down."""

    def __init__(self, peer: socket.socket) -> None:
        self._peer = peer
        self._reader = FrameReader()
        self._decoder = msgspec.msgpack.Decoder(Command)
        self._poll = select.poll()
        self._poll.register(peer, select.POLLIN)

    def receive(self, wait: bool) -> list[Command]:
        """All commands that have arrived; with `wait`, at least some data first. Raises Gone."""
        commands: list[Command] = []
        while self._poll.poll(None if wait and not commands else 0):
            try:
                data = self._peer.recv(1 << 20)
            except ConnectionError as error:
                raise Gone from error
            if not data:
                raise Gone
            commands += [self._decoder.decode(body) for body in self._reader.feed(data)]
        return commands

    def send(self, event: Event) -> None:
        """Raises Gone."""
        try:
            self._peer.sendall(frame(event))
        except ConnectionError as error:
            raise Gone from error


class EngineLoop:
    def __init__(self, engine: Engine, connection: Connection) -> None:
        self._engine = engine
        self._connection = connection

    def run(self) -> None:
        """Until Shutdown or Gone."""
        while True:
            commands = self._connection.receive(wait=not self._engine.has_work())
            if any(isinstance(command, Shutdown) for command in commands):
                return
            refused = [answer for command in commands if (answer := self._apply(command)) is not None]
            if self._engine.has_work():
                event = self._step(refused)
                self._connection.send(event)
            elif commands:  # nothing left to do, but the gauges have changed
                self._connection.send(StepDone(rejected=refused, stats=self._engine.stats()))

    def _apply(self, command: Command) -> Rejected | None:
        match command:
            case AddRequest():
                return self._engine.add(command)
            case Cancel():
                self._engine.cancel(command.id)
            case GetStats():
                self._connection.send(self._engine.stats())
        return None

    def _step(self, refused: list[Rejected]) -> StepDone:
        begin_s = time.monotonic()
        done = self._engine.step(begin_s)
        self._engine.add_busy_time(time.monotonic() - begin_s)
        return msgspec.structs.replace(done, rejected=refused + done.rejected) if refused else done
