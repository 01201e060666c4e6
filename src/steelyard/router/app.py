"""The router's request handler: path → action, and every refusal → one JSON reply.

`check_head` is called by the public server before it takes a body, `handle` for each complete request, `sweep` by the
process ten times a second. It owns what all requests share: ledger, table, dispatcher, identity, the set of live
requests.
"""

from __future__ import annotations

import asyncio
import time
from random import Random
from typing import Final

import msgspec

from steelyard.contracts.snapshot import Snapshot
from steelyard.errors import (
    BadRequest,
    InvalidParameter,
    MethodNotAllowed,
    NotFound,
    PayloadTooLarge,
    RateLimited,
    SteelyardError,
    Unavailable,
)
from steelyard.observe.logs import get_logger
from steelyard.policy.ledger import Ledger
from steelyard.router.body_fields import BodyFields, NamedFields, decode_named
from steelyard.router.choosers import Choosers
from steelyard.router.dispatch import Dispatcher, no_such_entity, stopped_endpoint, unknown_endpoint
from steelyard.router.exchange import Exchange
from steelyard.router.forward import Forward, is_for_control
from steelyard.router.identity import Identity
from steelyard.router.inbound import Inbound, new_request_id, read_authorization, read_inbound
from steelyard.router.leases import Leases
from steelyard.router.measures import NO_ENDPOINT, RATE_LIMIT, RouterMeasures
from steelyard.router.models import get_model, list_models
from steelyard.router.open_inference import describe
from steelyard.router.queue import WaitingTotals
from steelyard.router.table import Endpoint, Route, RoutingTable
from steelyard.settings import Settings
from steelyard.wire.client import Pool
from steelyard.wire.server import Headers, Reply, Request

log = get_logger()

_DISCOVERY: Final = "/.well-known/databricks-config"
_LIVE: Final = "/v2/health/live"
_READY: Final = "/v2/health/ready"
_OPEN: Final = frozenset(("/livez", "/readyz", _LIVE, _READY, _DISCOVERY))
_METHODS: Final = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")
JSON: Final = [(b"content-type", b"application/json")]


