"""Who goes now, who waits, who is refused: the acting side of `policy.routing` and `policy.admission`.

An exchange submits itself; a settled request, a new snapshot and the sweep wake the next in line. Nobody overtakes a
line but those who had left it already and whose replica failed. Requests that come back or move to another entity may
take its line beyond the queue limit; when it is full, those of lower classes and of who has most waiting give way to
others (`policy.fair_queue`). This is the only caller of a chooser,
and so the only place where load is charged.
"""

from __future__ import annotations

import sys
import time
from random import Random
from typing import TYPE_CHECKING, Final

from steelyard.errors import InvalidState, NotFound, RateLimited, SteelyardError, TooManyRequests, Unavailable
from steelyard.policy.admission import Admission, Backlog, Verdict, Work, admit, drain_rate
from steelyard.policy.rate_limits import Limiter, Spent
from steelyard.policy.waiting import Standing
from steelyard.router.budget import reserve
from steelyard.router.identity import Identity
from steelyard.router.queue import WaitingTotals
from steelyard.router.table import Endpoint, Entity

if TYPE_CHECKING:
    from steelyard.router.exchange import Exchange

BUFFERED_LIMIT_BYTES: Final = 512 * 1024 * 1024
_REFUSALS: Final[dict[Verdict, type[SteelyardError]]] = {
    Verdict.NO_CAPACITY: Unavailable,
    Verdict.BUDGET_SPENT: RateLimited,
}


class Dispatcher:
    """`rng` draws the served entity for requests whose own one was removed."""

    def __init__(self, totals: WaitingTotals, identity: Identity, waiting_limit: int, rng: Random) -> None:
        self._rng = rng
        self._identity = identity
        self._totals = totals
        self._waiting_limit = waiting_limit

    def submit(self, exchange: Exchange) -> None:
        """Start a new exchange, or let it wait. Raises TooManyRequests or Unavailable when it may not; what it has
        reserved of its limits by then is for the caller to give back."""
        entity = exchange.entity
        now_s = exchange.started_s
        ask = exchange.weigh()
        if entity.endpoint.limiter is not None:
            self._reserve(exchange, entity.endpoint.limiter)
        entity.flow.arrived += 1
        if not entity.line:
            decision = entity.chooser.choose(entity.replicas, now_s, ask)
            if decision is not None:
                exchange.go(decision)
                return
        admission = self._admit(exchange)
        if admission.verdict is not Verdict.WAIT and not admission.line_is_full:
            raise refusal(entity.endpoint, admission)
        gave_way = entity.line.offer(exchange, self._waiting_limit)
        if gave_way is None:
            raise refusal(entity.endpoint, admission)
        exchange.wait()
        for gone in gave_way:
            gone.refuse(displaced(gone.endpoint, admission))

    def _reserve(self, exchange: Exchange, limiter: Limiter) -> None:
        """Take what it may need of its limits, until it ends. Raises RateLimited."""
        principal = exchange.principal
        outcome = reserve(limiter, principal, self._identity.groups(principal), exchange.weight.ask, exchange.started_s)
        if isinstance(outcome, Spent):
            raise refusal(exchange.endpoint, self._admit(exchange, outcome))
        exchange.budget = outcome

    def _admit(self, exchange: Exchange, spent: Spent | None = None) -> Admission:
        """Whether it may wait, or why not. `spent`: the limit of its own that keeps it out."""
        entity = exchange.entity
        backlog = Backlog(
            waiting=len(entity.line),
            waiting_limit=self._waiting_limit,
            buffered_bytes=self._totals.body_bytes,
            buffered_limit_bytes=BUFFERED_LIMIT_BYTES,
            replicas=len(entity.replicas),
            recovering=entity.recovering,
        )
        return admit(
            backlog,
            len(exchange.request.body),
            None,
            work=_work(exchange, exchange.started_s),
            spent=spent,
            draw=self._rng.random(),
        )

    def resubmit(self, exchange: Exchange) -> None:
        """Its replica failed before it answered: go elsewhere, or wait at the front if another can come."""
        if exchange.entity.gone or exchange.endpoint.stopped:
            self._rehome(exchange)
        else:
            self._place(exchange, first=True)

    def wake(self, entity: Entity) -> None:
        """Let the first in line go, as many as replicas can take."""
        now_s = time.monotonic()
        while entity.line:
            ask = entity.line.first().weight.ask
            decision = entity.chooser.choose(entity.replicas, now_s, ask)
            if decision is None:
                return
            entity.line.next().go(decision)

    def reconsider(self, entity: Entity) -> None:
        """A snapshot changed the entity: those in its line go on, move to another entity, or learn that they cannot."""
        if entity.gone or entity.endpoint.stopped:
            while entity.line:
                self._rehome(entity.line.send_away())
        elif entity.replicas or entity.recovering:
            self.wake(entity)
        else:
            while entity.line:
                entity.line.send_away().refuse(no_replica(entity.endpoint))

    def _place(self, exchange: Exchange, *, first: bool) -> None:
        """Go, or wait (`first`: before the line, else behind it), or learn that no replica can come."""
        entity = exchange.entity
        decision = None
        if first or not entity.line:
            decision = entity.chooser.choose(entity.replicas, time.monotonic(), exchange.weight.ask)
        if decision is not None:
            exchange.go(decision)
        elif entity.replicas or entity.recovering:
            exchange.wait()
            entity.line.join(exchange, first=first)
        else:
            exchange.refuse(no_replica(entity.endpoint))

    def _rehome(self, exchange: Exchange) -> None:
        """Its entity is no more: the endpoint's others take it, by their shares, unless the client named this one."""
        endpoint = exchange.endpoint
        if endpoint.gone:
            exchange.refuse(unknown_endpoint(endpoint.name))
        elif endpoint.stopped:
            exchange.refuse(stopped_endpoint(endpoint.name))
        else:
            heir = None if exchange.pinned else endpoint.entity_for(self._rng.random())
            if heir is None:
                exchange.refuse(NotFound(f"The served entity was removed from endpoint {endpoint.name!r}."))
            else:
                exchange.entity.line.leave(exchange)
                exchange.entity = heir
                exchange.weigh()
                self._place(exchange, first=False)


