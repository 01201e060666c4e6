"""The replica's metric families, each with the labels that tell replicas of one endpoint apart when they are merged.

Owned by the replica's loop; a handler holds on to the series that it touches on every token. A series that means
nothing for the model (tokens of a classifier) does not exist, since zero would be a claim.
"""

from __future__ import annotations

from typing import Final

from steelyard.observe.metrics import Counter, MetricSet

_LABELS: Final = ("endpoint", "served_entity")
_TOKEN_BOUNDS_S: Final = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.25, 0.5, 1.0, 2.5, 10.0)


class Measures:
    """Series of every replica. Times are seconds."""

    def __init__(self, endpoint: str, served_entity: str) -> None:
        self.set = MetricSet()
        self.values = values = (endpoint, served_entity)
        self._requests = self.set.counter(
            "steelyard_replica_requests", "Requests ended, by status (499: the client left)", (*_LABELS, "status")
        )
        self._by_status: dict[int, Counter] = {}
        self._in_flight = self.set.gauge("steelyard_replica_in_flight", "Requests held", _LABELS).labels(*values)
        self._queue_depth = self.set.gauge(
            "steelyard_replica_queue_depth", "Requests waiting for the model", _LABELS
        ).labels(*values)

    def count_reply(self, status: int) -> None:
        """One request is over; 499 stands for a client that left."""
        series = self._by_status.get(status)
        if series is None:
            series = self._by_status[status] = self._requests.labels(*self.values, str(status))
        series.value += 1

    def render(self, in_flight: int, queue_depth: int) -> bytes:
        """OpenMetrics text with the gauges as of now."""
        self._in_flight.set(in_flight)
        self._queue_depth.set(queue_depth)
        return self.set.render()


class PredictMeasures:
    """Series of a predict runtime."""

    def __init__(self, measures: Measures) -> None:
        values = measures.values
        self.queue_s = measures.set.histogram(
            "steelyard_replica_queue_seconds", "Wait for a free lane", _LABELS
        ).labels(*values)
        self.predict_s = measures.set.histogram(
            "steelyard_replica_predict_seconds", "Time in a lane: parsing, model, rendering", _LABELS
        ).labels(*values)


class WorkerMeasures:
    """Series of a model that runs in worker processes."""

    def __init__(self, measures: Measures) -> None:
        self.hung = measures.set.counter(
            "steelyard_replica_hung_workers", "Worker processes that hung and were replaced", _LABELS
        ).labels(*measures.values)


class SharingMeasures:
    """Series of a model whose requests may share calls."""

    def __init__(self, measures: Measures) -> None:
        values = measures.values
        self.calls = measures.set.counter(
            "steelyard_replica_shared_calls", "Calls of the model for requests that were taken together", _LABELS
        ).labels(*values)
        self.requests = measures.set.counter(
            "steelyard_replica_sharing_requests", "Requests that were taken together", _LABELS
        ).labels(*values)


class TokenMeasures:
    """Series of a generate runtime."""

    def __init__(self, measures: Measures) -> None:
        values, family = measures.values, measures.set
        self.first_token_s = family.histogram(
            "steelyard_replica_time_to_first_token_seconds", "From the request's arrival to its first text", _LABELS
        ).labels(*values)
        self.inter_token_s = family.histogram(
            "steelyard_replica_inter_token_seconds", "Between two pieces of one choice", _LABELS, _TOKEN_BOUNDS_S
        ).labels(*values)
        self.prompt_tokens = family.counter(
            "steelyard_replica_prompt_tokens", "Prompt tokens of answered requests", _LABELS
        ).labels(*values)
        self.cached_tokens = family.counter(
            "steelyard_replica_cached_tokens", "Prompt tokens found in the KV cache", _LABELS
        ).labels(*values)
        self.output_tokens = family.counter("steelyard_replica_output_tokens", "Tokens generated", _LABELS).labels(
            *values
        )
        self.kv_occupancy = family.gauge(
            "steelyard_replica_kv_occupancy_ratio", "Share of the KV cache in use", _LABELS
        ).labels(*values)
