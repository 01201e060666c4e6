"""Events on their way to the store: recorded at once, written by a task, so that nobody waits for a database.

The API and the reconcile loop record; the API reads them back from the store. When the store is down the newest are
kept until it is back.
"""

from __future__ import annotations

import asyncio
from collections import deque

from steelyard.control.records import Event
from steelyard.control.store import Store
from steelyard.errors import SteelyardError
from steelyard.observe.logs import get_logger

KEPT_WHILE_DOWN = 10_000
RETRY_AFTER_S = 1.0
BATCH = 500


class Events:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._waiting: deque[Event] = deque(maxlen=KEPT_WHILE_DOWN)
        self._some = asyncio.Event()
        self._writing = asyncio.Lock()
        self._log = get_logger()

    def record(self, event: Event) -> None:
        self._waiting.append(event)
        self._some.set()

    async def run(self) -> None:
        """Writes until cancelled."""
        while True:
            await self._some.wait()
            try:
                await self.flush()
            except SteelyardError as error:
                self._log.warning("events_not_written", waiting=len(self._waiting), reason=error.message)
                await asyncio.sleep(RETRY_AFTER_S)

    async def flush(self) -> None:
        """Returns when all that was recorded before is in the store. Raises Unavailable."""
        async with self._writing:
            self._some.clear()
            while self._waiting:
                batch = [self._waiting.popleft() for _ in range(min(BATCH, len(self._waiting)))]
                try:
                    await self._store.add_events(batch)
                except Exception:  # not when cancelled: the store finishes what it has begun
                    room = KEPT_WHILE_DOWN - len(self._waiting)
                    newest = batch[max(0, len(batch) - room) :]  # the others give way to what came since
                    self._waiting.extendleft(reversed(newest))
                    self._some.set()
                    raise
