"""The worker's life: load the model, say so, then serve each slot that the replica opens in a thread of its own.

The main thread reads the control connection and nothing else; when that ends, so does the process, whatever its
threads are at. A slot's thread takes one request after the other until its connection ends.
"""

from __future__ import annotations

import os
import socket
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from steelyard.contracts.worker import (
    Ask,
    AskTogether,
    Compare,
    Compared,
    Failed,
    FromReplica,
    FromWorker,
    Message,
    OnSlot,
    OpenSlot,
    Part,
    PartFault,
    Piece,
    Progress,
    Ready,
    Reply,
    Start,
    Together,
    UseThreads,
    Warmed,
)
from steelyard.errors import InternalError, ModelLoadError, SteelyardError
from steelyard.protocols.media import Media
from steelyard.protocols.query import Answer, Dialect, Query
from steelyard.worker import confine
from steelyard.worker.answer import Answering
from steelyard.worker.arrays import unpack_inputs
from steelyard.worker.clock import ThreadClock
from steelyard.worker.coroutines import Coroutines, Gone
from steelyard.worker.export.fork import export_beside
from steelyard.worker.faults import fault_of
from steelyard.worker.frames import BrokenFrame, Channel
from steelyard.worker.joined import Joined
from steelyard.worker.load import forbidden, load
from steelyard.worker.log import about, labels, log
from steelyard.worker.pyfunc import PyfuncModel
from steelyard.worker.threads import use_threads

_MOST_DESCRIPTORS = 16  # taken off the connection at once
_ENCODE = msgspec.msgpack.Encoder().encode
_ON_SLOT: Callable[[bytes], OnSlot] = msgspec.msgpack.Decoder(OnSlot).decode
_PIECE = _ENCODE(Piece())


def serve(control: socket.socket) -> None:
    """Until the replica ends the connection. The caller then ends the process."""
    conversation = _Control(control)
    start = conversation.receive()
    if not isinstance(start, Start):
        return
    labels.update(start.labels)
    unprivileged = _confine(start)
    began_s = time.monotonic()
    conversation.send(Progress("loading the model"))
    try:
        package, loaded = load(Path(start.path))
        if start.export is not None:
            export_beside(start.export, package.path, loaded)
        model = PyfuncModel(package, loaded)
    except ModelLoadError as error:
        conversation.send(Failed(error.message, forbidden(error)))
        return
    seconds = time.monotonic() - began_s
    log("info", "model_loaded", seconds=round(seconds, 3), variants=model.variants, unprivileged=unprivileged)
    conversation.send(Ready(model.variants, model.streams, unprivileged, seconds))
    while (message := conversation.receive()) is not None:
        if isinstance(message, OpenSlot):
            slot = _Slot(conversation.take_connection(), model)
            threading.Thread(target=slot.serve, name="slot", daemon=True).start()
        elif isinstance(message, UseThreads):
            use_threads(message.count)


def _confine(start: Start) -> bool:
    confine.be_first_to_go()
    unprivileged = start.unprivileged and confine.give_up_privileges(Path(start.path), Path(start.home))
    confine.confine(start.parent_pid)
    return unprivileged


class _Control:
    """The control connection: messages both ways, and the descriptors that come with some of them."""

    def __init__(self, connection: socket.socket) -> None:
        self._connections: deque[int] = deque()
        self._channel = Channel(_Receiving(connection, self._connections))
        self._decode: Callable[[bytes], FromReplica] = msgspec.msgpack.Decoder(FromReplica).decode

    def send(self, message: FromWorker) -> None:
        self._channel.send(_ENCODE(message))

    def receive(self) -> FromReplica | None:
        """None at the end of the connection."""
        try:
            frame = self._channel.receive()
        except OSError:
            return None
        return None if frame is None else self._decode(frame[0])

    def take_connection(self) -> socket.socket:
        """The one that came with the oldest OpenSlot."""
        return socket.socket(fileno=self._connections.popleft())


class _Receiving(socket.socket):
    """A Unix socket that keeps the descriptors that come with what is received."""

    def __init__(self, connection: socket.socket, descriptors: deque[int]) -> None:
        super().__init__(fileno=connection.detach())
        self._descriptors = descriptors

    def recv_into(self, buffer: Any, nbytes: int = 0, flags: int = 0) -> int:
        data, descriptors, _, _ = socket.recv_fds(self, nbytes or len(buffer), _MOST_DESCRIPTORS)
        self._descriptors.extend(descriptors)
        for descriptor in descriptors:
            os.set_inheritable(descriptor, False)
        memoryview(buffer)[: len(data)] = data
        return len(data)


