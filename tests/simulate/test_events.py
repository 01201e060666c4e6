"""Virtual time goes forward only, and one order of events follows from one order of asking."""

import time

import pytest

from steelyard.simulate.clock import VirtualClock
from steelyard.simulate.events import EventQueue


def test_events_come_in_the_order_of_time_then_of_asking() -> None:
    events = EventQueue(VirtualClock())
    seen: list[tuple[float, str]] = []
    for time_s, name in ((2.0, "c"), (1.0, "a"), (2.0, "d"), (1.0, "b")):
        events.at(time_s, lambda name: seen.append((events.clock.now_s, name)), name)
    events.run(until_s=1.5)
    assert seen == [(1.0, "a"), (1.0, "b")]
    events.run()
    assert seen[2:] == [(2.0, "c"), (2.0, "d")]
    assert not len(events)


def test_an_event_may_arrange_another_at_the_same_instant_but_none_in_the_past() -> None:
    events = EventQueue(VirtualClock())
    seen: list[float] = []
    events.at(3.0, lambda _: events.at(3.0, lambda _: seen.append(events.clock.now_s)))
    events.run()
    assert seen == [3.0]
    with pytest.raises(ValueError, match="cannot be arranged"):
        events.at(2.0, seen.append)
    with pytest.raises(ValueError, match="cannot go back"):
        events.clock.advance(2.0)


def test_the_queue_itself_costs_microseconds() -> None:
    """The aim is 200,000 events a second; on a machine that others use, a tenth of that fails only for a real fault."""
    events = EventQueue(VirtualClock())
    left = 40_000

    def tick(step: float) -> None:
        nonlocal left
        if left:
            left -= 1
            events.at(events.clock.now_s + step, tick, step)

    for lane in range(100):
        events.at(0.0, tick, 0.5 + lane / 100)
    began = time.process_time()
    events.run()
    assert events.handled / (time.process_time() - began) > 20_000
