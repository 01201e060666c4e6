"""A simulated replica does what a step-by-step engine does, to the microsecond, and loses nothing."""

from random import Random

import pytest

from steelyard.simulate.batch_speed import BatchSpeed
from steelyard.simulate.clock import VirtualClock
from steelyard.simulate.events import EventQueue
from steelyard.simulate.replicas import Replica
from steelyard.simulate.requests import chain
from steelyard.simulate.sequences import Sequence
from support.stepwise import Job, Stepwise

BLOCK = 16
SMALL = BatchSpeed(token_budget=64, max_running=16, max_waiting=10_000, kv_tokens=1_100)
ROOMY = BatchSpeed(token_budget=256, max_running=100, max_waiting=10_000, kv_tokens=100_000)


class Recorder:
    def __init__(self, events: EventQueue) -> None:
        self.events = events
        self.first_s: dict[int, list[float]] = {}
        self.end_s: dict[int, list[float]] = {}
        self.lost_tags: list[int] = []

    def first_token(self, sequence: Sequence[int]) -> None:
        self.first_s.setdefault(sequence.tag, []).append(self.events.clock.now_s)

    def finished(self, sequence: Sequence[int]) -> None:
        self.end_s.setdefault(sequence.tag, []).append(self.events.clock.now_s)

    def lost(self, sequence: Sequence[int]) -> None:
        self.lost_tags.append(sequence.tag)


def workload(seed: int, count: int, rate: float, longest_prompt: int, longest_answer: int = 90) -> list[Job]:
    """Bursts and gaps, shared heads, conversations that grow, prompts that fill whole blocks, one-token answers."""
    rng = Random(seed)
    now_s, jobs = 0.0, []
    talks: list[tuple[int, ...]] = []
    for number in range(count):
        now_s += rng.expovariate(rate) * rng.choice((0.001, 0.2, 2.0))
        head = talks[rng.randrange(len(talks))] if talks and rng.random() < 0.5 else chain((), rng.randrange(3), 3)
        head = head[: longest_prompt // BLOCK - 2]
        blocks = chain(head, number, rng.randrange(0, 2))
        prompt = max(1, len(blocks) * BLOCK + rng.choice((0, rng.randrange(BLOCK))))
        output = rng.choice((1, 2, rng.randrange(3, longest_answer)))
        ends = chain(blocks, 10_000 + number, (prompt + output) // BLOCK - len(blocks))[len(blocks) :]
        talks.append(blocks + ends)
        jobs.append(Job(now_s, prompt, output, blocks, ends))
    return jobs


def simulate(jobs: list[Job], model: BatchSpeed, speed: float) -> tuple[Replica[int], Recorder, list[Sequence[int]]]:
    events = EventQueue(VirtualClock())
    recorder = Recorder(events)
    replica = Replica(0, model, events, recorder, block_tokens=BLOCK, speed=speed)
    sequences = [Sequence(n, job.prompt, job.output, job.blocks, job.end_blocks) for n, job in enumerate(jobs)]
    for job, sequence in zip(jobs, sequences, strict=True):
        events.at(job.arrival_s, replica.submit, sequence)
    events.run()
    return replica, recorder, sequences


@pytest.mark.parametrize("seed", range(15))
@pytest.mark.parametrize(
    ("model", "rate", "longest", "speed", "answer"),
    [
        (SMALL, 4.0, 400, 1.0, 90),
        (SMALL, 12.0, 64, 0.5, 300),
        (ROOMY, 20.0, 1500, 1.0, 90),
        (ROOMY, 1.0, 300, 0.5, 90),
    ],
    ids=["small", "overloaded", "roomy", "sparse"],
)
def test_every_token_time_is_that_of_the_step_by_step_engine(
    seed: int, model: BatchSpeed, rate: float, longest: int, speed: float, answer: int
) -> None:
    jobs = workload(seed, 120, rate, longest, answer)
    replica, recorder, sequences = simulate(jobs, model, speed)
    oracle = Stepwise(model, BLOCK, speed)
    oracle.run(jobs)
    for number, job in enumerate(jobs):
        assert recorder.first_s[number] == [pytest.approx(job.first_s, abs=1e-6)]
        assert recorder.end_s[number] == [pytest.approx(job.end_s, abs=1e-6)]
        assert sequences[number].cached_tokens == job.cached
    assert replica.preemptions == oracle.preemptions
    assert replica.in_flight == replica.pinned_tokens == 0


def test_the_oracle_is_made_to_preempt_and_to_share() -> None:
    jobs = workload(3, 120, 12.0, 64, 300)
    oracle = Stepwise(SMALL, BLOCK, 0.5)
    oracle.run(jobs)
    assert oracle.preemptions > 0
    assert sum(job.cached for job in jobs) > 1000


def test_decoding_takes_few_events_however_long_it_is() -> None:
    events = EventQueue(VirtualClock())
    replica = Replica(0, ROOMY, events, Recorder(events), block_tokens=BLOCK)
    events.at(0.0, replica.submit, Sequence(0, 100, 5_000))
    events.run()
    assert replica.steps == 5_000
    assert events.handled < 6


def test_a_full_queue_refuses_and_death_loses_all_that_is_held() -> None:
    events = EventQueue(VirtualClock())
    recorder = Recorder(events)
    model = BatchSpeed(token_budget=64, max_running=2, max_waiting=3, kv_tokens=2_000)
    replica = Replica(0, model, events, recorder, block_tokens=BLOCK)
    sequences = [Sequence(n, 32, 200, chain((), n, 2)) for n in range(6)]
    assert [replica.submit(sequence) for sequence in sequences] == [True] * 4 + [False] * 2  # one runs, three wait
    events.run(until_s=1.0)
    assert recorder.first_s.keys() == {0, 1}
    replica.die()
    assert sorted(recorder.lost_tags) == [0, 1, 2, 3]
    assert sequences[0].emitted > 1
    assert sequences[3].emitted == 0
    assert not replica.submit(Sequence(9, 1, 1))
    assert replica.in_flight == replica.pinned_tokens == 0
    events.run()
    assert not recorder.end_s


def test_what_can_never_fit_is_refused_by_name() -> None:
    events = EventQueue(VirtualClock())
    replica = Replica(0, SMALL, events, Recorder(events), block_tokens=BLOCK)
    with pytest.raises(ValueError, match="cannot be held"):
        replica.submit(Sequence(0, 1_990, 10))