class Router:
    """One per process, on its loop. `rng` breaks ties and splits traffic; `index` is its place among the routers."""

    def __init__(self, settings: Settings, rng: Random, index: int = 0) -> None:
        self.settings = settings
        self.loop = asyncio.get_running_loop()
        self.ledger = Ledger()
        self.measures = RouterMeasures()
        self.totals = WaitingTotals()
        self.table = RoutingTable(self.ledger, self.measures, self.totals, Choosers(settings, self.ledger, rng))
        self.identity = Identity()
        self.dispatcher = Dispatcher(self.totals, self.identity, settings.queue_limit, rng)
        self.live: set[Exchange | Forward] = set()
        self.control_pool = Pool(settings.control_address)
        self.leases: Leases | None = None
        if settings.routers > 1:
            self.leases = Leases(self.table, self.control_pool, index, settings.routers)
            self.table.source_of = self.leases.source_of
        self.draining = False
        self._random = rng.random
        self._timeout_s = settings.request_timeout_s
        self._refused = self.measures.endpoint(NO_ENDPOINT)

    # --- the process's side

    def apply(self, snapshot: Snapshot) -> None:
        """Make a snapshot the routing in force. Raises what is wrong with it, and then has changed nothing."""
        try:
            entities = self.table.apply(snapshot)
        except Exception:
            self.measures.snapshots_refused.labels().inc()
            raise
        self.identity.replace(snapshot.auth, snapshot.tokens)
        for entity in entities:
            self.dispatcher.reconsider(entity)
        self.measures.snapshot_version.labels().set(snapshot.version)

    def note_control(self, connected: bool) -> None:
        self.measures.control_up.labels().set(float(connected))

    def sweep(self) -> None:
        """End what is past its deadline, and wake lines whose replicas' marks have expired."""
        now_s = time.monotonic()
        for exchange in [exchange for exchange in self.live if exchange.deadline_s <= now_s]:
            try:
                exchange.on_deadline()
            except Exception:  # its fault must not stop the others
                self._contain(exchange)
        if self.totals.requests:
            waiting = [entity for endpoint in self.table.endpoints.values() for entity in endpoint.entities]
            for entity in waiting:
                if entity.line:
                    self.dispatcher.wake(entity)

    def _contain(self, exchange: Exchange | Forward) -> None:
        """It could not be ended as it should: end it as it can be, and not with every sweep anew."""
        try:
            exchange.on_fault()
        except Exception:
            log.exception("exchange_cut_off", path=exchange.request.path)
            self.live.discard(exchange)
            exchange.reply.abort()

    # --- the clients' side

    def check_head(self, path: str, headers: Headers) -> None:
        """Raises the error to refuse with before the body: nothing is taken from who has no token."""
        try:
            if path in _OPEN:
                raise PayloadTooLarge(f"{path} takes no body.")
            self._principal(read_authorization(headers))
        except SteelyardError as error:
            self._refused.count(error.status)
            raise

    def handle(self, request: Request, reply: Reply) -> None:
        route = self.table.routes.get(request.path)
        if route is None and request.path in _OPEN:
            self._answer_open(request, reply)
            return
        request_id = b""
        try:
            inbound = read_inbound(request)
            request_id = inbound.request_id or new_request_id()
            principal = self._principal(inbound.authorization)
            if route is not None and request.method in route.methods:
                self._query(route, inbound, request_id, principal, request, reply)
            else:
                self._answer_other(route, inbound, request_id, principal, request, reply)
        except SteelyardError as error:
            self._refuse(reply, error, request_id)

    def _principal(self, authorization: bytes | None) -> str:
        if self.table.version is None:
            raise Unavailable("The router has no routing yet; it is starting.", retry_after_s=1.0)
        return self.identity.principal(authorization)

    def _query(  # noqa: PLR0917
        self, route: Route, inbound: Inbound, request_id: bytes, principal: str, request: Request, reply: Reply
    ) -> None:
        """A request for a model: hand it to an exchange."""
        endpoint = route.endpoint
        fields: BodyFields | None = None
        if endpoint is None:
            fields = _named_fields(request.body)
            endpoint = self.table.endpoints.get(fields.model)
            if endpoint is None:
                raise unknown_endpoint(fields.model)
        now_s = time.monotonic()
        try:
            if endpoint.stopped:
                raise stopped_endpoint(endpoint.name)
            entity = route.entity or endpoint.entity_for(self._random())
            if entity is None:
                raise Unavailable(
                    f"Endpoint {endpoint.name!r} has no served entity that takes traffic.", retry_after_s=5.0
                )
            timeout_s = self._timeout_s
            if inbound.timeout_ms is not None:
                timeout_s = min(timeout_s, inbound.timeout_ms / 1000)
        except SteelyardError as error:
            self._refuse_query(endpoint, reply, error, request_id)
            return
        deadline_s = now_s + timeout_s
        exchange = Exchange(
            self, route, entity, inbound, request_id, request, reply, now_s, deadline_s, principal, fields
        )
        self.live.add(exchange)  # before it can be charged: whatever happens, somebody will end it
        reply.on_disconnect = exchange.on_client_gone
        try:
            self.dispatcher.submit(exchange)
        except SteelyardError as error:
            self.live.discard(exchange)
            if exchange.budget is not None:
                exchange.budget.end(error.status, False, None, 0, now_s)
            self._refuse_query(endpoint, reply, error, request_id)
        except Exception:
            exchange.on_fault()

    @staticmethod
    def _refuse_query(endpoint: Endpoint, reply: Reply, error: SteelyardError, request_id: bytes) -> None:
        reply.send_error(error, [(b"x-request-id", request_id)])
        endpoint.measures.count(error.status, RATE_LIMIT if isinstance(error, RateLimited) else "")

    def _answer_other(  # noqa: PLR0917
        self,
        route: Route | None,
        inbound: Inbound,
        request_id: bytes,
        principal: str,
        request: Request,
        reply: Reply,
    ) -> None:
        """Everything but queries. Raises the error to refuse with."""
        path = request.path
        if request.method not in _METHODS:
            raise MethodNotAllowed(f"{request.method} is not supported here.", allow=", ".join(_METHODS))
        if route is not None:
            raise MethodNotAllowed(f"{path} takes {route.methods[0]} only.", allow=", ".join(route.methods))
        if is_for_control(path):
            Forward(
                self,
                request,
                reply,
                head_lines=inbound.lines,
                principal=principal,
                request_id=request_id,
                deadline_s=time.monotonic() + self._timeout_s,
            ).begin()
            return
        if path == "/v1/models" or path.startswith("/v1/models/"):
            if request.method not in {"GET", "HEAD"}:
                raise MethodNotAllowed(f"{path} takes GET only.", allow="GET, HEAD")
            name = path[len("/v1/models/") :]
            body = get_model(self.table, name) if name else list_models(self.table)
            reply.send(200, [*JSON, (b"x-request-id", request_id)], body)
            return
        answer = describe(self.table, path)
        if answer is not None:
            if request.method not in {"GET", "HEAD"}:
                raise MethodNotAllowed(f"{path} takes GET only.", allow="GET, HEAD")
            reply.send(200, [*JSON, (b"x-request-id", request_id)], answer)
            return
        raise self._not_found(path)

    def _not_found(self, path: str) -> NotFound:
        match path.split("/"):
            case ["", "serving-endpoints", name, *rest] if name:
                if name not in self.table.endpoints:
                    return unknown_endpoint(name)
                if len(rest) == 3 and rest[0] == "served-models":
                    return no_such_entity(name, rest[1])
            case ["", "v2", "models", name, *rest] if name:
                if name not in self.table.endpoints:
                    return unknown_endpoint(name)
                if len(rest) > 1 and rest[0] == "versions":
                    return no_such_entity(name, rest[1])
        return NotFound(f"Nothing is served at {path[:200]!r}.")

    def _answer_open(self, request: Request, reply: Reply) -> None:
        """What needs no token: liveness and readiness of this router alone, and where official clients look first.

        They ask for login servers and the like; an empty answer makes them use the token that they were given.
        """
        if request.method not in {"GET", "HEAD"}:
            self._refuse(reply, MethodNotAllowed(f"{request.path} takes GET only.", allow="GET, HEAD"), b"")
        elif request.path == _DISCOVERY:
            reply.send(200, JSON, b"{}")
        elif request.path in {"/readyz", _READY} and (self.table.version is None or self.draining):
            reply.send_error(Unavailable("The router has no routing yet, or is about to stop.", retry_after_s=1.0))
        elif request.path in {_LIVE, _READY}:
            reply.send(200, JSON, b'{"live":true}' if request.path == _LIVE else b'{"ready":true}')
        else:
            reply.send(200, [(b"content-type", b"text/plain")], b"ok\n")

    def _refuse(self, reply: Reply, error: SteelyardError, request_id: bytes) -> None:
        reply.send_error(error, [(b"x-request-id", request_id)] if request_id else [])
        self._refused.count(error.status)


def _named_fields(body: bytes) -> NamedFields:
    """Of an OpenAI request, whose `model` names an endpoint. Raises BadRequest or InvalidParameter."""
    try:
        return decode_named(body)
    except msgspec.ValidationError as error:
        raise InvalidParameter(
            "The body must be a JSON object whose 'model' is the name of an endpoint.", param="model"
        ) from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadRequest(f"The body is not valid JSON: {error}.") from error
    except RecursionError:
        raise BadRequest("The body is nested too deeply.") from None