class _Slot:
    """One connection and its thread."""

    def __init__(self, connection: socket.socket, model: PyfuncModel) -> None:
        self._channel = Channel(connection)
        self._coroutines = Coroutines(connection)
        self._answering = Answering(model, self._coroutines)

    def serve(self) -> None:
        clock = ThreadClock()
        try:
            while (frame := self._channel.receive()) is not None:
                self._one(_ON_SLOT(frame[0]), frame[1], clock)
                del frame  # a waiting thread must not keep a request's memory
        except (OSError, Gone, BrokenFrame):
            pass  # the replica has ended the connection: what ran on it is over
        finally:
            clock.close()
            self._coroutines.close()
            self._channel.close()

    def _one(self, message: OnSlot, payload: bytes, clock: ThreadClock) -> None:
        began = clock.read()
        try:
            reply, body = self._answer(message, payload)
        except (OSError, Gone):
            raise
        except Exception as error:
            told = error if isinstance(error, SteelyardError) else _own_fault(error)
            fault = fault_of(told, *_since(began, clock))
            self._channel.send(_ENCODE(fault))
            return
        if isinstance(reply, Reply):
            reply = Reply(reply.content_type, reply.headers, *_since(began, clock), reply.rows, reply.given_rows)
        elif isinstance(reply, Together):
            reply = Together(reply.calls, reply.rows, *_since(began, clock), reply.apart)
        self._channel.send(_ENCODE(reply), body)

    def _answer(self, message: OnSlot, payload: bytes) -> tuple[Message, bytes]:
        if isinstance(message, Ask):
            return self._ask(message, payload)
        if isinstance(message, AskTogether):
            return self._ask_together(message, payload), b""
        if isinstance(message, Compare):
            body, bits, error = self._answering.outcome(unpack_inputs(payload), message.variant)
            return Compared(bits, error), body
        return Warmed(self._answering.warm_up()), b""

    def _ask(self, ask: Ask, body: bytes) -> tuple[Message, bytes]:
        query = _query(ask, body)
        with about(ask.request_id):
            if ask.stream:
                self._stream(query)
                return Reply("", (), 0.0, 0.0), b""
            if not ask.joins:
                answer, rows = self._answering.answer(query, ask.variant), 0
            else:
                asked = self._answering.prepare(query)
                answer = self._answering.answer_prepared(asked, ask.variant, learn=True)
                inputs = None if self._answering.evidence(ask.variant).apart else asked.shareable
                rows = 0 if inputs is None else inputs.rows
            return Reply(answer.content_type, answer.headers, 0.0, 0.0, rows, answer.rows), answer.body

    def _ask_together(self, message: AskTogether, bodies: bytes) -> Together:
        queries, start = [], 0
        for ask, size in zip(message.asks, message.sizes, strict=True):
            queries.append(_query(ask, bodies[start : start + size]))
            start += size
        joined = Joined(self._answering, queries, message.asks[0].variant, message.most_rows, self._tell_part)
        tally = joined.run()
        return Together(tally.calls, tally.rows, 0.0, 0.0, joined.apart)

    def _tell_part(self, place: int, result: Answer | Exception) -> None:
        if isinstance(result, Exception):
            told = result if isinstance(result, SteelyardError) else _own_fault(result)
            self._channel.send(_ENCODE(PartFault(place, fault_of(told))))
        else:
            self._channel.send(_ENCODE(Part(place, result.content_type, result.headers, result.rows)), result.body)

    def _stream(self, query: Query) -> None:
        pieces = self._answering.stream(query)
        try:
            for piece in pieces:
                self._channel.send(_PIECE, piece)
        finally:
            pieces.close()  # type: ignore[attr-defined]


def _query(ask: Ask, body: bytes) -> Query:
    media, dialect = Media(ask.media), Dialect(ask.dialect)
    return Query(dialect, body, media, ask.request_id, ask.model, ask.version, ask.json_bytes)


def _since(began: tuple[float, float], clock: ThreadClock) -> tuple[float, float]:
    cpu_s, wall_s = clock.read()
    return cpu_s - began[0], wall_s - began[1]


def _own_fault(error: Exception) -> SteelyardError:
    log("error", "query_failed", trace="".join(traceback.format_exception(error)))
    return InternalError("The model's process met an error of its own; its log has the details.")


def end_process() -> None:
    """At once, whatever the model's threads are at."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            continue
    os._exit(0)
