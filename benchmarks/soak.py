"""Whether memory, descriptors and threads stay flat over a million mixed good and bad requests.

A real router in front of two real replicas: a vectorised model, and one of Python code with its worker process. Sixteen
clients on loopback send what `rig/mix.py` lists, disconnects included. Prints what each process holds over time, its
least-squares slope per 100,000 requests after the warm-up, and a verdict. An answer with an unforeseen status fails it.

    python benchmarks/soak.py [--requests 1000000] [--json]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import signal
import statistics
import sys
import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import uvloop

from rig.mix import Case, cases
from rig.ours import TOKEN, settings_in, start_replica, start_router
from rig.processes import Pinned, Usage, usage
from rig.replies import whole_reply
from rig.train import PYTHON, SUMMED, train

CLIENTS = 16
SAMPLES = 200
SHOWN = 10  # of the samples, in the table
WARM_SHARE = 0.2  # of the requests: caches fill and the allocator finds its size
JUDGED_REQUESTS = 200_000  # with fewer a slope is noise
ANSWER_S = 60.0
LIMITS = {"rss_kib": 256.0, "descriptors": 1.0, "threads": 1.0}  # slopes per 100,000 requests


@dataclass(frozen=True, slots=True)
class Sample:
    sent: int
    held: dict[int, Usage]  # by process


@dataclass(slots=True)
class Soak:
    """What has been sent so far, how it ended, and what the processes held meanwhile."""

    requests: int
    sent: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    unforeseen: Counter[str] = field(default_factory=Counter)
    samples: list[Sample] = field(default_factory=list)
    names: dict[int, str] = field(default_factory=dict)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=1_000_000)
    parser.add_argument("--json", action="store_true", help="end with one line of JSON")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the servers end with us
    with ExitStack() as stack:
        home = Path(stack.enter_context(TemporaryDirectory(prefix="soak-")))
        models = ["linear", PYTHON]
        train(home / "models", models)
        settings = settings_in(home / "home", stack)
        replicas = {
            name: start_replica(settings, stack, name, home / "models" / name / "mlflow", None) for name in models
        }
        servers = {f"replica {name}": replica.server for name, replica in replicas.items()}
        views = {name: replica.view for name, replica in replicas.items()}
        servers |= {"router": start_router(settings, stack, views, None)}
        columns = json.loads((home / "models/linear/rows.json").read_text())["columns"]
        mix = cases("linear", columns, PYTHON, list(SUMMED), TOKEN)
        runtimes = {name: replica.runtime for name, replica in replicas.items()}
        print(f"{arguments.requests} requests; runtimes {runtimes}", file=sys.stderr, flush=True)
        soak, begin_s = Soak(arguments.requests), time.monotonic()
        uvloop.run(_load(soak, mix, settings.port, servers))
        result = _result(soak, time.monotonic() - begin_s) | {"runtimes": runtimes}
    _print(soak, result)
    if arguments.json:
        print(json.dumps(result))
    raise SystemExit(1 if result["verdict"] == "fails" else 0)


# --- the load


async def _load(soak: Soak, mix: list[Case], port: int, servers: dict[str, Pinned]) -> None:
    await _until_it_answers(mix[0], port)
    chosen = random.Random(7).choices(mix, [case.weight for case in mix], k=min(soak.requests, 100_000))
    every = max(1, soak.requests // SAMPLES)

    async def client() -> None:
        connection = _Connection(port)
        while soak.sent < soak.requests:
            case = chosen[soak.sent % len(chosen)]
            soak.sent += 1
            if soak.sent % every == 0:
                _sample(soak, servers)
            outcome = await connection.carry_out(case)
            soak.outcomes[outcome] += 1
            if outcome not in ("cut", "left") and outcome not in {str(status) for status in case.statuses}:
                soak.unforeseen[f"{case.name}: {outcome}"] += 1
        connection.close()

    await asyncio.gather(*(client() for _ in range(CLIENTS)))


async def _until_it_answers(case: Case, port: int) -> None:
    deadline_s = time.monotonic() + ANSWER_S
    while await _Connection(port).carry_out(case) != "200":
        if time.monotonic() > deadline_s:
            raise SystemExit("The router does not answer.")
        await asyncio.sleep(0.1)


class _Connection:
    """A keep-alive connection that is opened when it is needed."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def carry_out(self, case: Case) -> str:
        """The reply's status, "cut", "left", or the name of what went wrong."""
        try:
            async with asyncio.timeout(ANSWER_S):
                return await self._carry_out(case)
        except (OSError, ValueError, asyncio.IncompleteReadError) as error:
            self.close()
            return type(error).__name__

    async def _carry_out(self, case: Case) -> str:
        if self._reader is None or self._writer is None:
            self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)
        self._writer.write(case.request)
        if case.manner != "ask":
            await self._writer.drain()
            self.close()
            return "left" if case.manner == "leave" else case.manner
        data = await self._reader.readuntil(b"\r\n\r\n")
        while (reply := whole_reply(data)) is None:
            piece = await self._reader.read(1 << 20)
            if not piece:
                raise ConnectionResetError
            data += piece
        if b"connection: close" in data[: data.index(b"\r\n\r\n")].lower():
            self.close()
        return str(reply.status)

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
        self._reader = self._writer = None


