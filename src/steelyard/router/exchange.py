"""One request's life at a replica: admitted → sent → streamed → settled, exactly once, whatever happens.

`app.py` makes one per query; `dispatch.py` tells it when and where to go; the client's connection, the replica's
connection and the deadline sweep call it back. There is no task: every step is one of these calls, and `_end` is the
only way out.
"""

from __future__ import annotations

import time
from enum import Enum
from typing import TYPE_CHECKING, Final

from steelyard.contracts.replica import CLIENT_GONE, DRAINING_HEADER
from steelyard.contracts.usage import USAGE_HEADER, RequestUsage
from steelyard.errors import BadUpstream, DeadlineExceeded, InternalError, SteelyardError
from steelyard.observe.logs import get_logger
from steelyard.policy.marks import CONNECT_LEASE_S, DRAINING_LEASE_S, LOST_LEASE_S
from steelyard.policy.routing import Ask, Decision
from steelyard.policy.waiting import Place, Priority
from steelyard.router.body_fields import BodyFields
from steelyard.router.budget import Budget
from steelyard.router.charge import Charge, with_model_units
from steelyard.router.inbound import Inbound
from steelyard.router.table import Endpoint, Entity, Replica, Route
from steelyard.router.weigh import Price, Weight
from steelyard.wire.client import FailureKind, ResponseSink, UpstreamConnection, UpstreamFailure
from steelyard.wire.hop import request_tail
from steelyard.wire.request import Headers, Request
from steelyard.wire.server import Reply
from steelyard.wire.sse import CONTENT_TYPE, StreamWatch, error_event

if TYPE_CHECKING:
    from steelyard.router.app import Router

_OWN: Final = frozenset((b"x-request-id", b"served-model-name", DRAINING_HEADER[0], USAGE_HEADER))
_HEAD: Final = b"%b %b HTTP/1.1\r\nhost: replica\r\n%bx-steelyard-priority: %b\r\n%b"
_PRIORITIES: Final = [priority.name.lower().encode() for priority in Priority]
_ENDS_WITH_DONE: Final = frozenset((b"/v1/chat/completions", b"/v1/completions"))


log = get_logger()


class State(Enum):
    WAITING = "waiting"  # in its entity's line
    SENT = "sent"  # at a replica, which has not answered
    STREAMING = "streaming"  # the head of the answer has gone to the client
    DONE = "done"


# Reading a member from its class costs too much.
_WAITING: Final = State.WAITING
_SENT: Final = State.SENT
_STREAMING: Final = State.STREAMING
_DONE: Final = State.DONE


