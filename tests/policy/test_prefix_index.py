"""What replicas are believed to hold: never more than was sent there, bounded, expiring, corrected by reports."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.policy.prefix_index import EXPIRY_S, UNCONFIRMED, PrefixIndex


def chain(*parts):
    """Chained hashes of blocks: equal as far as the parts are equal from the head on."""
    return tuple(hash(parts[: length + 1]) & (2**64 - 1) for length in range(len(parts)))


def prompt(name, length, shared=0):
    return chain(*[f"shared {n}" for n in range(shared)], *[f"{name} {n}" for n in range(length - shared)])


def check_integrity(index):
    """The two sides agree, and the count is what there is."""
    pairs = {(block, cache.replica) for cache in index._caches.values() for block in cache.used}
    held = {
        (block, cache.replica)
        for block, holders in index._holders.items()
        for cache in index._caches.values()
        if holders & cache.mask
    }
    assert pairs == held
    assert index.entries == len(pairs)
    assert all(holders for holders in index._holders.values())


def test_the_longest_prefix_is_found_whatever_its_length():
    index = PrefixIndex()
    a = index.cache("a")
    index.promise(a, prompt("x", 100, 40), 1.0)
    assert index.depth(a, prompt("x", 100, 40)) == 100
    assert index.depth(a, prompt("x", 130, 40)[:99] + prompt("w", 130, 40)[99:]) == 96  # within an eighth
    assert index.depth(a, prompt("x", 100, 40) + prompt("next turn", 30)) == 100
    assert index.levels(prompt("x", 100, 40) + prompt("next turn", 30)) == [(100, a.mask)]
    assert index.depth(a, prompt("y", 100, 40)) == 40
    for length in range(1, 17):
        assert index.depth(a, prompt("x", 100, 40)[:length]) == length
    assert index.depth(a, prompt("z", 100)) == index.depth(a, ()) == 0
    assert index.depth(index.cache("b"), prompt("x", 100, 40)) == 0


def test_one_block_in_common_is_worth_a_block():
    index = PrefixIndex()
    a = index.cache("a")
    index.promise(a, prompt("x", 500, 1), 1.0)
    assert index.depth(a, prompt("y", 500, 1)) == 1


def test_holders_come_by_the_length_of_what_they_hold():
    index = PrefixIndex()
    for name, length in (("a", 3), ("b", 10), ("c", 10), ("d", 0)):
        index.promise(index.cache(name), prompt("x", 10)[:length], 1.0)
    masks = {name: index.cache(name).mask for name in "abcd"}
    assert index.levels(prompt("x", 10)) == [(10, masks["b"] | masks["c"]), (3, masks["a"])]
    assert {cache.replica for cache in index.some_of(masks["a"] | masks["b"], 5, Random(1).random)} == {"a", "b"}
    drawn = {index.some_of(masks["b"] | masks["c"], 1, Random(seed).random)[0].replica for seed in range(20)}
    assert drawn == {"b", "c"}


def test_more_lengths_than_are_told_apart_end_with_those_that_hold_less():
    index = PrefixIndex()
    for length in range(1, 16):
        index.promise(index.cache(f"r{length}"), prompt("x", 16)[:length], 1.0)
    levels = index.levels(prompt("x", 16))
    assert [depth for depth, _ in levels] == [15, 14, 13, 12, 11, 10, 9, 1]
    assert sum(holders.bit_count() for _, holders in levels) == 15


@pytest.mark.parametrize("leave", ["remove", "flush"])
def test_a_replica_that_left_or_was_flushed_has_no_credit(leave):
    index = PrefixIndex()
    for name in "abc":
        index.promise(index.cache(name), prompt("x", 64), 1.0)
    getattr(index, leave)("b")
    (level,) = index.levels(prompt("x", 64))
    assert {cache.replica for cache in index.some_of(level[1], 9, Random(1).random)} == {"a", "c"}
    index.cache("d")  # takes the place of one that left, and nothing of what it held
    assert index.depth(index.cache("d"), prompt("x", 64)) == index.depth(index.cache("b"), prompt("x", 64)) == 0
    check_integrity(index)


def test_what_nobody_used_expires_and_what_is_used_does_not():
    index = PrefixIndex()
    a, b = index.cache("a"), index.cache("b")
    index.confirm(a, prompt("old", 10), 0.0)
    index.confirm(b, prompt("old", 10), 0.0)
    for step in range(1, 14):
        index.promise(b, prompt("used", 10), step * EXPIRY_S / 8)
        index.confirm(b, prompt("used", 10), step * EXPIRY_S / 8)
    assert index.depth(b, prompt("old", 10)) == 0
    assert index.depth(b, prompt("used", 10)) == 10
    assert index.depth(a, prompt("old", 10)) == 0, "also where no prompt goes any more"
    check_integrity(index)


def test_the_least_recently_used_go_first_and_the_bound_holds():
    index = PrefixIndex(most_entries=1000)
    a, b = index.cache("a"), index.cache("b")
    for number in range(200):
        for cache in (a, b):
            index.promise(cache, prompt(f"x{number}", 10), float(number))
        index.confirm(a, prompt("kept", 10), float(number))
        assert index.entries <= 1000
    assert index.depth(a, prompt("kept", 10)) == index.depth(a, prompt("x199", 10)) == 10
    assert index.depth(a, prompt("x0", 10)) == 0
    assert len(a.used) <= 500
    check_integrity(index)


def test_replicas_that_join_share_the_bound():
    index = PrefixIndex(most_entries=1000)
    for number in range(100):
        index.promise(index.cache("a"), prompt(f"x{number}", 10), 1.0)
    for name in "bcdefgh":
        index.cache(name)
    for name in "abcdefgh":
        for number in range(100):
            index.promise(index.cache(name), prompt(f"x{number}", 10), 1.0)
    assert index.entries <= 1000
    check_integrity(index)


def test_an_attempt_that_failed_leaves_nothing_but_what_was_confirmed():
    index = PrefixIndex()
    a = index.cache("a")
    index.confirm(a, prompt("x", 5, 5), 1.0)
    index.promise(a, prompt("y", 10, 5), 2.0)
    assert index.depth(a, prompt("y", 10, 5)) == 10
    index.withdraw(a, prompt("y", 10, 5))
    assert index.depth(a, prompt("y", 10, 5)) == 5
    check_integrity(index)


def test_less_than_was_believed_drops_what_was_used_before_it():
    """Caches drop the least recently used first: if that one is gone, so are those before it."""
    index = PrefixIndex(most_entries=800)
    a = index.cache("a")
    for number in range(60):
        index.confirm(a, prompt(f"x{number}", 10), float(number))
    missed = prompt("x30", 10)
    generation = a.generation(missed[-1])
    index.correct(a, 10 * 16, 16, generation, 0)
    assert index.depth(a, prompt("x0", 10)) == 0
    assert index.depth(a, prompt("x59", 10)) == 10
    assert a.trust == pytest.approx(0.9)
    check_integrity(index)


def test_a_cache_that_keeps_nothing_loses_all_trust_and_earns_it_back():
    index = PrefixIndex()
    a = index.cache("a")
    index.confirm(a, prompt("x", 10), 1.0)
    for _ in range(60):
        index.correct(a, 160, 16, 1, 0)
    assert a.trust < 0.01
    for _ in range(60):
        index.correct(a, 160, 16, 1, 200)  # more than was believed counts as all of it
    assert a.trust > 0.99


def test_engines_round_down_and_that_drops_nothing():
    index = PrefixIndex()
    a = index.cache("a")
    index.confirm(a, prompt("old", 10), 1.0)
    for _ in range(20):
        index._begin(a, 1.0) if len(a.generations) < 3 else None
    index.confirm(a, prompt("x", 10), 2.0)
    index.correct(a, 160, 16, a.generation(prompt("x", 10)[-1]), 144)
    assert index.depth(a, prompt("old", 10)) == 10


def test_a_promise_that_is_not_there_yet_teaches_nothing():
    index = PrefixIndex()
    a = index.cache("a")
    index.promise(a, prompt("x", 10), 1.0)
    assert a.generation(prompt("x", 10)[-1]) == UNCONFIRMED
    index.correct(a, 160, 16, UNCONFIRMED, 0)
    assert (a.trust, index.depth(a, prompt("x", 10))) == (1.0, 10)


def test_a_new_router_learns_what_another_knew():
    index = PrefixIndex()
    for number in range(40):
        index.confirm(index.cache(f"r{number % 4}"), prompt(f"x{number}", 64, 30), float(30 * number))
    index.promise(index.cache("r0"), prompt("only promised", 64), 1300.0)
    fresh = PrefixIndex()
    for number in range(3):
        fresh.cache(f"r{number}")
    fresh.learn(index.summary(1300.0, 10_000), 70.0)  # its clock is another
    for number in range(40):
        if number % 4 != 3:  # that replica is not here
            asked, name = prompt(f"x{number}", 64, 30), f"r{number % 4}"
            assert fresh.depth(fresh.cache(name), asked) == index.depth(index.cache(name), asked)
    assert fresh.depth(fresh.cache("r0"), prompt("only promised", 64)) == 0
    assert fresh.replicas() == ["r0", "r1", "r2"]
    check_integrity(fresh)


def test_a_summary_keeps_the_newest():
    index = PrefixIndex(most_entries=1000)
    a = index.cache("a")
    for number in range(60):
        index.confirm(a, prompt(f"x{number}", 10), float(number))
    summary = index.summary(60.0, 100)
    assert sum(len(blocks) for _, blocks in summary["a"]) == 100
    fresh = PrefixIndex()
    fresh.cache("a")
    fresh.learn(summary, 0.0)
    assert fresh.depth(fresh.cache("a"), prompt("x59", 10)) == 10
    assert fresh.depth(fresh.cache("a"), prompt("x0", 10)) == 0


STEPS = st.tuples(
    st.sampled_from(["promise", "confirm", "withdraw", "correct", "remove", "flush", "expire"]),
    st.sampled_from("abc"),
    st.integers(0, 12),  # which prompt
    st.integers(0, 40),  # its length
    st.floats(-EXPIRY_S, 2 * EXPIRY_S),  # the clock may jump
)


@given(st.lists(STEPS, max_size=60), st.integers(3, 200))
def test_whatever_happens_both_sides_agree_and_the_bound_holds(steps, bound):
    index = PrefixIndex(most_entries=bound)
    now_s = 0.0
    for kind, replica, number, length, passed_s in steps:
        now_s = max(0.0, now_s + passed_s)
        cache, blocks = index.cache(replica), prompt(f"x{number}", max(length, 5), 5)[:length]
        if kind in ("promise", "confirm"):
            getattr(index, kind)(cache, blocks, now_s)
        elif kind == "withdraw":
            index.withdraw(cache, blocks)
        elif kind == "correct":
            generation = cache.generation(blocks[-1]) if blocks else UNCONFIRMED
            index.correct(cache, 16 * length, 16, generation, 16 * (length // 2))
        elif kind == "expire":
            index.expire(cache, now_s)
        else:
            getattr(index, kind)(replica)
        check_integrity(index)
        assert index.entries <= max(bound, 3)
        assert all(len(cache.generations) <= 16 for cache in index._caches.values())
        assert (
            sum(len(g.blocks) - g.dropped for c in index._caches.values() for g in c.generations) <= 20 * bound + 2000
        )
