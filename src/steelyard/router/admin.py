"""The router's own socket, for the platform and not for clients: `/livez`, `/metrics`, `/ledger`, `/demand`."""

from __future__ import annotations

from typing import Any

import msgspec

from steelyard.contracts.demand import DemandReport, EntityDemand
from steelyard.errors import NotFound
from steelyard.observe.metrics import CONTENT_TYPE
from steelyard.router.app import JSON, Router
from steelyard.wire.server import Reply, Request


class Admin:
    """Handler of the admin socket."""

    def __init__(self, router: Router) -> None:
        self._router = router

    def handle(self, request: Request, reply: Reply) -> None:
        match request.path:
            case "/livez":
                reply.send(200, [(b"content-type", b"text/plain")], b"ok\n")
            case "/metrics":
                self._set_gauges()
                reply.send(200, [(b"content-type", CONTENT_TYPE.encode())], self._router.measures.set.render())
            case "/ledger":
                reply.send(200, JSON, msgspec.json.encode(self._ledger()))
            case "/demand":
                reply.send(200, JSON, msgspec.json.encode(self._demand()))
            case path:
                reply.send_error(NotFound(f"Nothing is served at {path[:200]!r}."))

    def _ledger(self) -> dict[str, Any]:
        router = self._router
        ledger = router.ledger
        return {
            "in_flight": ledger.in_flight,
            "by_replica": ledger.by_replica(),
            "outstanding_mmu": ledger.outstanding_mmu,
            "charged_total_mmu": ledger.charged_total_mmu,
            "settled_total_mmu": ledger.settled_total_mmu,
            "known_total_mmu": ledger.known_total_mmu,
            "actual_total_mmu": ledger.actual_total_mmu,
            "queued": router.totals.requests,
            "queued_bytes": router.totals.body_bytes,
            "live": len(router.live),
            "snapshot_version": router.table.version,
        }

    def _demand(self) -> DemandReport:
        return DemandReport(
            entities=[
                EntityDemand(
                    endpoint=endpoint.name,
                    served_entity=entity.name,
                    running=entity.flow.running,
                    running_mmu=entity.flow.running_mmu,
                    queued=len(entity.line),
                    queued_mmu=entity.line.waiting_mmu,
                    arrived_total=entity.flow.arrived,
                    settled_total=entity.flow.settled,
                    settled_mmu_total=entity.flow.settled_mmu,
                    busy_s_total=entity.flow.busy_s,
                    busy_mmu_s_total=entity.flow.busy_mmu_s,
                )
                for endpoint in self._router.table.endpoints.values()
                for entity in endpoint.entities
            ],
            outstanding_mmu={
                replica.id: replica.account.outstanding_mmu
                for endpoint in self._router.table.endpoints.values()
                for entity in endpoint.entities
                for replica in entity.replicas
            },
        )

    def _set_gauges(self) -> None:
        measures = self._router.measures
        for name, endpoint in self._router.table.endpoints.items():
            replicas = [replica for entity in endpoint.entities for replica in entity.replicas]
            measures.in_flight.labels(name).set(sum(replica.account.in_flight for replica in replicas))
            measures.waiting.labels(name).set(sum(len(entity.line) for entity in endpoint.entities))
