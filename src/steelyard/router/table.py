"""The live routing table: endpoints, served entities and replicas of the snapshot in force.

`apply` swaps in a new snapshot at once, or not at all, and keeps the objects that it names again, so that load,
connections and waiting requests survive it. Requests on a replica that left go on until they end. Only the router's
loop touches it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import isfinite
from typing import Final

from steelyard.contracts.snapshot import CostView, EndpointView, ReplicaView, ServedEntityView, Snapshot
from steelyard.observe.logs import get_logger
from steelyard.policy.admission import SettleRate
from steelyard.policy.ledger import Account, Ledger
from steelyard.policy.rate_limits import BucketSource, Limiter, RateLimit
from steelyard.policy.routing import Candidate, Chooser
from steelyard.policy.traffic import pick_by_share
from steelyard.policy.units import GUESS, TERMS, CostModel, LinearCost
from steelyard.router.budget import read_limits
from steelyard.router.choosers import Choosers
from steelyard.router.flow import Flow
from steelyard.router.measures import EndpointMeasures, RouterMeasures
from steelyard.router.queue import WaitingLine, WaitingTotals
from steelyard.router.tally import Tally
from steelyard.router.weigh import Weigher
from steelyard.wire.client import Pool

log = get_logger()

_GENERATES: Final = ("llm/v1/chat", "llm/v1/completions", "agent/")
OPENAI_TARGETS: Final = ("chat/completions", "completions", "embeddings", "responses")


class Replica(Candidate):
    """A replica and the connections to it."""

    __slots__ = ("address", "id", "pool")

    def __init__(self, view: ReplicaView, account: Account, pool: Pool) -> None:
        super().__init__(account, view.max_concurrency)
        self.id = view.id
        self.address = view.address
        self.pool = pool


class Entity:
    """A served entity: its replicas, who waits for them, and how fast it works requests off."""

    __slots__ = (
        "chooser",
        "cost",
        "endpoint",
        "flow",
        "gone",
        "line",
        "name",
        "percentage",
        "rate",
        "recovering",
        "replicas",
        "tally",
        "task",
        "weigher",
        "wire_name",
    )

    def __init__(self, endpoint: Endpoint, name: str, totals: WaitingTotals, chooser: Chooser, tally: Tally) -> None:
        self.endpoint = endpoint
        self.name = name
        self.wire_name = "".join(c if c.isprintable() else "?" for c in name).encode("ascii", "replace")
        self.percentage = 0
        self.task: str | None = None
        self.recovering = False
        self.gone = False
        self.replicas: list[Replica] = []
        self.line = WaitingLine(totals)
        self.rate = SettleRate()
        self.flow = Flow()
        self.chooser = chooser
        self.cost: CostView | None = None  # as in the snapshot
        self.weigher = Weigher()
        self.tally = tally


class Endpoint:
    __slots__ = ("_source", "entities", "gone", "limiter", "limits", "measures", "name", "shares", "stopped", "view")

    def __init__(self, name: str, measures: EndpointMeasures, source: BucketSource | None) -> None:
        self._source = source
        self.name = name
        self.measures = measures
        self.view: EndpointView
        self.stopped = False
        self.gone = False
        self.entities: list[Entity] = []
        self.limits: list[RateLimit] = []
        self.limiter: Limiter | None = None  # None: there are no limits
        self.shares: list[int] = []

    def entity_for(self, draw: float) -> Entity | None:
        """The entity of the traffic split that `draw` in [0, 1) falls on."""
        if len(self.entities) == 1:
            return self.entities[0]
        index = pick_by_share(self.shares, draw)
        return None if index is None else self.entities[index]

    def limit(self, limits: list[RateLimit]) -> None:
        """Put these in force; what was taken in the last minute still counts where there were limits before."""
        if limits == self.limits:
            return
        self.limits = limits
        if not limits:
            self.limiter = None
        elif self.limiter is None:
            self.limiter = Limiter(limits, self._source)
        else:
            self.limiter.replace(limits)


@dataclass(frozen=True, slots=True)
class Route:
    """Where a path leads: to an endpoint (None: named by the body's `model`), perhaps to one of its entities."""

    target: bytes  # path at the replica
    endpoint: Endpoint | None = None
    entity: Entity | None = None
    methods: tuple[str, ...] = ("POST",)
    verb: bytes = b"POST"  # the method at the replica


_OPENAI_ROUTES: Final = {
    f"{prefix}/{name}": Route(f"/v1/{name}".encode())
    for prefix in ("/v1", "/serving-endpoints")
    for name in OPENAI_TARGETS
}


class RoutingTable:
    def __init__(self, ledger: Ledger, measures: RouterMeasures, totals: WaitingTotals, choosers: Choosers) -> None:
        self._ledger = ledger
        self._measures = measures
        self._totals = totals
        self._choosers = choosers
        self.source_of: Callable[[str], BucketSource] | None = None  # by endpoint: where other routers share its limits
        self.tallies: list[Tally] = []  # that are not empty
        self._replicas: dict[str, Replica] = {}
        self.version: int | None = None  # None: no snapshot yet
        self.endpoints: dict[str, Endpoint] = {}
        self.routes: dict[str, Route] = dict(_OPENAI_ROUTES)

    def apply(self, snapshot: Snapshot) -> list[Entity]:
        """Make `snapshot` the routing in force. The result is every entity that had requests waiting.

        Raises ValueError for an address or a limit that cannot be read, and then has changed nothing.
        """
        limits = {view.name: read_limits(view.rate_limits) for view in snapshot.endpoints}
        pools = self._new_pools(snapshot)  # the last that can fail; what follows only assigns
        before = [entity for endpoint in self.endpoints.values() for entity in endpoint.entities]
        replicas: dict[str, Replica] = {}
        endpoints: dict[str, Endpoint] = {}
        routes = dict(_OPENAI_ROUTES)
        for view in snapshot.endpoints:
            endpoint = self.endpoints.get(view.name)
            if endpoint is None:
                source = None if self.source_of is None else self.source_of(view.name)
                endpoint = Endpoint(view.name, self._measures.endpoint(view.name), source)
            endpoint.limit(limits[view.name])
            self._update(endpoint, view, replicas, pools)
            endpoints[view.name] = endpoint
            _add_routes(routes, endpoint)
        for name in self.endpoints.keys() - endpoints.keys():
            gone = self.endpoints[name]
            gone.gone = True
            for entity in gone.entities:
                entity.gone, entity.replicas = True, []
            gone.measures.forget()
        for replica in self._replicas.values():
            if replicas.get(replica.id) is not replica:
                replica.pool.close()
            if replica.id not in replicas:
                self._ledger.retire(replica.id)
        self._replicas, self.endpoints, self.routes = replicas, endpoints, routes
        self.version = snapshot.version
        return [entity for entity in before if entity.line]

    def _new_pools(self, snapshot: Snapshot) -> dict[str, Pool]:
        """A pool for each replica that is new, or has a new address."""
        views = [r for endpoint in snapshot.endpoints for entity in endpoint.served_entities for r in entity.replicas]
        known = self._replicas
        return {v.id: Pool(v.address) for v in views if v.id not in known or known[v.id].address != v.address}

    def _update(
        self, endpoint: Endpoint, view: EndpointView, replicas: dict[str, Replica], pools: dict[str, Pool]
    ) -> None:
        known = {entity.name: entity for entity in endpoint.entities}
        entities = []
        for entity_view in view.served_entities:
            entity = known.pop(entity_view.name, None)
            if entity is None:
                tally = Tally(endpoint.name, entity_view.name, self.tallies)
                entity = Entity(endpoint, entity_view.name, self._totals, self._choosers.make(), tally)
            self._update_entity(entity, entity_view, replicas, pools)
            entities.append(entity)
        for entity in known.values():
            entity.gone, entity.replicas = True, []
        endpoint.view = view
        endpoint.stopped = view.stopped
        endpoint.entities = entities
        endpoint.shares = [entity.percentage for entity in entities]

    def _update_entity(
        self, entity: Entity, view: ServedEntityView, replicas: dict[str, Replica], pools: dict[str, Pool]
    ) -> None:
        entity.percentage = view.traffic_percentage
        entity.task = view.task
        entity.recovering = view.recovering
        if view.cost != entity.cost:
            entity.cost = view.cost
            entity.weigher.set_cost(_cost_model(view))
        entity.weigher.generates = view.task is not None and view.task.startswith(_GENERATES)
        members: list[Replica] = []
        for replica_view in view.replicas:
            pool = pools.get(replica_view.id)
            if pool is None:
                replica = self._replicas[replica_view.id]
            else:
                replica = Replica(replica_view, self._ledger.account(replica_view.id), pool)
            replica.limit = replica_view.max_concurrency
            replicas[replica.id] = replica
            members.append(replica)
        if members != entity.replicas:  # a chooser knows by the object whether its candidates are others
            entity.replicas = members


def _cost_model(view: ServedEntityView) -> CostModel:
    """Terms that a later control knows are passed over; a cost that makes no sense is no reason to stop routing."""
    if view.cost is None:
        return GUESS
    known = {term: view.cost.coefficients.get(term.value, 0.0) for term in TERMS}
    try:
        if not any(known.values()) or not all(map(isfinite, known.values())):
            raise ValueError("No coefficient is above zero, or one is infinite.")
        return LinearCost(known, view.cost.uncertainty)
    except ValueError as error:
        log.warning("cost_not_usable", served_entity=view.name, reason=str(error))
        return GUESS


def _add_routes(routes: dict[str, Route], endpoint: Endpoint) -> None:
    base = f"/serving-endpoints/{endpoint.name}"
    routes[f"{base}/invocations"] = Route(b"/invocations", endpoint)
    for entity in endpoint.entities:
        routes[f"{base}/served-models/{entity.name}/invocations"] = Route(b"/invocations", endpoint, entity)
    base = f"/v2/models/{endpoint.name}"
    _add_open_inference(routes, base, endpoint, None)
    for entity in endpoint.entities:
        _add_open_inference(routes, f"{base}/versions/{entity.name}", endpoint, entity)


def _add_open_inference(routes: dict[str, Route], base: str, endpoint: Endpoint, entity: Entity | None) -> None:
    routes[f"{base}/infer"] = Route(b"/v2/infer", endpoint, entity)
    routes[base] = Route(b"/v2/model", endpoint, entity, ("GET", "HEAD"), b"GET")
