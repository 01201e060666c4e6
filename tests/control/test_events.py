"""Events reach the store once; while it is down the newest are kept."""

import asyncio

import pytest

from steelyard.control import events as room
from steelyard.control.events import Events
from steelyard.control.records import Event
from steelyard.errors import Unavailable

pytestmark = pytest.mark.anyio


def numbered(number: int) -> Event:
    return Event("e", number, "kind", str(number))


class Failing:
    """A store that is down, and during whose failing calls more happens."""

    def __init__(self, more: list[Event]) -> None:
        self.more = more
        self.written: list[str] = []
        self.down = True
        self.begun = asyncio.Event()

    async def add_events(self, batch: list[Event]) -> None:
        self.begun.set()
        while self.more:
            self.events.record(self.more.pop(0))
        if self.down:
            raise Unavailable("The store does not answer.")
        self.written += [event.message for event in batch]
        await asyncio.sleep(0)


@pytest.mark.parametrize(
    ("came_since", "kept"), [(0, range(10)), (4, range(4, 14)), (10, range(10, 20)), (12, range(12, 22))]
)
async def test_newest_are_kept_while_the_store_is_down(monkeypatch, came_since, kept):
    monkeypatch.setattr(room, "KEPT_WHILE_DOWN", 10)
    store = Failing([numbered(number) for number in range(10, 10 + came_since)])
    store.events = events = Events(store)
    for number in range(10):
        events.record(numbered(number))
    with pytest.raises(Unavailable):
        await events.flush()
    store.down = False
    await events.flush()
    assert store.written == [str(number) for number in kept]


async def test_write_that_is_cancelled_under_way_is_not_repeated():
    store = Failing([])
    store.down = False
    store.events = events = Events(store)
    events.record(numbered(1))
    writer = asyncio.create_task(events.run())
    await store.begun.wait()
    writer.cancel()
    await asyncio.gather(writer, return_exceptions=True)
    await events.flush()
    assert store.written == ["1"]
