"""Control's own metrics. The reconcile loop writes them; the API renders them beside those of routers and replicas."""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Collection, Iterable

from steelyard.control.fleet import Tracked
from steelyard.control.states import Phase
from steelyard.observe.metrics import MetricSet


class Instruments:
    def __init__(self) -> None:
        metrics = MetricSet()
        self._metrics = metrics
        self.starts = metrics.counter("steelyard_control_replica_starts", "Replicas started.").labels()
        self.deaths = metrics.counter("steelyard_control_replica_deaths", "Replicas that ended untold.").labels()
        self.store_failures = metrics.counter("steelyard_control_store_failures", "Store calls that failed.").labels()
        self._rounds = metrics.histogram("steelyard_control_round_seconds", "Length of a reconcile round.").labels()
        self._version = metrics.gauge("steelyard_control_snapshot_version", "Version of the routing snapshot.").labels()
        self._replicas = metrics.gauge("steelyard_control_replicas", "Replicas by phase.", ("endpoint", "phase"))
        self._replica_s = metrics.counter(
            "steelyard_control_replica_seconds",
            "Time that replicas ran, starting and draining ones too.",
            ("endpoint",),
        )
        self._noted_s: float | None = None
        self._counted: set[str] = set()  # endpoints with replica-seconds
        self._shown: set[tuple[str, str]] = set()

    def note_round(
        self, length_s: float, fleet: Iterable[Tracked], version: int, endpoints: Collection[str], now_s: float
    ) -> None:
        """Call once per reconcile round. `endpoints`: the names of all that there are."""
        self._rounds.observe(length_s)
        self._version.set(version)
        tally = Tally((item.spec.endpoint, item.phase.value) for item in fleet if item.phase is not Phase.DEAD)
        past_s = 0.0 if self._noted_s is None else now_s - self._noted_s
        self._noted_s = now_s
        for name in self._counted - {*endpoints, *(endpoint for endpoint, _ in tally)}:
            self._replica_s.remove(name)
            self._counted.discard(name)
        for gone in self._shown - tally.keys():
            self._replicas.remove(*gone)
        for (endpoint, phase), count in tally.items():
            self._replicas.labels(endpoint, phase).set(count)
            self._replica_s.labels(endpoint).inc(count * past_s)
            self._counted.add(endpoint)
        self._shown = set(tally)

    def render(self) -> bytes:
        return self._metrics.render()