class Exchange(ResponseSink):
    """In `router.live` from its admission to its end."""

    __slots__ = (
        "_charge",
        "_fields",
        "_inbound",
        "_last_piece_s",
        "_queued_s",
        "_replica",
        "_request_id",
        "_retried",
        "_route",
        "_router",
        "_state",
        "_took",
        "_upstream",
        "_watch",
        "budget",
        "deadline_s",
        "endpoint",
        "entity",
        "place",
        "principal",
        "priority",
        "reply",
        "request",
        "settled_mmu",
        "started_s",
        "weight",
    )

    def __init__(  # noqa: PLR0917 - positional on the hot path
        self,
        router: Router,
        route: Route,
        entity: Entity,
        inbound: Inbound,
        request_id: bytes,
        request: Request,
        reply: Reply,
        started_s: float,
        deadline_s: float,
        principal: str,
        fields: BodyFields | None = None,
    ) -> None:
        self._router = router
        self._route = route
        self._inbound = inbound
        self._request_id = request_id
        self.endpoint: Endpoint = entity.endpoint
        self.entity = entity
        self.request = request
        self.reply = reply
        self.started_s = started_s
        self.deadline_s = deadline_s
        self.principal = principal
        self.priority = inbound.priority
        self.place: Place[Exchange] | None = None  # in its entity's line, or since it has been there
        self._state = _WAITING
        self._queued_s = 0.0  # since when it waits; 0: it does not
        self._fields = fields  # of the body, where they were read already
        self._charge: Charge | None = None
        self.weight: Weight
        self.settled_mmu = 0  # of all its attempts
        self.budget: Budget | None = None  # where its endpoint has rate limits
        self._took: RequestUsage | None = None  # by its last attempt, if a model worked on that
        self._replica: Replica | None = None
        self._upstream: UpstreamConnection | None = None
        self._retried = False
        self._watch: StreamWatch | None = None  # of an event stream
        self._last_piece_s = 0.0

    @property
    def pinned(self) -> bool:
        """The client named the served entity, so that the request may not move to another one."""
        return self._route.entity is not None

    # --- called by the dispatcher

    def weigh(self) -> Ask:
        """What it weighs at its entity: before it is sent, and again should it move to another."""
        entity = self.entity
        self.weight = entity.weigher.weigh(
            self.request.body, self._fields, self.principal, self._inbound.session, len(entity.replicas) > 1
        )
        return self.weight.ask

    def wait(self) -> None:
        self._state = _WAITING
        self._queued_s = time.monotonic()

    def go(self, decision: Decision[Replica]) -> None:
        """Send the request to the replica that was chosen and charged."""
        now_s = self.started_s if self._replica is None and not self._queued_s else time.monotonic()
        self._state = _SENT
        self._charge = Charge(decision, self.entity, self.weight, self.principal)
        self._replica = decision.replica
        self._router.measures.decisions[decision.reason].value += 1
        try:
            self._send(decision.replica, now_s)
        except Exception:  # whoever called, it must not fail for this request, nor may its charge stay
            self.on_fault()

    def _send(self, replica: Replica, now_s: float) -> None:
        if self._queued_s:
            self.endpoint.measures.queue.observe(now_s - self._queued_s)
            self._queued_s = 0.0
        body = self.request.body
        left_ms = max(1, int((self.deadline_s - now_s) * 1000))
        route = self._route
        target = route.target
        if self.request.query:
            target = b"%b?%b" % (target, self.request.query.encode())
        head = _HEAD % (
            route.verb,
            target,
            self._inbound.lines,
            _PRIORITIES[self.priority],
            request_tail(len(body), self._request_id, left_ms),
        )
        self._upstream = replica.pool.send(self, head, body)

    def refuse(self, error: SteelyardError) -> None:
        """End it with an error before any replica answered. It is not in a line any more."""
        self._release()
        self.reply.send_error(error, [(b"x-request-id", self._request_id)])
        self._end(error.status)

    # --- called by the client's connection and the sweep

    def on_client_gone(self) -> None:
        self._leave()
        self._end(CLIENT_GONE, soon=True)

    def on_deadline(self) -> None:
        where = "waiting for a free replica" if self._state is _WAITING else "waiting for the model"
        self._give_up(DeadlineExceeded(f"The deadline passed while the request was {where}."))

    def on_fault(self) -> None:
        """While an exception is handled that nobody expected: end the request, and tell only the log why."""
        log.exception("exchange_failed", endpoint=self.endpoint.name, request_id=self._request_id.decode())
        if self._state is not _DONE:
            self._give_up(InternalError("The request could not be handled."))

    def _give_up(self, error: SteelyardError) -> None:
        started = self._state is _STREAMING
        self._leave()
        if started:
            self._break_off(error)
        else:
            self.reply.send_error(error, [(b"x-request-id", self._request_id)])
            self._end(error.status, soon=True)

    def _leave(self) -> None:
        """Get out of the line, or off the replica, which learns of it by the closed connection."""
        upstream = self._upstream
        self._release()  # before anything that could fail
        if self._state is _WAITING:
            if self.place is not None:
                self.entity.line.leave(self)
        elif upstream is not None:
            upstream.cancel()

    # --- called by the replica's connection

    def on_whole(self, status: int, headers: Headers, body: bytes) -> None:
        self._upstream = None  # its connection is free for others already
        passed = self._pass_headers(status, headers)
        if passed is None:
            return
        if self._watch is not None:
            self._begin_stream(status, passed, None)
            self.on_piece(body)
            self.on_end()
            return
        price = self._release(status)
        if price is not None:
            passed.append((b"x-model-units", price.label))
            if self.weight.choices:
                body = with_model_units(body, price)
        self.reply.send(status, passed, body)
        self._end(status)

    def on_head(self, status: int, headers: Headers, content_length: int | None) -> None:
        passed = self._pass_headers(status, headers)
        if passed is not None:
            self._begin_stream(status, passed, content_length)

    def _begin_stream(self, status: int, headers: Headers, content_length: int | None) -> None:
        self._state = _STREAMING
        reply = self.reply
        upstream = self._upstream
        if upstream is not None:
            reply.on_pause = upstream.pause
            reply.on_resume = upstream.resume
        reply.start(status, headers, content_length)

    def on_usage(self, usage: bytes) -> None:
        if self._charge is not None:
            self._charge.usage = usage

    def on_piece(self, data: bytes) -> None:
        watch = self._watch
        if watch is not None and data:
            before = watch.events
            watch.see(data)
            charge = self._charge
            if charge is not None:
                if not self._last_piece_s:
                    charge.begin_stream()
                charge.stream(watch.events - before)
            now_s = time.monotonic()
            measures = self.endpoint.measures
            if self._last_piece_s:
                measures.itl.observe(now_s - self._last_piece_s)
            else:
                measures.ttft.observe(now_s - self.started_s)
            self._last_piece_s = now_s
        self.reply.write(data)

    def on_end(self) -> None:
        watch = self._watch
        if watch is not None and self.reply.status == 200 and self._ends_with_done() and not watch.done:
            self._release()
            self._break_off(BadUpstream("The replica ended the stream before it was complete."))
            return
        self._release(self.reply.status)
        self.reply.finish()
        self._end(self.reply.status)

    def on_failure(self, failure: UpstreamFailure) -> None:
        self._upstream = None
        if self._state is _DONE:
            return
        if self._state is _STREAMING:
            self._release()
            self._break_off(BadUpstream("The replica failed while it was answering; the answer is incomplete."))
            return
        replica = self._replica
        assert replica is not None
        now_s = time.monotonic()
        if failure.kind is FailureKind.CONNECT:  # it was not sent: as often as the deadline allows
            replica.mark.put(now_s, CONNECT_LEASE_S, "it cannot be connected to")
            replica.pool.discard_idle()
        elif failure.kind is not FailureKind.MALFORMED and not failure.bytes_seen and not self._retried:
            self._retried = True  # stale connections too: replicas keep idle ones, so it may be this request that kills
            replica.mark.put(now_s, LOST_LEASE_S, "a connection was lost")
            replica.pool.discard_idle()
        else:
            self.refuse(
                BadUpstream("The replica failed before it answered, and the request could not be saved elsewhere.")
            )
            return
        self._elsewhere(failure.kind.value)

    def _elsewhere(self, reason: str) -> None:
        self._release(elsewhere=True)
        self.endpoint.measures.retried(reason)
        self._router.dispatcher.resubmit(self)

    # --- insides

    def _pass_headers(self, status: int, headers: Headers) -> Headers | None:
        """The replica's headers turned into the client's; None when it is draining and the request goes elsewhere."""
        replica = self._replica
        assert replica is not None
        if status == 503 and DRAINING_HEADER in headers:
            if self._upstream is not None:
                self._upstream.cancel()
                self._upstream = None
            replica.mark.put(time.monotonic(), DRAINING_LEASE_S, "it is draining")
            self._elsewhere("draining")
            return None
        replica.mark.answered()
        by_name = dict(headers)
        usage = by_name.get(USAGE_HEADER)
        if usage is not None and self._charge is not None and not self._charge.usage:  # a trailer may have come before
            self._charge.usage = usage
        if by_name.get(b"content-type", b"").startswith(CONTENT_TYPE):
            self._watch = StreamWatch()
        if not _OWN.isdisjoint(by_name):
            headers = [pair for pair in headers if pair[0] not in _OWN]
        headers.append((b"x-request-id", self._request_id))
        headers.append((b"served-model-name", self.entity.wire_name))
        return headers

    def _ends_with_done(self) -> bool:
        task = self.entity.task
        return self._route.target in _ENDS_WITH_DONE or (task is not None and task.startswith("llm/v1/"))

    def _break_off(self, error: SteelyardError) -> None:
        """The answer has begun and cannot be completed: say so within an event stream, and never end it cleanly."""
        if self._watch is not None:
            event = error_event(error)
            self.reply.write(event if self._watch.at_boundary else b"\n\n" + event)
        self.reply.abort()
        self._end(error.status, soon=True)

    def _release(self, status: int = 0, *, elsewhere: bool = False) -> Price | None:
        """Settle the attempt, if there is one. `status`: of its answer, if that is complete; `elsewhere`: there will be
        another. The result is what it took, if it succeeded and the replica says so."""
        self._upstream = None
        charge, self._charge = self._charge, None
        if charge is None:
            return None
        now_s = time.monotonic()
        served = not elsewhere and not 400 <= status < 500  # what is wrong with a request is found before it works
        settled_mmu = charge.settle(now_s, status == 200, served)
        self.settled_mmu += settled_mmu
        entity, measures = self.entity, self.endpoint.measures
        entity.rate.settled(self.priority, settled_mmu, now_s)
        measures.model_units.value += settled_mmu / 1000
        measures.model_unit_seconds.value += settled_mmu / 1000 * charge.took_s
        price = charge.price
        if price is not None:
            measures.took(price.usage)
        if served:
            self._took = charge.thought() if price is None else price.usage
        return price

    def _end(self, status: int, *, soon: bool = False) -> None:
        """The one way out: count it, forget it, and wake the next in line (`soon`: after the replica was told)."""
        self._state = _DONE
        router = self._router
        router.live.discard(self)
        if self.place is not None:
            self.entity.line.leave(self)
        now_s = time.monotonic()
        if self._replica is not None:
            self.entity.tally.add(self.principal, status, self._took, self.settled_mmu)
        if self.budget is not None:
            self.budget.end(status, self._replica is not None, self._took, self.settled_mmu, now_s)
        measures = self.endpoint.measures
        measures.count(status)
        measures.latency.observe(now_s - self.started_s)
        if self.entity.line:
            if soon:  # a cancelled connection closes in the loop's next turn: not before that is its place free
                router.loop.call_soon(router.dispatcher.wake, self.entity)
            else:
                router.dispatcher.wake(self.entity)
