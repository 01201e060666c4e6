"""Drift of a cost model: windows of estimates against what was settled, and what is said of them."""

import math
import random

import pytest

from steelyard.policy.drift import ENOUGH, WINDOWS, Drift, State, Window


def window(ratio, requests=100):
    return Window(requests, 1e6, ratio * 1e6)


def watch(ratios, expected_error=0.05):
    drift = Drift(expected_error)
    return drift, [drift.observe(window(ratio)) for ratio in ratios]


def test_it_says_nothing_before_there_is_enough():
    _, verdicts = watch([2.0] * ENOUGH)
    assert [verdict.state for verdict in verdicts[:-1]] == [State.TOO_LITTLE_DATA] * (ENOUGH - 1)
    assert verdicts[-1].state is State.DRIFTED
    assert verdicts[-1].changed


@pytest.mark.parametrize("empty", [Window(29, 1e6, 9e6), Window(100, 0.0, 1e6), Window(100, 1e6, 0.0), Window(0, 0, 0)])
def test_windows_with_too_little_in_them_change_nothing(empty):
    drift, _ = watch([1.0] * ENOUGH)
    for _ in range(20):
        verdict = drift.observe(empty)
    assert (verdict.state, verdict.changed, verdict.bias) == (State.FINE, False, None)
    assert Drift(0.05).observe(empty).state is State.TOO_LITTLE_DATA


@pytest.mark.parametrize(("ratio", "word"), [(1.4, "more"), (0.6, "less")])
def test_a_lasting_error_is_drift_and_the_reason_says_which_way(ratio, word):
    _, verdicts = watch([1.02, 0.97, 1.0, 1.01, 0.99, 1.0] + [ratio] * WINDOWS)
    assert verdicts[5].state is State.FINE
    assert verdicts[-1].state is State.DRIFTED
    assert f"40% {word}" in verdicts[-1].reason
    assert verdicts[-1].bias == pytest.approx(ratio - 1)
    assert [verdict.changed for verdict in verdicts].count(True) == 2  # to fine, to drifted


def test_one_spoilt_window_is_not_drift():
    _, verdicts = watch([1.0, 1.0, 1.0, 1.0, 5.0, 1.0, 1.0, 0.2, 1.0])
    assert {verdict.state for verdict in verdicts[ENOUGH - 1 :]} == {State.FINE}


def test_errors_to_both_sides_are_drift_too():
    _, verdicts = watch([1.5, 0.66] * 4)
    assert verdicts[-1].state is State.DRIFTED
    assert "now above and now below" in verdicts[-1].reason


def test_the_verdict_has_hysteresis():
    """An error that stays about the bound turns the verdict once, not with every window."""
    rng = random.Random(4)
    drift = Drift(0.05)
    verdicts = [drift.observe(window(math.exp(math.log(1.14) + rng.gauss(0, 0.02)))) for _ in range(300)]
    assert sum(verdict.changed for verdict in verdicts) <= 3


def test_it_is_fine_again_only_well_within_the_bound():
    drift, _ = watch([1.3] * WINDOWS)
    assert [drift.observe(window(1.12)).state for _ in range(10)][-1] is State.DRIFTED
    verdicts = [drift.observe(window(1.05)) for _ in range(10)]
    assert verdicts[-1].state is State.FINE


def test_a_model_known_to_be_rough_is_given_more_room():
    assert watch([1.3] * WINDOWS, expected_error=0.05)[1][-1].state is State.DRIFTED
    assert watch([1.3] * WINDOWS, expected_error=0.20)[1][-1].state is State.FINE
    assert watch([1.3] * WINDOWS, expected_error=None)[1][-1].state is State.DRIFTED


def test_every_verdict_has_a_sentence():
    rng = random.Random(5)
    drift = Drift(0.05)
    for _ in range(200):
        verdict = drift.observe(window(math.exp(rng.gauss(0, 0.3)), requests=rng.choice([5, 100])))
        assert verdict.reason.endswith(".")
        assert ", ." not in verdict.reason
