"""The router's metrics, with labels bounded by the endpoints of the snapshot.

`EndpointMeasures` holds an endpoint's series, so that the hot path adds to plain numbers. Nothing here decides.
"""

from __future__ import annotations

from typing import Final

from steelyard.contracts.replica import CLIENT_GONE
from steelyard.contracts.usage import RequestUsage
from steelyard.observe.metrics import Counter, Histogram, MetricSet
from steelyard.policy.routing import Reason

NO_ENDPOINT: Final = ""  # label of requests that were refused before an endpoint was known
_SHORT_BOUNDS_S: Final = (
    0.001, 0.0025, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0,
)  # fmt: skip

_TOOK: Final = {
    "input_tokens": "Tokens of prompts, cached ones included,",
    "cached_tokens": "Tokens of prompts that were found in a cache,",
    "output_tokens": "Generated tokens",
    "image_tokens": "Tokens that stand for images,",
    "rows": "Rows of classic models' inputs",
}
RATE_LIMIT: Final = "rate_limit"  # cause of a 429 that is no lack of capacity
_ERROR_CLASSES: Final = {
    429: "contended",
    CLIENT_GONE: "client_gone",
    502: "replica",
    503: "no_capacity",
    504: "deadline",
}


class RouterMeasures:
    """One per router process."""

    def __init__(self) -> None:
        self.set = metrics = MetricSet()
        self.requests = metrics.counter(
            "steelyard_router_requests", "Finished requests by status (499: the client left).", ("endpoint", "code")
        )
        self.errors = metrics.counter(
            "steelyard_router_errors", "Requests that failed, by cause.", ("endpoint", "cause")
        )
        self.latency = metrics.histogram(
            "steelyard_router_request_seconds", "From a complete request to the end of its reply.", ("endpoint",)
        )
        self.queue = metrics.histogram(
            "steelyard_router_queue_seconds", "Time that a request waited for a replica.", ("endpoint",)
        )
        self.ttft = metrics.histogram(
            "steelyard_router_time_to_first_token_seconds",
            "From a complete request to the first piece of its event stream.",
            ("endpoint",),
            _SHORT_BOUNDS_S,
        )
        self.itl = metrics.histogram(
            "steelyard_router_inter_token_seconds",
            "Between two pieces of an event stream.",
            ("endpoint",),
            _SHORT_BOUNDS_S,
        )
        self.retries = metrics.counter(
            "steelyard_router_retries", "Attempts that were repeated elsewhere, by reason.", ("endpoint", "reason")
        )
        decisions = metrics.counter(
            "steelyard_router_decisions", "Choices of a replica, by what decided them.", ("reason",)
        )
        self.decisions: dict[str, Counter] = {reason: decisions.labels(reason.name.lower()) for reason in Reason}
        self.model_units = metrics.counter(
            "steelyard_router_model_units", "Model units that requests took, as settled.", ("endpoint",)
        )
        self.model_unit_seconds = metrics.counter(
            "steelyard_router_model_unit_seconds",
            "Model units that requests took, each times how long its request was at a replica.",
            ("endpoint",),
        )
        self.took = {
            name: metrics.counter(
                f"steelyard_router_{name}", f"{what} of successful requests, as reported.", ("endpoint",)
            )
            for name, what in _TOOK.items()
        }
        self.in_flight = metrics.gauge("steelyard_router_in_flight", "Requests at a replica now.", ("endpoint",))
        self.waiting = metrics.gauge("steelyard_router_queued", "Requests that wait for a replica now.", ("endpoint",))
        self.snapshot_version = metrics.gauge("steelyard_router_snapshot_version", "Version of the routing in force.")
        self.snapshots_refused = metrics.counter(
            "steelyard_router_snapshots_refused",
            "Attempts to apply a snapshot that changed nothing, for it was faulty.",
        )
        self.control_up = metrics.gauge("steelyard_router_control_up", "1 while the control plane answers.")

    def endpoint(self, name: str) -> EndpointMeasures:
        return EndpointMeasures(self, name)

    def forget(self, name: str) -> None:
        """For `EndpointMeasures`: drop all series of an endpoint."""
        for counters in (
            self.requests,
            self.errors,
            self.retries,
            self.model_units,
            self.model_unit_seconds,
            *self.took.values(),
        ):
            counters.remove(name)
        for histograms in (self.latency, self.queue, self.ttft, self.itl):
            histograms.remove(name)
        for gauges in (self.in_flight, self.waiting):
            gauges.remove(name)


class EndpointMeasures:
    """The series of one endpoint, until `forget`; what still runs then adds to numbers that nobody sees."""

    __slots__ = (
        "_codes",
        "_gone",
        "_measures",
        "_took",
        "itl",
        "latency",
        "model_unit_seconds",
        "model_units",
        "name",
        "queue",
        "ttft",
    )

    def __init__(self, measures: RouterMeasures, name: str) -> None:
        self._measures = measures
        self._codes: dict[int, Counter] = {}
        self._gone = False
        self._took: dict[str, Counter] = {}  # only what there is any of: zero would be a claim
        self.model_units: Counter = measures.model_units.labels(name)
        self.model_unit_seconds: Counter = measures.model_unit_seconds.labels(name)
        self.name = name
        self.latency: Histogram = measures.latency.labels(name)
        self.queue: Histogram = measures.queue.labels(name)
        self.ttft: Histogram = measures.ttft.labels(name)
        self.itl: Histogram = measures.itl.labels(name)

    def forget(self) -> None:
        """The endpoint is gone: its series go too, so that endpoints which come and go do not use up the bound."""
        self._gone = True
        self._measures.forget(self.name)

    def count(self, status: int, cause: str = "") -> None:
        """One finished request; `cause`: why it failed, where its status does not say."""
        if self._gone:
            return
        counter = self._codes.get(status)
        if counter is None:
            counter = self._codes[status] = self._measures.requests.labels(self.name, str(status))
        counter.value += 1
        if status >= 400:
            cause = cause or _ERROR_CLASSES.get(status) or ("client" if status < 500 else "model")
            self._measures.errors.labels(self.name, cause).inc()

    def took(self, usage: RequestUsage) -> None:
        """One successful request, as its replica reports."""
        if usage.rows:
            self._add("rows", usage.rows)
        if usage.prompt_tokens:
            self._add("input_tokens", usage.prompt_tokens)
            if usage.cached_tokens is not None:
                self._add("cached_tokens", usage.cached_tokens)
            self._add("output_tokens", usage.output_tokens or 0)
        if usage.image_tokens:
            self._add("image_tokens", usage.image_tokens)

    def _add(self, name: str, amount: int) -> None:
        if self._gone:
            return
        counter = self._took.get(name)
        if counter is None:
            counter = self._took[name] = self._measures.took[name].labels(self.name)
        counter.value += amount

    def retried(self, reason: str) -> None:
        if not self._gone:
            self._measures.retries.labels(self.name, reason).inc()
