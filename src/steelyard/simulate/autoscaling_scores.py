"""What autoscalers came to, in figures that can be compared, and how ours stands beside the others.

Pure: runs in, figures out. `verdict` is the last line of `--json`; `lost` names every cell where another autoscaler
missed the target less often, or no more often with fewer replica-hours. Nothing here rounds or hides.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from steelyard.simulate.autoscaling import BINS_PER_S, INSTANT, OURS, STATIC_PEAK, Run
from steelyard.simulate.conventional import CONVENTIONAL

TURNS_WITHIN_S = 600
RECOVERY_S = 600  # after a shock, at most
HOUR_S = 3600.0
SAME = 1.02
SAME_MISSED = 1e-4  # of all requests


@dataclass(frozen=True, slots=True)
class Score:
    """One load under one autoscaler. `recover_s`: the longest from a jump of the load until all is within target."""

    load: str
    autoscaler: str
    requests: float
    rejected: float  # 429, or 504 after a minute in the queue
    queueing_s: float  # of all requests together
    wait_p50_s: float
    wait_p99_s: float
    attainment: float  # share of all requests that were served within the target
    replica_hours: float
    most_replicas: int
    changes_per_h: float
    turns: int  # changes of direction, the most within ten minutes
    recover_s: float | None
    spike: bool
    bursty: bool

    @property
    def missed(self) -> float:
        return 1 - self.attainment


def scored(run: Run, target_s: float) -> Score:
    load = run.load
    requests = sum(run.waits.values()) + sum(run.rejected)  # what still waits at the end has no verdict
    within = sum(count for place, count in run.waits.items() if place <= target_s * BINS_PER_S)
    replicas = np.asarray(run.replicas)
    hours = len(replicas) / HOUR_S
    return Score(
        load=load.name,
        autoscaler=run.autoscaler,
        requests=requests,
        rejected=float(sum(run.rejected)),
        queueing_s=float(sum(run.queued)),
        wait_p50_s=_quantile(run.waits, 0.5),
        wait_p99_s=_quantile(run.waits, 0.99),
        attainment=min(1.0, within / requests) if requests else 1.0,
        replica_hours=run.replica_s / HOUR_S,
        most_replicas=int(replicas.max()),
        changes_per_h=float(np.count_nonzero(np.diff(replicas))) / hours,
        turns=turns(run.replicas),
        recover_s=_recovery(run, target_s),
        spike=load.spike,
        bursty=load.bursty,
    )


def turns(replicas: Sequence[float]) -> int:
    """The most changes of direction within ten minutes."""
    steps = np.diff(np.asarray(replicas))
    moved = np.flatnonzero(steps)
    turned = moved[1:][np.diff(np.sign(steps[moved])) != 0]
    if not len(turned):
        return 0
    within = np.searchsorted(turned, turned + TURNS_WITHIN_S) - np.arange(len(turned))
    return int(within.max())


def _recovery(run: Run, target_s: float) -> float | None:
    """Until the last second that rejected a request or took one that had waited for longer than the target."""
    shocks = [*run.load.shocks_s, len(run.rejected)]
    longest = None
    for shock_s, next_s in itertools.pairwise(shocks):
        part = slice(shock_s, min(next_s, shock_s + RECOVERY_S))
        bad = np.flatnonzero((np.asarray(run.rejected[part]) > 0) | (np.asarray(run.longest_s[part]) > target_s))
        longest = max(longest or 0.0, float(bad[-1] + 1) if len(bad) else 0.0)
    return longest


def _quantile(waits: dict[int, float], share: float) -> float:
    wanted, seen = share * sum(waits.values()), 0.0
    for place in sorted(waits):
        seen += waits[place]
        if seen >= wanted:
            return place / BINS_PER_S
    return math.nan


def verdict(scores: Sequence[Score]) -> dict[str, object]:
    """Ours beside the others: below 1 is fewer. None where there is nothing to compare."""
    spikes = _pooled([score for score in scores if score.spike])
    bursty = _pooled([score for score in scores if score.bursty])
    ours = [score for score in scores if score.autoscaler == OURS]
    beside = {
        name: {
            "rejections": _ratio(spikes[OURS].rejected, total.rejected),
            "queueing": _ratio(spikes[OURS].queueing_s, total.queueing_s),
            "replica_hours": _ratio(spikes[OURS].replica_hours, total.replica_hours),
        }
        for name, total in spikes.items()
        if name != OURS and OURS in spikes
    }
    rivals = [spikes[name] for name in CONVENTIONAL if name in spikes]
    best = min(rivals, key=lambda total: total.rejected, default=None)
    own, static = bursty.get(OURS), bursty.get(STATIC_PEAK)
    return {
        "cells": len({score.load for score in ours}),
        "cells_lost": len({line.split(":")[0] for line in lost(scores)}),
        "saved_vs_static_peak": None if own is None or static is None else 1 - own.replica_hours / static.replica_hours,
        "bursty_within_target": None if own is None else own.within / own.requests,
        "rejections_vs_best_conventional": None if best is None else beside.get(best.name, {}).get("rejections"),
        "best_conventional": None if best is None else best.name,
        "spikes_vs": beside,
        "worst_turns_per_10_min": max((score.turns for score in ours), default=None),
        "worst_recover_s": max((score.recover_s for score in ours if score.recover_s is not None), default=None),
    }


@dataclass(slots=True)
class _Total:
    name: str
    requests: float = 0.0
    within: float = 0.0
    rejected: float = 0.0
    queueing_s: float = 0.0
    replica_hours: float = 0.0


def _pooled(scores: Iterable[Score]) -> dict[str, _Total]:
    totals: dict[str, _Total] = {}
    for score in scores:
        total = totals.setdefault(score.autoscaler, _Total(score.autoscaler))
        total.requests += score.requests
        total.within += score.attainment * score.requests
        total.rejected += score.rejected
        total.queueing_s += score.queueing_s
        total.replica_hours += score.replica_hours
    return totals


def _ratio(ours: float, theirs: float) -> float | None:
    if theirs:
        return ours / theirs
    return None if ours else 1.0


def lost(scores: Sequence[Score]) -> list[str]:
    """Cells where a conventional autoscaler did better, and those that cost more than the static peak."""
    lines = []
    for ours in (score for score in scores if score.autoscaler == OURS):
        for other in scores:
            if other.load != ours.load or other.autoscaler in {OURS, INSTANT}:
                continue
            hours = other.replica_hours / ours.replica_hours if ours.replica_hours else math.inf
            fewer = other.missed + SAME_MISSED < ours.missed / SAME
            as_few = other.missed <= ours.missed + SAME_MISSED and hours * SAME < 1
            if as_few or (fewer and other.autoscaler in CONVENTIONAL):
                lines.append(
                    f"{ours.load}: {other.autoscaler} missed {100 * other.missed:.3f} % of requests to our "
                    f"{100 * ours.missed:.3f} %, at {hours:.2f} × our replica-hours"
                )
    return lines
