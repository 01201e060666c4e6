"""How many replicas an entity may have, as user and machine bound it, and what a new version begins with."""

import json
from types import SimpleNamespace

import pytest

from steelyard.control.autoscaler import Autoscaler
from steelyard.control.costs import Costs
from steelyard.control.decision_log import DecisionLog
from steelyard.control.definitions import ConfigDefinition, EntityDefinition, RouteDefinition
from steelyard.control.demand_reports import Reports
from steelyard.control.fleet import Fleet
from steelyard.control.records import ConfigRecord, EndpointRecord
from steelyard.control.scaling_axes import Axis, PolicyClock, keep, restore, state_text
from steelyard.control.scaling_limits import REPLICAS_PER_CORE, Machine, limits_of
from steelyard.policy.demand_sum import Totals
from steelyard.policy.demand_window import Sample
from steelyard.policy.horizontal import DECIDE_EVERY_S, Horizontal, Limits
from steelyard.policy.scaling_log import begin_line, replay
from steelyard.settings import Settings

GIB = 2**30
ROOMY = Machine(cores=2, memory_bytes=64 * GIB, available_bytes=60 * GIB, replica_bytes=GIB)


def entity(name="m", **sizes):
    return EntityDefinition(name=name, entity_name=name, model_uri=f"models:/{name}/1", **sizes)


def limits(given, concurrency=4, machine=ROOMY, ready=1, starting=0, wanted=1):
    found = limits_of(given, concurrency, machine, ready=ready, starting=starting, wanted=wanted, idle_timeout_s=60.0)
    return found.min_replicas, found.max_replicas


def between(least, most, **more):
    return entity(min_provisioned_concurrency=least, max_provisioned_concurrency=most, **more)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (between(4, 16), (1, 4)),
        (between(5, 18), (2, 4)),  # the minimum is met, the maximum kept
        (between(None, 3), (1, 1)),  # but one replica there must be
        (between(6, 7), (2, 2)),
        (entity(workload_size="Medium", scale_to_zero_enabled=True), (0, 2)),
        (between(8, 16, scale_to_zero_enabled=True), (0, 4)),
    ],
)
def test_what_the_user_gave_in_replicas(given, expected):
    assert limits(given) == expected


def test_a_fixed_size_does_not_follow_the_load():
    assert not entity().follows_load
    assert not between(8, 8).follows_load
    assert not between(8, None).follows_load
    assert not entity(workload_size="Small").follows_load
    assert between(1, 8).follows_load


def test_a_full_machine_stops_growth_and_takes_nothing_away():
    tight = Machine(cores=2, memory_bytes=10 * GIB, available_bytes=4 * GIB, replica_bytes=GIB)
    assert limits(between(4, 400), machine=tight, ready=2) == (1, 5)  # 3 more, and a tenth is kept free
    assert limits(between(4, 400), machine=tight, ready=2, starting=1) == (1, 5)  # it has not taken its memory yet
    full = Machine(cores=2, memory_bytes=10 * GIB, available_bytes=GIB, replica_bytes=GIB)
    assert limits(between(4, 400), machine=full, ready=3, wanted=6) == (1, 6)
    assert limits(between(28, 400), machine=full, ready=3) == (7, 7)  # the minimum is the user's


def test_cores_bound_the_number_and_an_unknown_size_does_not():
    unknown = Machine(cores=2, memory_bytes=GIB, available_bytes=0)
    assert limits(between(4, 4000), machine=unknown) == (1, 2 * REPLICAS_PER_CORE)


def test_what_a_replica_runs_at_once_is_believed_once_it_has_stood_and_less_at_once():
    axis = Axis(Horizontal(Limits(1, 9)), "key", 4)
    assert axis.target(None) == 3.0
    assert axis.target(8) == 8.0  # calibration knows
    axis.note_lanes(2, 0.0)
    axis.note_lanes(16, 30.0)
    assert axis.target(None) == 1.5
    axis.note_lanes(16, 61.0)
    assert axis.target(None) == 12.0
    axis.note_lanes(1, 62.0)
    assert axis.target(None) == 0.75


# --- what survives, and what a new version begins with


def endpoint(active, pending=None):
    def config(version, entities):
        routes = [RouteDefinition(served_entity_name=item.name, traffic_percentage=100) for item in entities]
        return ConfigRecord(version, "me", 0, ConfigDefinition(entities=entities, routes=routes))

    return EndpointRecord(
        "id", "e", "me", 0, 0, active=config(1, active), pending=None if pending is None else config(2, pending)
    )


