"""What endpoints cost: the time of their replicas, kept while the endpoint is there, also when none runs."""

from steelyard.contracts.replica import ReplicaSpec
from steelyard.control.fleet import Fleet
from steelyard.control.instruments import Instruments
from steelyard.control.states import Phase


def spec(name, endpoint):
    return ReplicaSpec(id=name, endpoint=endpoint, endpoint_id=endpoint, served_entity="m", address="", model_uri="x")


def seconds(instruments):
    lines = instruments.render().decode().splitlines()
    prefix = "steelyard_control_replica_seconds_total"
    return {line.split('"')[1]: float(line.split()[1]) for line in lines if line.startswith(prefix)}


def test_replica_seconds_of_every_replica_that_is_not_dead_until_the_endpoint_is_gone():
    fleet, instruments = Fleet(), Instruments()
    first, second = (fleet.started(spec(name, "a"), 1, 0.0) for name in ("r1", "r2"))
    fleet.started(spec("r3", "b"), 1, 0.0)
    for now_s in (100.0, 102.0):
        instruments.note_round(0.0, fleet, 1, {"a", "b"}, now_s)
    assert seconds(instruments) == {"a": 4.0, "b": 2.0}
    first.enter(Phase.DEAD, 102.0)
    second.enter(Phase.DEAD, 102.0)
    instruments.note_round(0.0, fleet, 1, {"a", "b"}, 105.0)
    assert seconds(instruments) == {"a": 4.0, "b": 5.0}
    instruments.note_round(0.0, fleet, 1, {"b"}, 106.0)
    assert seconds(instruments) == {"b": 6.0}
