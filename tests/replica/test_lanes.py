import asyncio
import threading
import time

import pytest

from steelyard.errors import DeadlineExceeded, TooManyRequests
from steelyard.replica.lanes import Job, Lane, Sharing

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


class Company:
    """Jobs that share turns, and who shared with whom. The job "gate" keeps its thread until the gate is open."""

    def __init__(self, width: int, most: int = 100) -> None:
        self.gate = threading.Event()
        self.outcomes = Outcomes()
        self.alone: list = []
        self.groups: list[list] = []
        self.asked: list[int] = []
        self.most = most
        self.lane = Lane("l", width, 1000)
        self.lane.sharing = Sharing(self._count, self._work)

    def submit(self, subject, deadline_s=None) -> Job:
        def work():
            self.alone.append(subject)
            if subject == "gate":
                self.gate.wait(10)
            return subject

        job = Job(work, lambda result, error: self.outcomes.items.append(error or result), subject)
        self.lane.submit(job, deadline_s)
        return job

    def _count(self, jobs) -> int:
        self.asked.append(len(jobs))
        return min(self.most, len(jobs))

    def _work(self, jobs, tell) -> None:
        self.groups.append([job.subject for job in jobs])
        if "break" in self.groups[-1]:
            raise OSError("gone")
        for place, job in reversed(list(enumerate(jobs))):
            if job.subject == "bad":
                tell(place, None, ValueError("bad"))
            else:
                tell(place, job.subject, None)

    async def rest(self) -> None:
        self.gate.set()
        async with asyncio.timeout(5):
            while self.lane.running or self.lane.waiting:
                await asyncio.sleep(0.002)
        self.lane.stop()


async def test_with_a_thread_to_spare_nobody_waits_for_company():
    company = Company(width=3)
    for number in range(3):
        company.submit(number)
        assert (company.lane.waiting, company.lane.running) == (0, number + 1)
    await company.rest()
    assert (sorted(company.alone), company.groups, company.asked) == ([0, 1, 2], [], [])


async def test_what_waits_when_a_thread_becomes_free_shares_its_turn():
    company = Company(width=1)
    for subject in ("gate", *range(5)):
        company.submit(subject)
    assert (company.lane.running, company.lane.waiting) == (1, 5)
    await company.rest()
    assert company.groups == [[0, 1, 2, 3, 4]]
    assert sorted(company.outcomes.items, key=str) == [0, 1, 2, 3, 4, "gate"]


async def test_no_more_share_a_turn_than_the_owner_says_and_the_first_go_first():
    company = Company(width=1, most=2)
    for subject in ("gate", *range(5)):
        company.submit(subject)
    await company.rest()
    assert (company.groups, company.alone) == ([[0, 1], [2, 3]], ["gate", 4])


async def test_jobs_without_a_subject_run_by_themselves_in_between():
    company = Company(width=1)
    company.submit("gate")
    company.submit(1)
    company.lane.submit(company.outcomes.job(lambda: "lonely"), None)
    company.submit(2)
    await company.rest()
    assert company.groups == [[1, 2]]
    assert sorted(company.outcomes.items, key=str) == [1, 2, "gate", "lonely"]


async def test_an_error_of_one_is_its_own_and_one_of_all_is_everybodys():
    company = Company(width=1, most=3)
    for subject in ("gate", 1, "bad", 2, 3, "break", 4):
        company.submit(subject)
    await company.rest()
    said = [item if isinstance(item, str | int) else type(item) for item in company.outcomes.items]
    assert said[1:4] == [2, ValueError, 1]
    assert said[4:] == [OSError] * 3


async def test_deadlines_and_departures_while_they_wait_leave_the_others_their_turn():
    company = Company(width=1)
    company.submit("gate")
    late = company.submit("late", time.monotonic() + 0.01)
    gone, stays = company.submit("gone"), company.submit("stays")
    gone.drop()
    await company.outcomes.count(1)
    assert isinstance(company.outcomes.items[0], DeadlineExceeded)
    company.submit("next")
    await company.rest()
    assert company.groups == [["stays", "next"]]
    assert late.dropped
    assert not stays.dropped


async def test_whatever_happens_each_is_told_once_and_every_place_comes_back():
    import random

    rng = random.Random(11)
    company = Company(width=2, most=4)
    told = company.outcomes.items
    dropped = 0
    jobs = []
    for number in range(400):
        subject = rng.choice([number, number, number, "bad", "break"])
        jobs.append(company.submit(subject, time.monotonic() + rng.uniform(0, 0.02) if rng.random() < 0.3 else None))
        if rng.random() < 0.2:
            victim = rng.choice(jobs)
            if not victim.dropped:
                victim.drop()
        if rng.random() < 0.1:
            await asyncio.sleep(0.001)
    await company.rest()
    await asyncio.sleep(0.03)
    assert (company.lane.running, company.lane.waiting) == (0, 0)
    dropped = 400 - len(told)
    assert 0 <= dropped <= 120