def autoscaler(home, clock=lambda: 0.0, endpoints=(), events=None):
    return Autoscaler(
        Settings(home=home),
        fleet=Fleet(),
        endpoints=lambda: endpoints,
        changed=lambda: None,
        costs=Costs(),
        events=events,
        monotonic=clock,
        wall_s=clock,
    )


def kept(home, **replicas):
    """A home in which an earlier control kept so many replicas by entity name."""
    axes = {("id", name): Axis(Horizontal(Limits(1, 9), replicas=count), "key", 2) for name, count in replicas.items()}
    axes["id", "old"].horizontal.observe(Sample(90.0, 7.0, 3, 0))
    axes["id", "old"].note_start(4.0)
    keep(home / "autoscaling" / "state.json", state_text(axes, 100.0, 5000.0))


def test_an_earlier_controls_state_is_gone_on_from_with_the_time_that_has_passed(tmp_path):
    kept(tmp_path, old=5)
    clock = PolicyClock(1.0, lambda: 7.0, lambda: 5030.0)
    axes = restore(tmp_path / "autoscaling" / "state.json", clock)
    axis = axes["id", "old"]
    assert (axis.horizontal.replicas, axis.concurrency, axis.readiness_s) == (5, 2, 4.0)
    assert clock() == 130.0
    assert axis.horizontal.state()["window"]["loads"][0]["running"] == 7.0


@pytest.mark.parametrize("text", ["", "{", "{}", '{"now_s": 1, "wall_s": 1, "axes": [{"name": ["a"]}]}', "[1]"])
def test_a_state_file_that_cannot_be_read_is_as_none(tmp_path, text):
    file = tmp_path / "state.json"
    file.write_text(text)
    assert restore(file, PolicyClock(1.0, lambda: 0.0, lambda: 0.0)) == {}


def test_a_new_version_begins_with_its_share_of_what_serves_within_its_bounds(tmp_path):
    kept(tmp_path, old=5)
    scaler = autoscaler(tmp_path)
    scaler.load()
    old, new = between(1, 20, name="old"), between(1, 20, name="new")
    both = endpoint([old], [new])
    assert scaler.replicas_of(both, old) == 5
    assert scaler.replicas_of(both, new) == 5
    small = between(1, 6, name="new")
    assert scaler.replicas_of(endpoint([old], [small]), small) == 3
    fixed = between(4, 4, name="new")
    assert scaler.replicas_of(endpoint([old], [fixed]), fixed) is None
    assert scaler.replicas_of(endpoint([old], [old]), old) == 5  # the same name goes on
    assert scaler.replicas_of(endpoint([new]), new) is None  # nothing is known yet: as configured


class Told:
    """A router that says what a test lets it say."""

    def __init__(self):
        self.totals = Totals()

    async def ask(self):
        return [Reports({("e", "m"): self.totals}, {})]


async def test_a_surge_is_decided_on_at_once_and_not_at_its_turn(tmp_path):
    axes = {("id", "m"): Axis(Horizontal(Limits(1, 9), replicas=1), "key", 8)}
    keep(tmp_path / "autoscaling" / "state.json", state_text(axes, 0.0, 0.0))
    now_s, recorded, told = 0.0, [], Told()
    events = SimpleNamespace(record=recorded.append)
    scaler = autoscaler(tmp_path, lambda: now_s, [endpoint([between(8, 320)])], events)
    scaler.load()
    for second in range(1, 33):
        arrived = second + 1 + 100 * max(0, second - 30)
        told.totals = Totals(1, queued=arrived - second - 1, arrived=arrived, settled=second, busy_s=second)
        now_s = float(second)
        await scaler._turn(told)
        assert bool(recorded) == (second == 32)  # the second of two seconds in a row
    log = (tmp_path / "autoscaling" / "decisions.jsonl").read_text().splitlines()
    times = [entry["now_s"] for entry in map(json.loads, log) if entry["kind"] == "decision"]
    assert times[-1] - times[-2] < DECIDE_EVERY_S - 1  # between two turns
    assert all(item.same for item in replay(log))


def test_a_log_goes_on_after_a_line_that_was_cut_off_and_stays_bounded(tmp_path):
    line = begin_line("e/m", Horizontal(Limits(1, 2)))
    log = DecisionLog(tmp_path, most_bytes=3 * len(line))
    assert not log.append([line])
    with log.file.open("a") as file:
        file.write('{"kind": "decis')
    log = DecisionLog(tmp_path, most_bytes=3 * len(line))
    assert not log.append([line])
    lines = log.file.read_text().splitlines()
    assert lines == [line, '{"kind": "decis', line]
    assert json.loads(lines[2])["of"] == "e/m"
    assert replay(lines) == []
    assert log.append([line])
    log.turn()
    assert not log.append([line])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["decisions-previous.jsonl", "decisions.jsonl"]