def _work(exchange: Exchange, now_s: float) -> Work:
    """What waits for the entity already, as this request sees it."""
    entity, priority = exchange.entity, exchange.priority
    line, rate = entity.line, entity.rate
    settled = above = None
    if line:
        settled = rate.mmu_per_s(line.busy_since_s, now_s)
        above = rate.mmu_per_s(line.busy_since_s, now_s, above=priority)
    return Work(
        cost_mmu=exchange.weight.ask.mmu,
        waiting_mmu=line.waiting_mmu,
        waiting_limit_mmu=sys.maxsize,
        ahead_mmu=line.ahead_mmu(priority),
        drained_mmu_per_s=drain_rate(len(entity.replicas), settled, above or 0.0),
    )


def refusal(endpoint: Endpoint, admission: Admission) -> SteelyardError:
    """The error that tells a client why it may not wait."""
    message = f"Endpoint {endpoint.name!r} cannot take the request: {admission.reason}"
    kind = _REFUSALS.get(admission.verdict, TooManyRequests)
    return kind(message, retry_after_s=admission.retry_after_s)


def displaced(endpoint: Endpoint, admission: Admission) -> TooManyRequests:
    """The error of one that waited and had to give way."""
    message = f"Endpoint {endpoint.name!r} is contended, and while the request waited {Standing.DISPLACED}."
    return TooManyRequests(message, retry_after_s=admission.retry_after_s)


def no_replica(endpoint: Endpoint) -> Unavailable:
    return Unavailable(f"No replica serves {endpoint.name!r} now.", retry_after_s=1.0)


def unknown_endpoint(name: str) -> NotFound:
    return NotFound(f"There is no endpoint named {name[:100]!r}.")


def no_such_entity(endpoint: str, name: str) -> NotFound:
    return NotFound(f"Endpoint {endpoint!r} has no served entity named {name[:100]!r}.")


def stopped_endpoint(name: str) -> InvalidState:
    return InvalidState(f"Endpoint {name!r} is stopped; start it to query it.")
