"""The scheduler and its block pool under arbitrary histories: nothing leaks, nobody starves, order is kept."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steelyard.engine.cache import BlockPool
from steelyard.engine.scheduler import ScheduledRow, Scheduler, StepPlan
from support.engines import request

BLOCK_SIZE, BLOCKS, MAX_LEN = 4, 10, 24


def make_scheduler(blocks: int = BLOCKS, token_budget: int = 8, max_sequences: int = 4) -> Scheduler:
    pool = BlockPool(blocks + 1, BLOCK_SIZE)
    longest = min(MAX_LEN, blocks * BLOCK_SIZE)
    return Scheduler(pool, max_model_len=longest, max_sequences=max_sequences, token_budget=token_budget)


def run(scheduler: Scheduler, plan: StepPlan, token: int = 9) -> list[tuple[int, str]]:
    """What the engine does after the forward pass; returns who ended."""
    ended = []
    for row in plan.rows:
        reason = scheduler.commit(row, token if row.samples else None)
        if reason is not None:
            ended.append((row.sequence.id, reason))
    return ended


def finish(scheduler: Scheduler, limit: int = 500) -> list[int]:
    order = []
    for _ in range(limit):
        if not scheduler.has_work():
            return order
        order += [identity for identity, _ in run(scheduler, scheduler.plan(0.0))]
        scheduler.check_integrity()
    raise AssertionError("sequences starve")


def ids(plan: StepPlan) -> list[int]:
    return [row.sequence.id for row in plan.rows]


def check_plan(scheduler: Scheduler, plan: StepPlan) -> None:
    assert sum(row.count for row in plan.rows) <= scheduler.token_budget
    assert len(plan.rows) <= scheduler.max_sequences + 1
    assert max(Counter(ids(plan)).values(), default=1) == 1
    for row in plan.rows:
        assert row.count >= 1
        assert row.start == row.sequence.num_computed
        assert row.end <= row.sequence.num_tokens
        assert len(row.sequence.block_table) * BLOCK_SIZE >= row.end
        assert row.samples == (row.end == row.sequence.num_tokens)


ADD = st.tuples(
    st.just("add"),
    st.integers(0, MAX_LEN + 2),
    st.integers(0, MAX_LEN + 2),
    st.sampled_from(["probe", "interactive", "batch"]),
    st.one_of(st.none(), st.integers(1, 60)),
)
EVENTS = st.lists(
    st.one_of(ADD, st.tuples(st.just("cancel"), st.integers(0, 30)), st.tuples(st.just("step"))), max_size=60
)


@settings(max_examples=300, deadline=None)
@given(EVENTS, st.integers(1, 12), st.integers(1, 5))
def test_any_history_keeps_the_invariants_and_comes_to_an_end(events, token_budget, max_sequences):
    scheduler = make_scheduler(token_budget=token_budget, max_sequences=max_sequences)
    live, outputs, wanted, now_s = set(), Counter(), {}, 0.0
    for identity, event in enumerate(events):
        if event[0] == "add":
            _, prompt, output, priority, deadline = event
            ask = request(identity, [3] * prompt, output, priority=priority, deadline_s=deadline)
            refused = scheduler.add(ask, seed=0)
            assert (refused is None) == (prompt >= 1 and output >= 1 and prompt + output <= MAX_LEN)
            if refused is None:
                live.add(identity)
                wanted[identity] = output
        elif event[0] == "cancel":
            assert scheduler.cancel(event[1]) == (event[1] in live)
            live.discard(event[1])
        else:
            now_s += 1
            plan = scheduler.plan(now_s)
            check_plan(scheduler, plan)
            live -= {rejected.id for rejected in plan.rejected}
            outputs.update(row.sequence.id for row in plan.rows if row.samples)
            for ended, reason in run(scheduler, plan):
                assert reason == "length"
                assert outputs[ended] == wanted[ended]
                live.remove(ended)
        scheduler.check_integrity()
        assert scheduler.num_running + scheduler.num_waiting == len(live)
    assert set(finish(scheduler, limit=5000)) == live
    assert scheduler.pool.num_used == 0


def test_what_can_never_fit_is_refused_at_once():
    scheduler = make_scheduler()
    assert scheduler.add(request(1, [3] * 20, 5), 0).code == "context_length_exceeded"
    assert scheduler.add(request(2, [], 5), 0).code == "BAD_REQUEST"
    assert scheduler.add(request(3, [3] * 20, 4), 0) is None
    with pytest.raises(ValueError, match="full length"):
        Scheduler(BlockPool(3, 4), max_model_len=9, max_sequences=1, token_budget=8)


def test_decoding_sequences_come_first_and_prompts_get_what_is_left():
    scheduler = make_scheduler(token_budget=8)
    scheduler.add(request(1, [3] * 4, 10), 0)
    run(scheduler, scheduler.plan(0.0))
    scheduler.add(request(2, [3] * 20, 4), 0)
    plans = []
    for _ in range(3):
        plan = scheduler.plan(0.0)
        plans.append([(row.sequence.id, row.count, row.samples) for row in plan.rows])
        run(scheduler, plan)
    assert plans == [
        [(1, 1, True), (2, 7, False)],
        [(1, 1, True), (2, 7, False)],
        [(1, 1, True), (2, 6, True)],
    ]


def test_priorities_are_classes_and_each_is_first_come_first_served():
    scheduler = make_scheduler(max_sequences=1, token_budget=64)
    scheduler.add(request(9, [3] * 4, 3), 0)
    run(scheduler, scheduler.plan(0.0))
    for identity, priority in enumerate(["batch", "interactive", "batch", "interactive", "probe"]):
        scheduler.add(request(identity, [3] * 4, 2, priority=priority), 0)
    plan = scheduler.plan(0.0)
    assert ids(plan) == [9, 4]  # a probe may be one sequence more than the limit
    run(scheduler, plan)
    assert finish(scheduler) == [4, 9, 1, 3, 0, 2]


def test_the_newest_of_the_lowest_priority_gives_way_and_comes_back_first():
    scheduler = make_scheduler(blocks=6, token_budget=64)
    scheduler.add(request(1, [3] * 4, 16), 0)
    scheduler.add(request(2, [3] * 4, 16, priority="batch"), 0)
    scheduler.add(request(3, [3] * 4, 16), 0)
    seen = []
    order = []
    while scheduler.has_work():
        plan = scheduler.plan(0.0)
        if ids(plan) not in seen:
            seen.append(ids(plan))
        order += [identity for identity, _ in run(scheduler, plan)]
        scheduler.check_integrity()
    assert scheduler.num_preemptions > 0
    assert seen[1] == [1, 3]  # the batch sequence waits, though it came before 3
    assert order[0] == 1
    assert sorted(order) == [1, 2, 3]


def test_admission_keeps_a_block_back_for_each_running_sequence():
    scheduler = make_scheduler(blocks=6, token_budget=64)
    scheduler.add(request(1, [3] * 8, 8), 0)
    scheduler.add(request(2, [3] * 16, 2), 0)
    assert ids(scheduler.plan(0.0)) == [1]
    assert scheduler.num_waiting == 1


def test_a_long_prompt_at_the_head_is_not_overtaken():
    scheduler = make_scheduler(blocks=6, token_budget=64)
    scheduler.add(request(1, [3] * 12, 4), 0)
    run(scheduler, scheduler.plan(0.0))
    scheduler.add(request(2, [3] * 16, 2), 0)
    scheduler.add(request(3, [3], 2), 0)
    assert ids(scheduler.plan(0.0)) == [1]


def test_cancelling_frees_blocks_at_once_wherever_the_sequence_is():
    scheduler = make_scheduler(token_budget=4, max_sequences=1)
    scheduler.add(request(1, [3] * 12, 4), 0)
    scheduler.add(request(2, [3] * 12, 4), 0)
    run(scheduler, scheduler.plan(0.0))
    assert scheduler.pool.num_used == 3
    assert scheduler.cancel(1)
    assert scheduler.pool.num_used == 0
    assert scheduler.cancel(2)
    assert not scheduler.cancel(2)
    assert not scheduler.has_work()


def test_a_passed_deadline_ends_waiting_and_running_sequences():
    scheduler = make_scheduler(max_sequences=1)
    scheduler.add(request(1, [3] * 4, 10, deadline_s=5.0), 0)
    scheduler.add(request(2, [3] * 4, 10, deadline_s=4.0), 0)
    run(scheduler, scheduler.plan(3.0))
    assert [rejected.id for rejected in scheduler.plan(4.0).rejected] == [2]
    assert [(rejected.id, rejected.code) for rejected in scheduler.plan(5.0).rejected] == [(1, "DEADLINE_EXCEEDED")]
    assert scheduler.pool.num_used == 0


def test_stop_tokens_end_a_sequence_unless_it_ignores_them():
    from steelyard.engine.messages import SamplingParams

    scheduler = make_scheduler()
    scheduler.add(request(1, [3], 5), 0)
    assert run(scheduler, scheduler.plan(0.0), token=2) == [(1, "stop")]
    scheduler.add(request(2, [3], 2, sampling=SamplingParams(ignore_eos=True)), 0)
    assert run(scheduler, scheduler.plan(0.0), token=2) == []
    assert run(scheduler, scheduler.plan(0.0), token=2) == [(2, "length")]


def test_the_pool_knows_its_books():
    pool = BlockPool(5, BLOCK_SIZE)
    taken = pool.allocate(3)
    assert taken == [1, 2, 3]
    pool.check_integrity(taken)
    with pytest.raises(RuntimeError):
        pool.allocate(2)
    with pytest.raises(RuntimeError):
        pool.check_integrity(taken[:2])
    pool.free(taken)
    assert pool.num_free == 4
    with pytest.raises(RuntimeError):
        pool.check_integrity([1])


def test_rows_remember_whether_they_sample():
    scheduler = make_scheduler()
    scheduler.add(request(1, [3] * 3, 5), 0)
    (row,) = scheduler.plan(0.0).rows
    assert isinstance(row, ScheduledRow)
    scheduler.commit(row, 9)
    assert row.samples
