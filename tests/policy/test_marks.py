from hypothesis import given
from hypothesis import strategies as st

from steelyard.policy.marks import MAX_LEASE_S, Mark


@given(st.lists(st.tuples(st.floats(0, 10), st.floats(0.01, 5), st.booleans()), min_size=1, max_size=50))
def test_every_mark_expires_within_the_longest_lease(events):
    mark, now_s = Mark(), 0.0
    for wait_s, lease_s, answered in events:
        now_s += wait_s
        if answered:
            mark.answered()
        before_s = mark.until_s
        mark.put(now_s, lease_s, "test")
        assert mark.is_active(now_s)
        assert mark.until_s >= before_s
        assert mark.until_s <= now_s + MAX_LEASE_S
    assert not mark.is_active(now_s + MAX_LEASE_S)


def test_marks_in_a_row_grow_and_an_answer_starts_over():
    mark = Mark()
    leases = []
    for _ in range(4):
        now_s = mark.until_s
        mark.put(now_s, 1.0, "down")
        leases.append(mark.until_s - now_s)
    assert leases == [1.0, 2.0, 4.0, 5.0]
    mark.answered()
    now_s = mark.until_s
    mark.put(now_s, 1.0, "down")
    assert mark.until_s - now_s == 1.0


def test_a_burst_of_failures_at_one_instant_counts_once():
    mark = Mark()
    for _ in range(50):
        mark.put(100.0, 1.0, "down")
    assert mark.until_s == 101.0
