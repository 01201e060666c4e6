"""A replica that misbehaves on command: real sockets, the real wire server, and a body that says what to do.

The body is JSON; `do` names the behaviour: `echo`, `hold` (until released), `die` (close before the first byte),
`half_head`, `garbage`, `drain` (503 as a draining replica), `status`, `big`, and `stream` with `events`, and one of
`cut_after`, `stall_after`, `no_done`. With `usage` the head says that the request took so much, with `last_usage` a
stream's trailer does.
"""

from __future__ import annotations

import json
from collections.abc import Callable

from steelyard.contracts.usage import USAGE_HEADER
from steelyard.errors import BadRequest
from steelyard.settings import HttpLimits
from steelyard.wire.server import Headers, HttpServer, Reply, Request
from steelyard.wire.sse import DONE, encode_event

EVENT_STREAM = [(b"content-type", b"text/event-stream")]


class FakeReplica:
    """`started`, `gone` and `peak` observe; `held` are replies to be released; `always` overrides every command."""

    def __init__(self, name: str, address: str) -> None:
        self.name = name
        self.address = address
        self.requests: list[Request] = []
        self.held: list[Reply] = []
        self.gone = 0
        self.running = 0
        self.peak = 0
        self.always: str | None = None
        self.server: HttpServer | None = None

    async def start(self) -> None:
        self.server = HttpServer(self.handle, HttpLimits.behind_router(), idle_timeouts=False, hop=True)
        await self.server.listen(self.address)

    async def kill(self) -> None:
        """As `kill -9` looks from outside: connections end, nobody listens."""
        if self.server is not None:
            await self.server.stop(0.0)
            self.server = None
            self.held.clear()

    def drop_idle_connections(self) -> None:
        assert self.server is not None
        for connection in list(self.server.connections):
            connection.transport.abort()

    def release(self, count: int = 10**6) -> None:
        """Answer the oldest held requests."""
        for reply in self.held[:count]:
            self._finish(reply, lambda reply: reply.send(200, [(b"content-type", b"application/json")], b'"held"'))
        del self.held[:count]

    def handle(self, request: Request, reply: Reply) -> None:
        self.requests.append(request)
        self.running += 1
        self.peak = max(self.peak, self.running)
        reply.on_disconnect = self._note_gone
        try:
            command = dict(json.loads(request.body))
            act = getattr(self, f"_{self.always or command.get('do', 'echo')}")
        except (ValueError, TypeError, AttributeError):
            self._finish(reply, lambda reply: reply.send_error(BadRequest("The command cannot be read.")))
            return
        act(command, request, reply)

    def _note_gone(self) -> None:
        self.gone += 1
        self.running -= 1
        self.held = [reply for reply in self.held if not reply.closed]

    def _finish(self, reply: Reply, act: Callable[[Reply], None]) -> None:
        if not reply.closed:
            self.running -= 1
            reply.on_disconnect = None
            act(reply)

    def _echo(self, command: dict, request: Request, reply: Reply) -> None:
        headers = [(b"content-type", b"application/json"), (b"x-replica", self.name.encode()), *_usage(command)]
        self._finish(reply, lambda reply: reply.send(200, headers, request.body))

    def _status(self, command: dict, request: Request, reply: Reply) -> None:
        self._finish(reply, lambda reply: reply.send(command["status"], [], b"{}"))

    def _hold(self, command: dict, request: Request, reply: Reply) -> None:
        self.held.append(reply)

    def _die(self, command: dict, request: Request, reply: Reply) -> None:
        self._finish(reply, Reply.abort)

    def _half_head(self, command: dict, request: Request, reply: Reply) -> None:
        reply._connection.transport.write(b"HTTP/1.1 200 OK\r\ncontent-")
        self._finish(reply, lambda reply: reply._connection.transport.close())

    def _garbage(self, command: dict, request: Request, reply: Reply) -> None:
        reply._connection.transport.write(b"this is not HTTP\r\n\r\n")
        self._finish(reply, lambda reply: reply._connection.transport.close())

    def _drain(self, command: dict, request: Request, reply: Reply) -> None:
        self._finish(reply, lambda reply: reply.send(503, [(b"x-steelyard-draining", b"1")], b"{}"))

    def _cut_body(self, command: dict, request: Request, reply: Reply) -> None:
        reply.start(200, [(b"content-type", b"application/json")], content_length=100)
        reply.write(b"[1, 2")
        self._finish(reply, Reply.abort)

    def _big(self, command: dict, request: Request, reply: Reply) -> None:
        reply.start(200, [], content_length=command["bytes"])
        for start in range(0, command["bytes"], 65536):
            reply.write(b"x" * min(65536, command["bytes"] - start))
        self._finish(reply, Reply.finish)

    def _stream(self, command: dict, request: Request, reply: Reply) -> None:
        reply.start(200, [*EVENT_STREAM, *_usage(command)])
        for index in range(command.get("events", 3)):
            if command.get("cut_after") == index:
                self._finish(reply, Reply.abort)
                return
            if command.get("stall_after") == index:
                self.held.append(reply)
                return
            reply.write(command.get("twice", 1) * encode_event(b'{"n":%d}' % index))
        if command.get("cut_inside"):
            reply.write(b'data: {"n":')
            self._finish(reply, Reply.abort)
            return
        if not command.get("no_done"):
            reply.write(DONE)
        last = command.get("last_usage")
        trailers = b"" if last is None else b"%b: %b\r\n" % (USAGE_HEADER, last.encode())
        self._finish(reply, lambda reply: reply.finish(trailers))


def _usage(command: dict) -> Headers:
    usage = command.get("usage")
    return [] if usage is None else [(USAGE_HEADER, usage.encode())]
