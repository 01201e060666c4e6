"""Loads of the autoscaling comparison: requests of each second, the replicas that serve them, and what is hard in it.

Synthetic loads need nothing; recorded ones are drawn from a folder of public traces (docs/autoscaling.md names them).
Arrivals are drawn once, by seed: every autoscaler gets the same.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from steelyard.simulate.fleet import ReplicaModel
from steelyard.simulate.traces import azure

Rates = NDArray[np.float64]

SMALL_MODEL = ReplicaModel(4.0, ((1.0, 0.04), (4.0, 0.04)), cold_start_s=10.0)  # 100 requests/s
# One server of a language model, as published: seconds by concurrency, p50. 8 is the most that meets p90 ≤ 5 s.
LANGUAGE_CURVE = ((1.0, 2.8), (4.0, 4.1), (6.0, 4.4), (8.0, 4.6), (12.0, 6.5), (16.0, 8.8), (32.0, 17.6))
LANGUAGE_MODEL = ReplicaModel(8.0, LANGUAGE_CURVE, cold_start_s=10.0)
LARGE_MODEL = ReplicaModel(8.0, LANGUAGE_CURVE, cold_start_s=300.0)
WINDOW_S = 600  # of ServeGen's envelopes
DAY_S = 86_400
MOST_VARIATION, LEAST_VARIATION = 3.0, 0.1  # beyond, a window had a handful of requests and tells nothing
BURSTY, LARGEST = 1 / 8, 5  # of ServeGen's clients
TIMES = 20
AZURE = {
    "azure-code": "AzureLLMInferenceTrace_code*.csv",
    "azure-conversation": "AzureLLMInferenceTrace_conv*.csv",
}


@dataclass(frozen=True, slots=True)
class Load:
    """`spike`, `bursty`: which of the claims it tests. `shocks_s`: when the load jumps up, to tell the recovery."""

    name: str
    arrivals: Sequence[float]
    model: ReplicaModel
    spike: bool = False
    bursty: bool = False
    shocks_s: Sequence[int] = ()
    min_replicas: int = 1
    lost: float = 0.0  # share of the seconds whose metrics are lost


def _drawn(rates: Rates, rng: np.random.Generator, variation: Rates | float = 1.0) -> list[float]:
    """Counts with that mean and, of a renewal process with this coefficient of variation, about that variance."""
    variance = np.square(variation)
    shape = np.where(rates > 0, rates / variance, 1.0)
    counts = np.where(rates > 0, rng.gamma(shape, np.broadcast_to(variance, rates.shape)), 0.0)
    drawn: list[float] = np.round(counts).tolist()
    return drawn


def _pieces(*pieces: tuple[float, float]) -> Rates:
    """Rates from (seconds, requests/s)."""
    return np.concatenate([np.full(int(seconds), float(rate)) for seconds, rate in pieces])


def step(rng: np.random.Generator) -> Load:
    """10 to 10,000 requests/s."""
    at = 300 + int(rng.integers(30))
    return Load("step", _drawn(_pieces((at, 10), (900, 10_000)), rng), SMALL_MODEL, spike=True, shocks_s=(at,))


def spikes(rng: np.random.Generator) -> Load:
    """Ten times the load for two minutes, sixteen times, every five to nine minutes."""
    return _spikes("spikes", rng, SMALL_MODEL)


def spikes_lossy(rng: np.random.Generator) -> Load:
    """The same, and three in ten of the metrics are lost."""
    return replace(_spikes("spikes-lossy", rng, SMALL_MODEL), lost=0.3)


def spikes_quick_start(rng: np.random.Generator) -> Load:
    """The same on replicas that start in two seconds, as small models do where their environment is at hand."""
    return _spikes("spikes-quick-start", rng, replace(SMALL_MODEL, cold_start_s=2.0))


def _spikes(name: str, rng: np.random.Generator, model: ReplicaModel) -> Load:
    pieces, shocks, at = [(600.0, 200.0)], [], 600
    for _ in range(16):
        gap_s = int(rng.integers(180, 420))
        pieces += [(120, 2000), (gap_s, 200)]
        shocks.append(at)
        at += 120 + gap_s
    return Load(name, _drawn(_pieces(*pieces, (1800, 200)), rng), model, spike=True, shocks_s=shocks)


def collapse(rng: np.random.Generator) -> Load:
    """95 % of the load gone for four to seven minutes, and back, eight times."""
    pieces, shocks, at = [(600.0, 2000.0)], [], 600
    for _ in range(8):
        gone_s = int(rng.integers(240, 420))
        pieces += [(gone_s, 100), (600, 2000)]
        shocks.append(at + gone_s)
        at += gone_s + 600
    return Load("collapse", _drawn(_pieces(*pieces), rng), SMALL_MODEL, spike=True, shocks_s=shocks)


def bursts(rng: np.random.Generator) -> Load:
    """Six hours: nearly nothing, and bursts of one to ten minutes that rise within two and differ."""
    rates = np.full(6 * 3600, 20.0)
    at = 600
    while at < len(rates) - 900:
        seconds, height = int(rng.uniform(60, 600)), float(np.minimum(4000.0, rng.lognormal(6.2, 0.8)))
        ramp = int(rng.uniform(20, 120))
        shape = np.concatenate([np.linspace(0, height, ramp), np.full(seconds, height), np.linspace(height, 0, ramp)])
        end = min(len(rates), at + len(shape))
        rates[at:end] += shape[: end - at]
        at += int(rng.exponential(1500.0)) + seconds
    return Load("bursts", _drawn(rates, rng, 1.5), SMALL_MODEL, bursty=True)


def diurnal(rng: np.random.Generator) -> Load:
    """A day between 20 and 200 requests/s on replicas that take five minutes to start."""
    at = np.arange(24 * 3600)
    rates = 110 - 90 * np.cos(2 * np.pi * at / 86_400)
    return Load("diurnal-slow-start", _drawn(rates, rng), LARGE_MODEL)


def batch(rng: np.random.Generator) -> Load:
    """Twenty minutes of work every two hours, and nothing between."""
    rates = _pieces(*[(1200, 0), (1200, 1000), (4800, 0)] * 4)
    starts = [1200 + 7200 * n for n in range(4)]
    return Load("batch-jobs", _drawn(rates, rng), SMALL_MODEL, shocks_s=starts, min_replicas=0)


def constant(rng: np.random.Generator) -> Load:
    """Constant load with noise, at a bad place between two numbers of replicas."""
    return Load("constant", _drawn(_pieces((7200, 395)), rng, 2.0), SMALL_MODEL)


def constant_slow_start(rng: np.random.Generator) -> Load:
    """The same on replicas that take five minutes to start."""
    return Load("constant-slow-start", _drawn(_pieces((7200, 10.2)), rng, 1.0), LARGE_MODEL)


def constant_lossy(rng: np.random.Generator) -> Load:
    """The same, and three in ten of the metrics are lost."""
    return Load("constant-lossy", _drawn(_pieces((7200, 395)), rng, 2.0), SMALL_MODEL, lost=0.3)


SYNTHETIC: dict[str, Callable[[np.random.Generator], Load]] = {
    "step": step,
    "spikes": spikes,
    "spikes-lossy": spikes_lossy,
    "spikes-quick-start": spikes_quick_start,
    "collapse": collapse,
    "bursts": bursts,
    "diurnal-slow-start": diurnal,
    "batch-jobs": batch,
    "constant": constant,
    "constant-slow-start": constant_slow_start,
    "constant-lossy": constant_lossy,
}


def available(folder: Path | None, seed: int, days: float) -> dict[str, Callable[[], Load]]:
    """What can be drawn, by name. Raises ValueError when a folder is given that holds no trace."""
    loads: dict[str, Callable[[], Load]] = {}
    for name, make in SYNTHETIC.items():
        loads[name] = partial(make, np.random.default_rng(seed))
    if folder is None:
        return loads
    known = len(loads)
    for name, pattern in AZURE.items():
        for path in sorted(folder.glob(pattern))[:1]:
            loads[name] = partial(_azure, path, name)
    envelopes = folder / "servegen" / "m-small-trace"
    clients = _clients(envelopes)
    if clients:
        loads["servegen-all"] = partial(_servegen, "servegen-all", list(clients.values()), seed, days)
    for name, client in _bursty(clients):
        loads[name] = partial(_servegen, name, [client], seed, days)
    if len(loads) == known:
        raise ValueError(f"No trace in {folder}. It is searched for {', '.join(AZURE.values())}, {envelopes.name}/.")
    return loads


def _azure(path: Path, name: str) -> Load:
    """The trace as it is, every request standing for `TIMES`: a cloud's services are larger than one sample."""
    trace = azure.load(path, name)
    counts = np.zeros(int(trace.duration_s) + 1)
    for request in trace.requests:
        counts[int(request.arrival_s)] += TIMES
    return Load(name, counts.tolist(), LANGUAGE_MODEL, bursty=True)