# --- what the processes hold


def _sample(soak: Soak, servers: dict[str, Pinned]) -> None:
    held = {}
    for name, server in servers.items():
        for pid in server.pids():
            if (now := usage(pid)) is not None:
                held[pid] = now
                if pid not in soak.names:
                    known = sum(other.startswith(f"{name}, child") for other in soak.names.values())
                    soak.names[pid] = name if pid == server.process.pid else f"{name}, child {known + 1}"
    soak.samples.append(Sample(soak.sent, held))


def _result(soak: Soak, seconds: float) -> dict[str, Any]:
    judged = [sample for sample in soak.samples if sample.sent >= WARM_SHARE * soak.requests]
    always = set.intersection(*(set(sample.held) for sample in judged))
    changed = sorted(soak.names[pid] for pid in {pid for sample in judged for pid in sample.held} - always)
    processes = {soak.names[pid]: _slopes(judged, pid) for pid in sorted(always)}
    judging = soak.requests >= JUDGED_REQUESTS
    growing = [
        f"{what} of {name} by {slopes[what]:.1f} per 100,000 requests"
        for name, slopes in processes.items()
        for what, limit in LIMITS.items()
        if judging and slopes[what] > limit
    ]
    passed = "flat" if judging else "too short to judge"
    return {
        "verdict": "fails" if soak.unforeseen or changed or growing else passed,
        "requests": soak.sent,
        "seconds": round(seconds, 1),
        "max_rss_slope_kib_per_100k": max(slopes["rss_kib"] for slopes in processes.values()),
        "slopes_per_100k": processes,
        "growing": growing,
        "processes_that_came_or_went": changed,
        "outcomes": dict(sorted(soak.outcomes.items())),
        "unforeseen": dict(soak.unforeseen),
    }


def _slopes(samples: list[Sample], pid: int) -> dict[str, float]:
    """Least squares, per 100,000 requests."""
    at = [sample.sent / 100_000 for sample in samples]
    series: dict[str, list[float]] = {
        "rss_kib": [sample.held[pid].rss_bytes / 1024 for sample in samples],
        "descriptors": [sample.held[pid].descriptors for sample in samples],
        "threads": [sample.held[pid].threads for sample in samples],
    }
    return {name: round(statistics.linear_regression(at, values).slope, 3) for name, values in series.items()}


def _print(soak: Soak, result: dict[str, Any]) -> None:
    names = sorted(soak.names.items(), key=lambda item: item[1])
    print(f"{'requests':>10}  " + "".join(f"{name:>34}" for _, name in names))
    print(f"{'':10}  " + f"{'RSS MiB  descriptors  threads':>34}" * len(names))
    step = max(1, len(soak.samples) // SHOWN)
    for sample in soak.samples[step - 1 :: step]:
        print(f"{sample.sent:10}  " + "".join(_cell(sample.held.get(pid)) for pid, _ in names))
    print("\nslopes per 100,000 requests, after the warm-up")
    for name, slopes in result["slopes_per_100k"].items():
        print(f"  {name:32}" + "".join(f"{slopes[key]:12.2f} {key}" for key in LIMITS))
    print("outcomes: " + ", ".join(f"{name} × {count}" for name, count in result["outcomes"].items()))
    for name, count in result["unforeseen"].items():
        print(f"unforeseen: {name} × {count}")
    for name in result["processes_that_came_or_went"]:
        print(f"came or went meanwhile: {name}")
    print(f"{result['verdict']}: {result['requests']} requests in {result['seconds']} s {'; '.join(result['growing'])}")


def _cell(held: Usage | None) -> str:
    return f"{held.rss_bytes / 2**20:17.1f}{held.descriptors:8}{held.threads:9}" if held else f"{'gone':>34}"


if __name__ == "__main__":
    main()
