"""All cells of a comparison: traces × numbers of replicas × policies, each by the same seeds.

The CLI says which; this runs them one after another and yields each score as soon as it is known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from steelyard.simulate.batch_speed import BatchSpeed
from steelyard.simulate.requests import Trace
from steelyard.simulate.routing import Run, run
from steelyard.simulate.scaling import Scaled, Size, scaled
from steelyard.simulate.scorecard import Score, scored


@dataclass(frozen=True, slots=True)
class Matrix:
    """What to compare, at which load. `share` of each trace's time, and requests per replica, bound a cell."""

    replicas: Sequence[int]
    policies: Sequence[str]
    utilisation: float = 0.7
    share: float = 0.1
    requests_per_replica: int = 100
    seeds: Sequence[int] = (1,)

    def __post_init__(self) -> None:
        """Raises ValueError that names what is wrong."""
        if not 0 < self.utilisation <= 2:
            raise ValueError(f"A utilisation of {self.utilisation} is not within 0 and 2.")
        if not 0 < self.share <= 1:
            raise ValueError(f"A share of {self.share} is not within 0 and 1.")
        if not self.replicas or min(self.replicas) < 1 or self.requests_per_replica < 1 or not self.seeds:
            raise ValueError("A comparison needs at least one replica, one request for each, and one seed.")


def scores(
    traces: Mapping[str, Callable[[], Trace]],
    matrix: Matrix,
    model: BatchSpeed,
    told: Callable[[Scaled], None] = lambda scaled: None,
) -> Iterator[Score]:
    """Run everything. `told` hears of each cell before it is run."""
    for load in traces.values():
        trace = load()
        for replicas in matrix.replicas:
            cells = [_sized(trace, replicas, matrix, model, seed) for seed in matrix.seeds]
            told(cells[0])
            for policy in matrix.policies:
                runs: list[tuple[Scaled, Run]] = [
                    (cell, run(cell, policy, model, replicas, seed))
                    for cell, seed in zip(cells, matrix.seeds, strict=True)
                ]
                yield scored(runs, model, replicas)


def _sized(trace: Trace, replicas: int, matrix: Matrix, model: BatchSpeed, seed: int) -> Scaled:
    capacity = replicas - round(trace.slow_share * replicas) / 2  # at half speed, half a replica
    size = Size(replicas, capacity, matrix.utilisation, matrix.share, matrix.requests_per_replica)
    return scaled(trace, size, model.cost(), model.kv_tokens, seed)
