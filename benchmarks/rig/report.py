"""Turns what `classic.py` measured into a table, the figures that have targets, and one JSON object.

It starts nothing and measures nothing. Figures are medians over the rounds; a ratio is the median of the ratios round
by round, since a shared machine's speed changes between rounds more than within one.
"""

from __future__ import annotations

import os
import platform
import statistics
from collections.abc import Callable
from dataclasses import asdict
from importlib.metadata import distributions, version
from pathlib import Path
from typing import Any

from rig.measure import Measured, Plan, Round

OURS, REPLICA = "steelyard", "steelyard replica"
SINGLE, BATCHES = ("linear", "lightgbm"), ("linear x1000", "lightgbm x1000", "forest x1000")
TARGETS = {  # what each figure should be at least, or (for times) at most
    "ratio_vs_mlflow": 50.0,
    "ratio_vs_best_peer": 10.0,
    "ratio_500_columns_vs_mlflow": 100.0,
    "ratio_batch_1000_vs_best_peer": 2.0,
    "replica_linear_us": 40.0,
    "replica_lightgbm_us": 60.0,
}


def figures(results: list[Measured]) -> dict[str, Any]:
    """Each target's figure, with its parts per workload; None where a server was not measured."""
    found: dict[str, Any] = {}
    groups: dict[str, tuple[tuple[str, ...], Callable[[list[Measured], str], Any]]] = {
        "ratio_vs_mlflow": (SINGLE, _against_mlflow),
        "ratio_vs_best_peer": (SINGLE, _against_best_peer),
        "ratio_500_columns_vs_mlflow": (("wide",), _against_mlflow),
        "ratio_batch_1000_vs_best_peer": (BATCHES, _against_best_peer),
    }
    for key, (workloads, ratio) in groups.items():
        parts = {workload: ratio(results, workload) for workload in workloads}
        known = [part for part in parts.values() if part is not None]
        found[key] = min(known) if len(known) == len(parts) else None
        if len(parts) > 1:
            found |= {f"{key}_{workload.replace(' ', '_')}": part for workload, part in parts.items()}
    for workload in SINGLE:
        found[f"replica_{workload}_us"] = _median(results, workload, REPLICA)
    found["best_peer"] = {
        workload: best.server for workload in _names(results) if (best := _best_peer(results, workload))
    }
    return found


def table(results: list[Measured]) -> str:
    lines = []
    for workload in _names(results):
        lines.append(
            f"\n{workload:28}{'CPU µs/request':>16}{'requests/s/core':>17}{'p50 ms':>9}{'p99 ms':>9}"
            f"{'core busy':>11}{'first start s':>15}{'cold start s':>14}{'PSS MB':>8}  rounds"
        )
        rows = [row for row in results if row.workload == workload]
        for row in sorted(rows, key=lambda row: _middle(row, "cpu_us") or float("inf")):
            lines.append(_line(row))
    return "\n".join(lines)


def verdicts(found: dict[str, Any]) -> str:
    lines = []
    for key, target in TARGETS.items():
        at_most = key.endswith("_us")
        value = found[key]
        if value is None:
            lines.append(f"{key:34}{'not measured':>14}   target {'≤' if at_most else '≥'} {target:g}")
            continue
        met = value <= target if at_most else value >= target
        lines.append(
            f"{key:34}{value:14.1f}   target {'≤' if at_most else '≥'} {target:g}: {'met' if met else 'MISSED'}"
        )
    return "\n".join(lines)


def as_json(results: list[Measured], found: dict[str, Any], plan: Plan, environments: Path) -> dict[str, Any]:
    medians = [{f"median_{key}": _middle(row, key) for key in Round.__annotations__} for row in results]
    rows = [asdict(row) | middle for row, middle in zip(results, medians, strict=True)]
    whole = {**found, "plan": asdict(plan), "machine": _machine(environments), "results": rows}
    return {key: _rounded(value) for key, value in whole.items()}


def _line(row: Measured) -> str:
    name = f"{row.server} ({row.note})" if row.note else row.server
    starts = f"{row.first_start_s:15.2f}{row.cold_start_s:14.2f}{row.pss_bytes / 1e6:8.0f}"
    count = f"  {len(row.rounds)}" + (f", {len(row.discarded)} discarded" if row.discarded else "")
    if not row.rounds:
        return f"{name:28}{'no clean round':>62}{starts}{count}: {row.discarded[:1]}"
    cost, rate, p50, p99, busy = (
        statistics.median(getattr(one, key) for one in row.rounds)
        for key in ("cpu_us", "rps_per_core", "p50_ms", "p99_ms", "busy")
    )
    return f"{name:28}{cost:16.1f}{rate:17.0f}{p50:9.2f}{p99:9.2f}{busy:10.0%} {starts}{count}"


def _names(results: list[Measured]) -> list[str]:
    return list(dict.fromkeys(row.workload for row in results))


def _find(results: list[Measured], workload: str, server: str) -> Measured | None:
    return next((row for row in results if (row.workload, row.server) == (workload, server)), None)


def _middle(row: Measured | None, key: str) -> float | None:
    return statistics.median(getattr(one, key) for one in row.rounds) if row and row.rounds else None


def _median(results: list[Measured], workload: str, server: str) -> float | None:
    return _middle(_find(results, workload, server), "cpu_us")


def _against_mlflow(results: list[Measured], workload: str) -> float | None:
    return _ratio(results, workload, _find(results, workload, "mlflow"))


def _against_best_peer(results: list[Measured], workload: str) -> float | None:
    return _ratio(results, workload, _best_peer(results, workload))


def _best_peer(results: list[Measured], workload: str) -> Measured | None:
    peers = [row for row in results if row.workload == workload and row.kind == "peer" and row.rounds]
    return min(peers, key=lambda row: _middle(row, "cpu_us") or float("inf"), default=None)


def _ratio(results: list[Measured], workload: str, other: Measured | None) -> float | None:
    """How many times our requests per CPU second are the other's, through the whole path."""
    ours = _find(results, workload, OURS)
    if not (ours and other and ours.rounds and other.rounds):
        return None
    return statistics.median(b.cpu_us / a.cpu_us for a, b in zip(ours.rounds, other.rounds, strict=False))


def _machine(environments: Path) -> dict[str, Any]:
    cpu = next(
        (
            line.partition(":")[2].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if "model name" in line
        ),
        platform.machine(),
    )
    names = ("mlflow", "scikit-learn", "lightgbm", "numpy", "uvloop", "msgspec")
    peers = {
        item.metadata["Name"].lower(): item.version
        for folder in environments.glob("*/lib/python3*/site-packages")
        for item in distributions(path=[str(folder)])
        if item.metadata["Name"].lower() in ("litserve", "bentoml", "mlserver", "ray")
    }
    versions = {name: version(name) for name in names}
    return {"cpu": cpu, "cores": os.cpu_count(), "python": platform.python_version(), "versions": versions | peers}


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return round(value, 4)
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(item) for item in value]
    return value
