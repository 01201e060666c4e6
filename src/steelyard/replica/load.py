"""What the replica says of its load: a `LoadReport` for whoever asks, and the ORCA header on every reply.

One `LoadMeter` per replica, owned by its loop; the figures come from the lanes or the engine, never from a guess.
"""

from __future__ import annotations

from collections.abc import Callable

from steelyard.contracts.replica import LoadReport
from steelyard.runtimes.base import GenerationLoad


class LoadMeter:
    """Counts what the replica holds. `occupied` is (held, waiting) of a predict runtime, `generation` of an engine."""

    def __init__(self) -> None:
        self.max_concurrency = 1
        self.lanes: int | None = None  # calls of the model at once; None: as many as requests
        self.open_requests = 0  # between arrival and the end of the reply
        self.completed_total = 0
        self.user_requests_total = 0
        self.user_in_flight = 0
        self.occupied: Callable[[], tuple[int, int]] | None = None
        self.generation: Callable[[], GenerationLoad] | None = None
        self.on_idle: Callable[[], None] | None = None  # called when the last open request ends
        self._last_completion_s: float | None = None

    def opened(self, calibrates: bool) -> None:
        """`calibrates`: it measures what requests cost, and is no user's."""
        self.open_requests += 1
        if not calibrates:
            self.user_requests_total += 1
            self.user_in_flight += 1

    def closed(self, now_s: float, completed: bool, calibrates: bool) -> None:
        """`completed`: the model answered; errors and departed clients are no sign of progress."""
        self.open_requests -= 1
        if not calibrates:
            self.user_in_flight -= 1
        if completed:
            self.completed_total += 1
            self._last_completion_s = now_s
        if self.open_requests == 0 and self.on_idle is not None:
            self.on_idle()

    def report(self, now_s: float) -> LoadReport:
        """The figures at `now_s` (monotonic)."""
        age_s = None if self._last_completion_s is None else now_s - self._last_completion_s
        engine = self.generation() if self.generation is not None else None
        in_flight, queue_depth = self._held(engine)
        return LoadReport(
            in_flight=in_flight,
            queue_depth=queue_depth,
            max_concurrency=self.max_concurrency,
            completed_total=self.completed_total,
            last_completion_age_s=age_s,
            kv_occupancy=None if engine is None else engine.kv_occupancy,
            output_tokens_total=None if engine is None else engine.output_tokens_total,
            user_requests_total=self.user_requests_total,
            user_in_flight=self.user_in_flight,
        )

    def orca(self) -> bytes:
        """Value of the `endpoint-load-metrics` header, in the JSON form that Envoy and gRPC read."""
        engine = self.generation() if self.generation is not None else None
        in_flight, queue_depth = self._held(engine)
        kv = b"" if engine is None else b',"kv_occupancy":%.4f' % engine.kv_occupancy
        return b'JSON {"application_utilization":%.4f,"named_metrics":{"in_flight":%d,"queue_depth":%d%b}}' % (
            in_flight / self.max_concurrency, in_flight, queue_depth, kv,
        )  # fmt: skip

    def _held(self, engine: GenerationLoad | None) -> tuple[int, int]:
        if engine is not None:
            return max(engine.in_flight, self.open_requests), engine.queue_depth
        if self.occupied is not None:
            return self.occupied()
        return self.open_requests, 0
