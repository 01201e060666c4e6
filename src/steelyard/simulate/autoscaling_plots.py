"""A load as a picture: what was offered, the replicas of each autoscaler, what waited and what was rejected.

Needs matplotlib (the extra `simulate`), so that only who wants pictures imports it: the CLI, given a folder.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib import pyplot
from numpy.typing import NDArray

from steelyard.simulate.autoscaling import OURS, STATIC_PEAK, Run

POINTS = 1200
HOUR_S, DAY_S = 3600.0, 86_400.0


class Picture:
    """One load's. Runs are added as they come, so that none has to be kept."""

    def __init__(self, arrivals: Sequence[float], name: str) -> None:
        self._name = name
        self._step = max(1, -(-len(arrivals) // POINTS))
        unit_s, unit = (DAY_S, "days") if len(arrivals) > 2 * DAY_S else (HOUR_S, "h")
        unit_s, unit = (60.0, "min") if len(arrivals) <= 2 * HOUR_S else (unit_s, unit)
        pyplot.switch_backend("Agg")
        self._figure, self._axes = pyplot.subplots(4, 1, figsize=(9, 9), sharex=True, layout="constrained")
        offered = self._thinned(arrivals)
        self._at = np.arange(len(offered)) * self._step / unit_s
        self._axes[0].plot(self._at, offered, color="black", linewidth=0.8)
        titles = ("Offered (requests/s)", "Replicas, ready and starting", "Waiting (requests)", "Rejected so far")
        for axes, title in zip(self._axes, titles, strict=True):
            axes.set_title(title, fontsize="small", loc="left")
        self._axes[3].set_xlabel(unit)

    def add(self, run: Run) -> None:
        shown = {"linewidth": 1.8 if run.autoscaler == OURS else 0.8, "zorder": 3 if run.autoscaler == OURS else 2}
        dashes = "--" if run.autoscaler == STATIC_PEAK else "-"
        values = (self._thinned(run.replicas), self._thinned(run.queued), self._thinned(np.cumsum(run.rejected)))
        for axes, value in zip(self._axes[1:], values, strict=True):
            axes.plot(self._at, value, dashes, label=run.autoscaler, **shown)

    def save(self, folder: Path) -> Path:
        self._axes[1].legend(fontsize="x-small", ncols=4)
        path = folder / f"{self._name}.png"
        self._figure.savefig(path, dpi=80)
        pyplot.close(self._figure)
        return path

    def _thinned(self, values: Sequence[float] | NDArray[np.float64]) -> NDArray[np.float64]:
        """The highest of every few: a short peak stays visible."""
        array = np.asarray(values, dtype=float)
        padded = np.pad(array, (0, -len(array) % self._step), mode="edge")
        highest: NDArray[np.float64] = padded.reshape(-1, self._step).max(axis=1)
        return highest
