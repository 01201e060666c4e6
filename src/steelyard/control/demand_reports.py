"""Asks every router what demand it sees, over its own socket, and sorts the answers by served entity.

The autoscaler owns one and asks once a second. A router that does not answer in time has said nothing: that is passed
on as it is. It decides nothing.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from steelyard.contracts.demand import DemandReport, EntityDemand
from steelyard.errors import SteelyardError
from steelyard.policy.demand_sum import Totals
from steelyard.wire.client import Pool
from steelyard.wire.fetch import fetch

ANSWER_TIMEOUT_S = 1.0

Name = tuple[str, str]  # of an endpoint and its served entity


@dataclass(frozen=True, slots=True)
class Reports:
    """What one router said."""

    totals: dict[Name, Totals]
    outstanding_mmu: dict[str, int]  # by replica


class DemandReports:
    """`addresses`: one for each router that there should be."""

    def __init__(self, addresses: Sequence[str]) -> None:
        self._pools = [Pool(address) for address in addresses]

    async def ask(self) -> list[Reports | None]:
        """One for each router, None of one that did not answer."""
        async with asyncio.TaskGroup() as group:
            asked = [group.create_task(_ask(pool)) for pool in self._pools]
        return [task.result() for task in asked]

    def close(self) -> None:
        for pool in self._pools:
            pool.close()


async def _ask(pool: Pool) -> Reports | None:
    try:
        reply = await fetch(pool, "GET", b"/demand", timeout_s=ANSWER_TIMEOUT_S)
        if reply.status != 200:
            return None
        report = msgspec.json.decode(reply.body, type=DemandReport)
    except (SteelyardError, msgspec.MsgspecError):
        return None
    totals = {(entity.endpoint, entity.served_entity): _totals(entity) for entity in report.entities}
    return Reports(totals, report.outstanding_mmu)


def outstanding_mmu(told: Sequence[Reports | None]) -> Counter[str]:
    """By replica, of all routers that answered."""
    found = Counter[str]()
    for report in told:
        found.update({} if report is None else report.outstanding_mmu)
    return found


def _totals(told: EntityDemand) -> Totals:
    return Totals(
        running=told.running,
        running_mmu=told.running_mmu,
        queued=told.queued,
        queued_mmu=told.queued_mmu,
        arrived=told.arrived_total,
        settled=told.settled_total,
        settled_mmu=told.settled_mmu_total,
        busy_s=told.busy_s_total,
        busy_mmu_s=told.busy_mmu_s_total,
    )
