"""A cell repeats by seed, ends every request once, leaves the ledger empty, and is scored fairly."""

import math
from collections import Counter

import pytest

from steelyard.simulate import routing
from steelyard.simulate.batch_speed import BatchSpeed
from steelyard.simulate.requests import Answer, Outcome, SimRequest, Trace
from steelyard.simulate.routing import MODEL_UNITS, POLICIES, Run
from steelyard.simulate.scaling import Scaled, Size, scaled
from steelyard.simulate.scorecard import Score, scored, standings
from steelyard.simulate.traces.synthetic import SYNTHETIC

MODEL = BatchSpeed()


def cell(name: str, replicas: int = 4, utilisation: float = 0.7, requests: int = 30) -> Scaled:
    size = Size(replicas, float(replicas), utilisation, 1.0, requests)
    return scaled(SYNTHETIC[name](1), size, MODEL.cost(), MODEL.kv_tokens, seed=1)


def facts(run: Run) -> list[tuple[int, str, float, float, int, int]]:
    return [(a.number, a.outcome, a.first_token_s, a.end_s, a.cached_tokens, a.replica) for a in run.answers]


@pytest.mark.parametrize("policy", POLICIES)
def test_the_same_seed_gives_the_same_answers(policy: str) -> None:
    load = cell("shared-prompt")
    assert facts(routing.run(load, policy, MODEL, 4, 1)) == facts(routing.run(load, policy, MODEL, 4, 1))


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("name", ["agents", "death", "half-speed"])
def test_every_request_ends_exactly_once_and_the_ledger_is_empty(policy: str, name: str) -> None:
    small = BatchSpeed(max_running=8, max_waiting=4, kv_tokens=60_000)  # so small that requests wait in the router
    load = cell(name, utilisation=0.9)
    router = routing._Router(load, policy, small, 4, 1)
    run = router.run()
    assert Counter(answer.number for answer in run.answers) == Counter(range(len(load.requests)))
    for answer in run.answers:
        if answer.outcome is Outcome.FINISHED:
            assert answer.arrived_s < answer.first_token_s <= answer.end_s
            assert 0 <= answer.cached_tokens < answer.request.input_tokens
    ledger = router._ledger
    assert ledger.in_flight == ledger.outstanding_mmu == 0
    assert ledger.charged_total_mmu == ledger.settled_total_mmu > 0
    assert not router._waiting
    assert all(replica.in_flight == replica.pinned_tokens == 0 for replica in router._replicas)
    assert {answer.outcome for answer in run.answers} >= {Outcome.FINISHED}


def test_a_dead_replica_breaks_only_what_had_begun_to_answer() -> None:
    load = cell("death", requests=60)
    run = routing.run(load, MODEL_UNITS, MODEL, 4, 1)
    broken = [answer for answer in run.answers if answer.outcome is Outcome.BROKEN]
    retried = [answer for answer in run.answers if answer.attempts > 1]
    assert broken
    assert {answer.end_s for answer in broken} == {load.duration_s / 2}
    assert all(answer.replica == 3 and not math.isnan(answer.first_token_s) for answer in broken)
    assert all(answer.outcome is Outcome.FINISHED and answer.replica != 3 for answer in retried)
    assert [work is None for work in run.work_mmu] == [False, False, False, True]


def test_what_no_replica_can_hold_is_refused() -> None:
    trace = Trace("long", [SimRequest(0.0, 10**7, 1), SimRequest(0.5, 10, 1)], 256, 1.0)
    run = routing.run(Scaled(trace, trace.requests, 1, 1.0, 1.0, 0.0, 1.0), "round-robin", MODEL, 1, 1)
    assert [answer.outcome for answer in run.answers] == [Outcome.REFUSED, Outcome.FINISHED]


def test_affinity_finds_prefixes_and_weighing_beats_turns_where_a_replica_is_slow() -> None:
    chats = cell("shared-prompt", requests=80)
    hits = {
        policy: scored([(chats, routing.run(chats, policy, MODEL, 4, 1))], MODEL, 4).hit_of_ideal for policy in POLICIES
    }
    assert hits[MODEL_UNITS] > hits["round-robin"]
    assert hits["prefix-gate"] > hits["round-robin"]
    size = Size(8, 7.5, 0.7, 1.0, 100)
    slow = scaled(SYNTHETIC["half-speed"](1), size, MODEL.cost(), MODEL.kv_tokens, seed=1)
    ttft = {
        policy: scored([(slow, routing.run(slow, policy, MODEL, 8, 1))], MODEL, 8).ttft_p99_s
        for policy in (MODEL_UNITS, "round-robin")
    }
    assert ttft[MODEL_UNITS] < ttft["round-robin"]


