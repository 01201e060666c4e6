import asyncio
import threading
import time

import pytest

from steelyard.errors import DeadlineExceeded, TooManyRequests
from steelyard.replica.lanes import Job, Lane

pytestmark = pytest.mark.anyio


class Outcomes:
    def __init__(self):
        self.items = []

    def job(self, work) -> Job:
        return Job(work, lambda result, error: self.items.append(error or result))

    async def count(self, number: int) -> list:
        async with asyncio.timeout(5):
            while len(self.items) < number:
                await asyncio.sleep(0.005)
        return self.items


@pytest.fixture
def gate():
    event = threading.Event()
    yield event
    event.set()


async def test_never_more_than_its_width_runs_and_all_are_answered_once():
    lane, outcomes = Lane("l", 3, 100), Outcomes()
    running, most, lock = 0, 0, threading.Lock()

    def work():
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        time.sleep(0.002)
        with lock:
            running -= 1
        return 1

    for _ in range(60):
        lane.submit(outcomes.job(work), None)
    assert await outcomes.count(60) == [1] * 60
    assert most == 3
    assert (lane.running, lane.waiting) == (0, 0)
    lane.stop()


async def test_whatever_is_raised_is_the_jobs_outcome_and_the_thread_lives():
    lane, outcomes = Lane("l", 1, 10), Outcomes()
    for error in (ValueError("x"), SystemExit(3), KeyboardInterrupt()):

        def work(error=error):
            raise error

        lane.submit(outcomes.job(work), None)
    lane.submit(outcomes.job(lambda: "alive"), None)
    items = await outcomes.count(4)
    assert [type(item) for item in items[:3]] == [ValueError, SystemExit, KeyboardInterrupt]
    assert items[3] == "alive"
    assert await lane.call(lambda: 5) == 5
    with pytest.raises(ZeroDivisionError):
        await lane.call(lambda: 1 / 0)
    lane.stop()


async def test_a_job_past_its_deadline_in_the_queue_never_runs_and_frees_its_place(gate):
    lane, outcomes = Lane("l", 1, 1), Outcomes()
    ran = []
    lane.submit(outcomes.job(gate.wait), None)
    lane.submit(outcomes.job(lambda: ran.append(1)), time.monotonic() + 0.03)
    with pytest.raises(TooManyRequests) as caught:
        lane.submit(outcomes.job(lambda: ran.append(2)), None)
    assert caught.value.retry_after_s > 0
    items = await outcomes.count(1)
    assert isinstance(items[0], DeadlineExceeded)
    assert lane.waiting == 0
    lane.submit(outcomes.job(lambda: "next"), None)
    gate.set()
    await outcomes.count(3)
    assert ran == []
    lane.stop()


async def test_a_deadline_at_work_answers_at_once_but_keeps_the_thread(gate):
    lane, outcomes = Lane("l", 1, 5), Outcomes()
    lane.submit(outcomes.job(gate.wait), time.monotonic() + 0.03)
    items = await outcomes.count(1)
    assert isinstance(items[0], DeadlineExceeded)
    assert lane.running == 1
    gate.set()
    async with asyncio.timeout(5):
        while lane.running:
            await asyncio.sleep(0.005)
    assert len(outcomes.items) == 1
    lane.stop()


async def test_dropped_jobs_are_forgotten_whenever_they_are_dropped(gate):
    lane, outcomes = Lane("l", 1, 5), Outcomes()
    running, waiting = outcomes.job(gate.wait), outcomes.job(lambda: 1)
    lane.submit(running, None)
    lane.submit(waiting, None)
    waiting.drop()
    assert lane.waiting == 0
    running.drop()
    gate.set()
    async with asyncio.timeout(5):
        while lane.running or lane.waiting:
            await asyncio.sleep(0.005)
    assert outcomes.items == []
    lane.stop()


async def test_random_cancellations_leave_nothing_behind():
    import random

    rng = random.Random(5)
    lane, outcomes = Lane("l", 2, 1000), Outcomes()
    jobs = []
    for _ in range(300):
        job = outcomes.job(lambda: time.sleep(0.001))
        lane.submit(job, time.monotonic() + rng.uniform(0, 0.1) if rng.random() < 0.5 else None)
        jobs.append(job)
        if rng.random() < 0.4:
            rng.choice(jobs).drop()
        if rng.random() < 0.2:
            await asyncio.sleep(0.001)
    async with asyncio.timeout(10):
        while lane.running or lane.waiting:
            await asyncio.sleep(0.005)
    assert (lane.running, lane.waiting) == (0, 0)
    lane.stop()


async def test_a_wider_lane_starts_what_waits_and_a_narrower_one_starts_less(gate):
    lane, outcomes, begun = Lane("l", 1, 10), Outcomes(), []

    def work():
        begun.append(1)
        return gate.wait(10)

    async def begun_are(number: int) -> None:
        async with asyncio.timeout(5):
            while len(begun) != number:
                await asyncio.sleep(0.005)

    for _ in range(4):
        lane.submit(outcomes.job(work), None)
    await begun_are(1)
    lane.resize(3, 10)
    await begun_are(3)
    lane.resize(1, 10)
    assert (lane.running, lane.waiting) == (3, 1)
    gate.set()
    assert await outcomes.count(4) == [True] * 4
    lane.stop()
