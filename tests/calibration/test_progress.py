"""Counting what a replica gets done: windows may cut through requests, and nothing is counted twice."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.calibration.progress import Counted, Progress
from steelyard.policy.calibration_shapes import Shape
from steelyard.policy.units import TERMS, Features, Term, term_values


def totals(progress):
    return dict(zip(TERMS, progress.totals(), strict=True))


requests = st.lists(
    st.tuples(
        st.integers(1, 500),  # the prompt as it was estimated
        st.integers(1, 500),  # and as the replica counts it
        st.integers(0, 100),  # of these, found in the cache
        st.lists(st.integers(1, 5), min_size=1, max_size=30),  # pieces of output as they come
        st.integers(1, 100),  # output as the replica counts it
    ),
    max_size=8,
)


@given(requests, st.randoms())
def test_when_all_is_done_the_sums_are_those_of_the_whole_requests_in_whatever_order(sizes, rng):
    progress, events = Progress(), []
    expected = [0.0] * len(TERMS)
    for number, (estimate, prompt, cached, pieces, output) in enumerate(sizes):
        sent = progress.sent(Shape(input_tokens=estimate, output_tokens=output), 0.0)
        found = min(cached, prompt)
        whole = Features(input_tokens=prompt - found, cached_tokens=found, output_tokens=output)
        expected = [one + other for one, other in zip(expected, term_values(whole), strict=True)]
        moments = sorted(rng.random() for _ in range(len(pieces) + 1))
        events += [(at, number, sent, count) for at, count in zip(moments, pieces, strict=False)]
        events.append((moments[-1], number, sent, Counted(prompt, output, found)))
    for at, _, sent, what in sorted(events, key=lambda event: event[:2]):
        if isinstance(what, Counted):
            progress.answered(sent, what, at)
        else:
            progress.tokens(sent, what, at)
    assert progress.totals() == pytest.approx(expected, rel=1e-9, abs=1e-6)
    assert progress.finished_total == len(sizes)


def test_a_prompt_counts_when_its_first_token_comes_and_output_as_it_comes():
    progress = Progress()
    sent = progress.sent(Shape(input_tokens=100, output_tokens=10), 0.0)
    assert totals(progress)[Term.INPUT] == 0
    progress.tokens(sent, 1, 2.0)
    assert totals(progress)[Term.INPUT] == 100
    assert totals(progress)[Term.REQUEST] == 1
    progress.tokens(sent, 3, 3.0)
    assert totals(progress)[Term.OUTPUT] == 4
    assert totals(progress)[Term.CONTEXT] == 4 * (100 + 2)


def test_what_is_given_up_keeps_what_was_done_for_it_and_failures_count_for_nothing():
    progress = Progress()
    progress.begin(0.0)
    begun, waiting, refused = (progress.sent(Shape(input_tokens=50, output_tokens=5), 0.0) for _ in range(3))
    progress.tokens(begun, 2, 1.0)
    progress.given_up(begun)
    progress.given_up(waiting)
    progress.failed_with(refused, "No.")
    assert (totals(progress)[Term.REQUEST], totals(progress)[Term.OUTPUT]) == (1, 2)
    result = progress.result((0.0,) * len(TERMS), progress.totals(), 1.0)
    assert (result.finished, result.failed, result.fault) == (0, 1, "No.")


def test_latencies_are_of_requests_sent_since_the_run_began():
    progress = Progress()
    old = progress.sent(Shape(input_tokens=5, output_tokens=9), 0.0)
    progress.begin(10.0)
    new = progress.sent(Shape(input_tokens=5, output_tokens=9), 10.0)
    assert progress.older() == 1
    for sent in (old, new):
        progress.tokens(sent, 1, 12.0)
        progress.tokens(sent, 8, 16.0)
        progress.answered(sent, Counted(5, 9), 17.0)
    assert progress.older() == 0
    result = progress.result((0.0,) * len(TERMS), progress.totals(), 7.0)
    assert (result.first_token_s, result.per_token_s, result.whole_s, result.finished) == (2.0, 0.5, 7.0, 1)
    assert result.totals[TERMS.index(Term.REQUEST)] == 2


def test_rows_count_when_they_are_answered():
    progress = Progress()
    sent = progress.sent(Shape(rows=7), 0.0)
    progress.answered(sent, None, 1.0)
    assert (totals(progress)[Term.REQUEST], totals(progress)[Term.ROW]) == (1, 7)
