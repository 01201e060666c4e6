from collections import Counter
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from steelyard.policy.traffic import pick_by_share


@given(st.lists(st.integers(0, 100), max_size=6), st.floats(0, 1, exclude_max=True))
def test_an_entity_without_share_is_never_picked(shares, draw):
    index = pick_by_share(shares, draw)
    if sum(shares) == 0:
        assert index is None
    else:
        assert shares[index] > 0


def test_shares_hold_in_the_long_run():
    rng = Random(5)
    counts = Counter(pick_by_share([90, 10, 0], rng.random()) for _ in range(10_000))
    assert abs(counts[0] - 9000) < 200
    assert counts[2] == 0


def test_shares_need_not_sum_to_100():
    assert [pick_by_share([1, 1], draw) for draw in (0.0, 0.49, 0.5, 0.99)] == [0, 0, 1, 1]
