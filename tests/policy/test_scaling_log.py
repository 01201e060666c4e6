"""The decision log: what was recorded comes out again, also from the middle; what was tampered with does not."""

import json

import pytest

from steelyard.policy.demand_window import Sample
from steelyard.policy.horizontal import Horizontal, Limits
from steelyard.policy.scaling_log import Call, begin_line, decision_line, replay


def record(seconds=900, begin_every_s=10_000):
    """A load that comes and goes, sampled each second and decided every five."""
    axis, lines, samples = Horizontal(Limits(0, 9, idle_timeout_s=120.0), replicas=1), [], []
    for second in range(seconds):
        demand = 30.0 if 100 < second < 300 else 0.0 if second > 600 else 2.0
        rate = None if second % 7 == 0 else demand / 0.3
        samples.append(Sample(float(second), None if second % 50 == 49 else demand, 3, 1, demand / 2, rate, 0.3))
        axis.observe(samples[-1])
        if second % 5 == 4:
            if second % begin_every_s < 5:
                lines.append(begin_line("e/m", axis))
            call = Call(second + 0.25, 4.0, 8.0 if second > 50 else None, tuple(samples))
            lines.append(decision_line("e/m", call, axis.decide(call.now_s, call.target, call.readiness_s), second))
            samples.clear()
    return lines


def test_every_decision_comes_out_again():
    found = replay(record())
    assert len(found) == 180
    assert all(item.same for item in found)
    assert {item.recorded.replicas for item in found} >= {0, 8}


def test_a_log_whose_beginning_was_cut_off_is_replayed_from_where_an_entity_begins():
    lines = record(begin_every_s=200)
    found = replay(lines[5:])
    assert 100 < len(found) < 180
    assert all(item.same for item in found)


def test_a_line_that_was_cut_off_ends_what_came_before_it():
    lines = record(begin_every_s=200)
    found = replay([*lines[:20], lines[20][:90], *lines[21:]])
    assert len(found) < 180
    assert all(item.same for item in found)


def test_another_input_or_outcome_is_noticed():
    lines = record()
    entry = json.loads(lines[40])
    changed = json.dumps({**entry, "replicas": entry["replicas"] + 1})
    assert [item.same for item in replay([*lines[:40], changed, *lines[41:]])].count(False) == 1
    changed = json.dumps({**entry, "target": 2.5})
    assert not all(item.same for item in replay([*lines[:40], changed, *lines[41:]]))


@pytest.mark.parametrize("line", ["hello", "[1]", '{"kind": "begin", "of": "x"}', '{"kind": "decision"}'])
def test_what_is_no_log_is_refused_with_the_line(line):
    with pytest.raises(ValueError, match="Line 1 is no entry"):
        replay([line])
