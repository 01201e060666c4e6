"""Models that are written asynchronously, run to their end on a thread's own event loop.

One per slot's thread, made when it is first needed. While a coroutine runs, the slot's connection is watched: if the
replica ends it, the coroutine is cancelled then and there.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Coroutine, Iterator
from typing import Any


class Gone(Exception):
    """The replica has ended the connection: nobody wants the result any more."""


class Coroutines:
    """`connection` is at its end when it becomes readable: during a request the replica sends nothing."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._loop: asyncio.AbstractEventLoop | None = None
        self._gone = False

    def result(self, awaitable: Awaitable[Any]) -> Any:
        """Raises what it raises, or Gone."""
        try:
            return self._run(self._watched(awaitable))
        except asyncio.CancelledError:
            if self._gone:
                raise Gone from None
            raise

    def items(self, pieces: AsyncIterator[Any]) -> Iterator[Any]:
        """Each item when it comes; closing this closes `pieces`."""
        try:
            while True:
                try:
                    item = self.result(pieces.__anext__())
                except StopAsyncIteration:
                    return
                yield item
        finally:
            close = getattr(pieces, "aclose", None)
            if close is not None:
                self._run(_finish(close()))

    def close(self) -> None:
        if self._loop is not None:
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            self._loop.close()
            self._loop = None

    def _run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
        return self._loop.run_until_complete(coroutine)

    async def _watched(self, awaitable: Awaitable[Any]) -> Any:
        loop = asyncio.get_running_loop()
        task = asyncio.current_task()
        assert task is not None
        loop.add_reader(self._connection, self._end, task)
        try:
            return await awaitable
        finally:
            loop.remove_reader(self._connection)

    def _end(self, task: asyncio.Task[Any]) -> None:
        asyncio.get_running_loop().remove_reader(self._connection)
        self._gone = True
        task.cancel()


async def _finish(closing: Awaitable[None]) -> None:
    await closing
