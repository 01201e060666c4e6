"""The HTTP server of router, admin socket and replica: listens, counts connections, sweeps them, drains.

A handler is a plain function that is called on the loop once a request is complete; it answers through its `Reply`,
now or later. The server never starts a task per request.
"""

from __future__ import annotations

import asyncio
import os
import socket
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, cast

from steelyard.observe.logs import get_logger
from steelyard.settings import HttpLimits
from steelyard.wire.assembly import Arriving
from steelyard.wire.connection import SLICE_BYTES, Connection
from steelyard.wire.memo import HeadMemo
from steelyard.wire.reply import Reply
from steelyard.wire.request import Headers, Request

__all__ = ["Handler", "HeadCheck", "Headers", "HttpServer", "Reply", "Request"]

Handler = Callable[[Request, Reply], None]
HeadCheck = Callable[[str, Headers], None]

_BACKLOG: Final = 1024
_SWEEP_S: Final = 1.0

log = get_logger()


class HttpServer:
    """Serves `handler` on any number of addresses until `stop`. Belongs to the running loop.

    `on_head` is asked, with path and headers, before a body is taken that did not arrive with its head; when it
    raises a SteelyardError the client gets that and no body is read. `handler` must not rely on it having been asked.
    `idle_timeouts=False` is for trusted peers (router → replica): it keeps their idle connections for ever. `hop` is
    for a replica: it reads the heads of routers by the form that `hop.py` gives them.
    """

    def __init__(
        self,
        handler: Handler,
        limits: HttpLimits,
        *,
        on_head: HeadCheck | None = None,
        idle_timeouts: bool = True,
        hop: bool = False,
    ) -> None:
        self.handler = handler
        self.on_head = on_head
        self.limits = limits
        self.hop = hop
        self.idle_timeouts = idle_timeouts
        self.stopping = False
        self.connections: set[Connection] = set()
        self.turned_away = 0  # connections closed at once since the last sweep, for there were too many
        self.arriving = Arriving()
        self.memo = HeadMemo()
        self.slice_bytes = min(SLICE_BYTES, limits.max_head_bytes)
        self._loop = asyncio.get_running_loop()
        self.now_s = self._loop.time()  # coarse: moves with the sweep
        self._listeners: list[asyncio.Server] = []
        self._socket_files: list[tuple[str, int]] = []
        self._port: int | None = None
        self._emptied: asyncio.Event | None = None  # while stopping
        self._timer = self._loop.call_later(_SWEEP_S, self._sweep)

    @property
    def port(self) -> int | None:
        """The port of the first TCP address."""
        return self._port

    async def listen(self, address: str, *, reuse_port: bool = False) -> None:
        """Accept on `unix:/path` (mode 0600, a stale socket file is replaced) or `tcp:host:port` (0: any port).

        Raises OSError when the address cannot be bound, ValueError when it cannot be read.
        """
        scheme, _, rest = address.partition(":")
        if scheme == "unix":
            sock = _bind_unix(rest)
            self._socket_files.append((rest, os.stat(rest).st_ino))
            listener = await self._loop.create_unix_server(self._protocol, sock=sock, backlog=_BACKLOG)
        elif scheme == "tcp":
            host, _, port = rest.rpartition(":")
            listener = await self._loop.create_server(
                self._protocol, host.strip("[]"), int(port), reuse_port=reuse_port or None, backlog=_BACKLOG
            )
            if self._port is None:
                self._port = cast(Any, listener).sockets[0].getsockname()[1]
        else:
            raise ValueError(f"Address {address!r} must start with 'unix:' or 'tcp:'.")
        self._listeners.append(listener)

    def _protocol(self) -> asyncio.Protocol:
        return cast(asyncio.Protocol, Connection(self))

    async def stop(self, drain_timeout_s: float) -> None:
        """Stop accepting, let running requests finish for `drain_timeout_s`, then cut off the rest."""
        self.stop_accepting()
        if self.connections:
            self._emptied = asyncio.Event()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._emptied.wait(), drain_timeout_s)
        for connection in list(self.connections):
            connection.transport.abort()
        await asyncio.sleep(0)
        self._timer.cancel()

    def stop_accepting(self) -> None:
        """First half of `stop`: no new connection, no further request on the old ones."""
        if self.stopping:
            return
        self.stopping = True
        for listener in self._listeners:
            listener.close()
        for path, inode in self._socket_files:
            if Path(path).exists() and os.stat(path).st_ino == inode:
                os.unlink(path)
        for connection in list(self.connections):
            connection.close_if_idle()

    def forget(self, connection: Connection) -> None:
        """For `Connection`: its socket is closed."""
        self.connections.discard(connection)
        if not self.connections and self._emptied is not None:
            self._emptied.set()

    def _sweep(self) -> None:
        self.now_s = now_s = self._loop.time()
        if self.turned_away:
            log.warning("connections_turned_away", count=self.turned_away, limit=self.limits.max_connections)
            self.turned_away = 0
        for connection in list(self.connections):
            connection.sweep(now_s)
            if self.stopping:
                connection.close_if_idle()
        self._timer = self._loop.call_later(_SWEEP_S, self._sweep)


def _bind_unix(path: str) -> socket.socket:
    """A bound Unix socket that only this user can connect to. Replaces a socket file left by a dead process."""
    try:
        if stat.S_ISSOCK(os.stat(path).st_mode):
            os.unlink(path)
    except FileNotFoundError:
        pass
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.bind(path)
        os.chmod(path, 0o600)  # the folder is private already; this holds where it is not
    except OSError:
        sock.close()
        raise
    return sock