@dataclass(frozen=True, slots=True)
class _Client:
    """A ServeGen client: the middles of its windows, its rate in each and the coefficient of variation."""

    middles_s: Rates
    rates: Rates
    variation: Rates


def _clients(folder: Path) -> dict[str, _Client]:
    clients: dict[str, _Client] = {}
    for path in sorted(folder.glob("chunk-*-trace.csv")):
        try:
            rows = [(float(r[0]), float(r[1]), float(r[2] or 1)) for r in csv.reader(path.open(newline="")) if r]
        except (ValueError, IndexError) as error:
            raise ValueError(f"{path.name}: {error}") from error
        if rows:
            starts, rates, variation = np.array(rows).T
            clients[path.name.split("-")[1]] = _Client(starts + WINDOW_S / 2, rates, variation)
    return clients


def _bursty(clients: dict[str, _Client]) -> list[tuple[str, _Client]]:
    """The largest of those whose mean is below an eighth of their peak, each as an endpoint of its own."""
    found = [
        (client.rates.mean(), name, client)
        for name, client in clients.items()
        if 0 < client.rates.mean() < BURSTY * client.rates.max()
    ]
    found.sort(key=lambda one: -one[0])
    return [(f"servegen-client-{name}", client) for _, name, client in found[:LARGEST]]


def _servegen(name: str, clients: Sequence[_Client], seed: int, days: float) -> Load:
    """The sum of the clients. A window gives a mean: between the middles of two, the rate goes in a straight line."""
    end_s = min(max(client.middles_s[-1] + WINDOW_S / 2 for client in clients), days * DAY_S)
    at = np.arange(int(end_s))
    rates, variance = np.zeros(len(at)), np.zeros(len(at))
    for client in clients:
        own = np.interp(at, client.middles_s, client.rates)
        variation = np.interp(at, client.middles_s, np.minimum(client.variation, MOST_VARIATION))
        rates += own
        variance += own * np.square(variation)
    variation = np.sqrt(variance / np.where(rates > 0, rates, 1.0))
    arrivals = _drawn(rates, np.random.default_rng(seed), np.maximum(LEAST_VARIATION, variation))
    return Load(name, arrivals, LANGUAGE_MODEL, bursty=len(clients) == 1)