def test_recomputed_prefixes_do_not_let_overload_feed_itself() -> None:
    """Agents' long contexts: whoever spills whenever that saves its own wait, makes all wait (goodput was 0.08)."""
    size = Size(8, 8.0, 0.7, 0.1, 100)
    own, others, speeds = [], [], []
    for seed in (1, 2, 3):
        load = scaled(SYNTHETIC["agents"](1), size, MODEL.cost(), MODEL.kv_tokens, seed)
        router = routing._Router(load, MODEL_UNITS, MODEL, 8, seed)
        own.append((load, router.run()))
        others.append((load, routing.run(load, "prefix-gate", MODEL, 8, seed)))
        speeds += [candidate.speed for candidate in router._candidates]
    ours, gate = scored(own, MODEL, 8), scored(others, MODEL, 8)
    assert ours.goodput >= 0.98 * gate.goodput
    assert ours.ttft_p99_s <= 1.02 * gate.ttft_p99_s
    assert ours.hit_of_ideal >= 0.95
    assert min(speeds) >= 0.8, "equal replicas, whatever queues do to their times"
    assert max(speeds) <= 1.2


def test_requests_that_hardly_differ_are_spaced_as_evenly_as_turns_space_them() -> None:
    load = scaled(SYNTHETIC["uniform-short"](1), Size(8, 8.0, 0.7, 0.1, 100), MODEL.cost(), MODEL.kv_tokens, seed=1)
    ttft = {
        policy: scored([(load, routing.run(load, policy, MODEL, 8, 1))], MODEL, 8).ttft_p99_s
        for policy in (MODEL_UNITS, "round-robin", "two-choices")
    }
    assert ttft[MODEL_UNITS] <= 1.05 * ttft["round-robin"]
    assert ttft[MODEL_UNITS] < 0.8 * ttft["two-choices"]


def answered(number: int, arrived_s: float, ttft_s: float, itl_s: float, outcome: Outcome, cached: int) -> Answer:
    request = SimRequest(arrived_s, 100, 11)
    first_s = arrived_s + ttft_s
    return Answer(number, request, arrived_s, outcome, first_s, first_s + 10 * itl_s, cached, 0, 1)


def test_a_score_counts_what_came_after_the_warm_up_and_what_was_lost() -> None:
    requests = [SimRequest(float(at), 100, 11, blocks=(1, 2)) for at in range(10)]
    answers = [
        answered(0, 0.0, 50.0, 9.0, Outcome.FINISHED, 0),  # in the warm-up: not scored
        *[answered(n, float(n), 0.1 * n, 0.01, Outcome.FINISHED, 16) for n in range(2, 8)],
        answered(8, 8.0, 0.1, 0.5, Outcome.FINISHED, 32),  # too slow between tokens
        answered(9, 9.0, 0.1, 0.01, Outcome.BROKEN, 0),
    ]
    load = Scaled(Trace("t", requests, 16, 10.0), requests, 1, 1.0, 10.0, 2.0, 1.0)
    run = Run(MODEL_UNITS, answers, [30, 10, None], [1.0, 0.5, 1.0], [1_000, 3_000], 2, 0, 10.0)
    score = scored([(load, run)], MODEL, 3)
    assert (score.requests, score.lost) == (8, 1)
    assert score.hit_of_ideal == pytest.approx((6 * 16 + 32) / (8 * 32))
    assert score.ttft_p99_s == pytest.approx(0.7)
    assert score.goodput == pytest.approx(6 / 8)
    assert score.max_over_mean == pytest.approx(30 / 25)  # at half speed, 10 is the work of 20
    assert score.decision_us == pytest.approx(2.0)


def score_of(policy: str, ttft_s: float, goodput: float, trace: str = "t") -> Score:
    return Score(trace, 8, policy, 100, 0, float("nan"), 0.1, ttft_s, 0.01, 1.0, goodput, 1.0, 1.0, 0)


def test_standings_compare_with_the_best_of_each_figure() -> None:
    scores = [
        score_of(MODEL_UNITS, 0.2, 0.9),
        score_of("a", 0.1, 0.8),
        score_of("b", 0.4, 0.99),
        score_of(MODEL_UNITS, 0.1, 1.0, "u"),
        score_of("a", 0.3, 1.0, "u"),
        score_of("a", 0.3, 1.0, "without ours"),
    ]
    lost, won = standings(scores)
    assert (lost.ttft, lost.ttft_best, lost.goodput_best) == (pytest.approx(2.0), "a", "b")
    assert lost.goodput == pytest.approx(1.1)
    assert won.worse == 1.0
    assert scores[0].as_json()["hit_of_ideal"] is None
