"""What the autoscaler knows of each served entity that follows its load, and how that survives a restart.

`Axis` holds one entity's horizontal axis with what feeds it; `PolicyClock` gives the time that decisions live in;
`keep` and `restore` are the state file. The autoscaler owns them all. They ask nothing of anybody.
"""

from __future__ import annotations

import json
import os
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from steelyard.observe.logs import get_logger
from steelyard.policy.demand_sum import DemandSum
from steelyard.policy.demand_window import Sample
from steelyard.policy.horizontal import Horizontal, Limits

TARGET_SHARE = 0.75  # of what a replica runs at once, where no calibration has said how much is well
BELIEVED_AFTER_S = 60.0  # a replica that runs more at once than before may only be trying it
STARTS_KEPT = 5

Name = tuple[str, str]  # endpoint id, name of the served entity: a new version under the same name goes on


@dataclass(slots=True)
class Axis:
    """`key`: what its replicas run. `concurrency`: requests that one of them held when it became ready: what the user's
    bounds are counted in, so that they stay while replicas learn. `starts_s`: how long the last ones took to become
    ready. `task`: what kind of model it is, which nobody could say while no replica runs."""

    horizontal: Horizontal
    key: str
    concurrency: int
    demand: DemandSum = field(default_factory=DemandSum)
    starts_s: list[float] = field(default_factory=list)
    unlogged: list[Sample] = field(default_factory=list)  # observed since the last decision
    is_logged: bool = False  # the log holds the state and limits that it goes on from
    replica_bytes: int | None = None
    task: str | None = None
    lanes: deque[tuple[float, int]] = field(default_factory=deque)  # of the last BELIEVED_AFTER_S, the oldest first

    @property
    def readiness_s(self) -> float | None:
        return median(self.starts_s) if self.starts_s else None

    def note_start(self, took_s: float) -> None:
        self.starts_s = [*self.starts_s, took_s][-STARTS_KEPT:]

    def note_lanes(self, lanes: int, now_s: float) -> None:
        """So many requests a replica runs at once now."""
        while self.lanes and self.lanes[0][0] < now_s - BELIEVED_AFTER_S:
            self.lanes.popleft()
        self.lanes.append((now_s, lanes))

    def target(self, calibrated: int | None) -> float:
        """Requests at once with which a replica does well: as calibrated, else by what it ran at once of late, at
        least."""
        return float(max(1, calibrated)) if calibrated is not None else TARGET_SHARE * self.runs(None)

    def runs(self, calibrated: int | None) -> int:
        """Requests that a replica is thought to run at once, so that more only wait in it."""
        return calibrated or min((lanes for _, lanes in self.lanes), default=self.concurrency)


class PolicyClock:
    """Seconds that only grow, also across restarts of control and of the machine; `speed` times as fast as they pass.

    `monotonic` and `wall_s` are the clocks that it lives on.
    """

    def __init__(self, speed: float, monotonic: Callable[[], float], wall_s: Callable[[], float]) -> None:
        if not speed > 0:
            raise ValueError(f"STEELYARD_AUTOSCALING_SPEED must be above 0, which {speed:g} is not.")
        self.speed = speed
        self._monotonic, self._wall_s = monotonic, wall_s
        self._base_s, self._since_s = 0.0, monotonic()

    def __call__(self) -> float:
        return self._base_s + (self._monotonic() - self._since_s) * self.speed

    def resume(self, now_s: float, wall_s: float) -> None:
        """It was `now_s` when the wall clock said `wall_s`; a wall clock that was set back has not moved."""
        self._base_s = now_s + max(0.0, self._wall_s() - wall_s) * self.speed
        self._since_s = self._monotonic()


def keep(path: Path, text: str) -> None:
    """Replaces the state file in one step. Blocks; a disk that refuses costs what a restart would have known."""
    draft = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        draft.write_text(text, encoding="utf-8")
        draft.replace(path)
    except OSError as error:
        get_logger().warning("scaling_state_not_kept", reason=str(error))


def state_text(axes: dict[Name, Axis], now_s: float, wall_s: float) -> str:
    return json.dumps(
        {
            "now_s": now_s,
            "wall_s": wall_s,
            "axes": [
                {
                    "name": list(name),
                    "limits": [
                        axis.horizontal.limits.min_replicas,
                        axis.horizontal.limits.max_replicas,
                        axis.horizontal.limits.idle_timeout_s,
                    ],
                    "key": axis.key,
                    "concurrency": axis.concurrency,
                    "starts_s": axis.starts_s,
                    "task": axis.task,
                    "state": axis.horizontal.state(),
                }
                for name, axis in axes.items()
            ],
        },
        allow_nan=False,
    )


def restore(path: Path, clock: PolicyClock) -> dict[Name, Axis]:
    """What the control before us knew; nothing where there is no file, or none that can be read. Blocks."""
    try:
        kept: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        axes = {(item["name"][0], item["name"][1]): _axis(item) for item in kept["axes"]}
        clock.resume(float(kept["now_s"]), float(kept["wall_s"]))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, KeyError, TypeError, IndexError, AssertionError) as error:
        get_logger().warning("scaling_state_unreadable", path=str(path), reason=repr(error))
        return {}
    return axes


def _axis(kept: dict[str, Any]) -> Axis:
    axis = Axis(Horizontal(Limits(*kept["limits"]), kept["state"]), str(kept["key"]), int(kept["concurrency"]))
    axis.starts_s = [float(took_s) for took_s in kept["starts_s"]]
    axis.task = kept["task"]
    return axis
