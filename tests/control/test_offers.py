"""A configuration is offered to routers first, and becomes active when they have it or take too long."""

from steelyard.control.definitions import build_config, build_entity
from steelyard.control.offers import PATIENCE_S, Offers
from steelyard.control.records import ConfigRecord, EndpointRecord

CONFIG = build_config([build_entity({"entity_name": "/m"}, "e", lambda path: path)], None, "")
ENDPOINT = EndpointRecord("id", "e", "ada", 1, 1, pending=ConfigRecord(2, "ada", 1, CONFIG))


def test_offered_configuration_is_what_routers_see():
    offers = Offers()
    assert offers.as_if_promoted([ENDPOINT]) == [ENDPOINT]
    offers.renew({"id": 2}, 0.0)
    (seen,) = offers.as_if_promoted([ENDPOINT])
    assert (seen.active, seen.pending) == (ENDPOINT.pending, None)


def test_due_when_routers_have_applied_the_snapshot_that_first_held_it():
    offers = Offers()
    offers.renew({"id": 2}, 0.0)
    assert not offers.is_due("id", lambda version: True, 0.0)
    offers.published(7)
    offers.renew({"id": 2}, 0.1)
    offers.published(8)
    assert not offers.is_due("id", lambda version: version < 7, 0.1)
    assert offers.is_due("id", lambda version: version <= 7, 0.1)


def test_due_when_a_router_takes_too_long():
    offers = Offers()
    offers.renew({"id": 2}, 0.0)
    offers.published(7)
    assert not offers.is_due("id", lambda version: False, PATIENCE_S - 0.1)
    assert offers.is_due("id", lambda version: False, PATIENCE_S)


def test_withdrawn_when_it_can_no_longer_be_promoted():
    offers = Offers()
    offers.renew({"id": 2}, 0.0)
    offers.renew({}, 0.1)
    assert offers.as_if_promoted([ENDPOINT]) == [ENDPOINT]
    assert not offers.is_due("id", lambda version: True, 9.0)
