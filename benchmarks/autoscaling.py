"""A live run of the autoscaler: a load that steps up and back down, then to zero and a herd of first requests.

A whole platform, and a model that answers one request at a time per replica in 100 ms, as an accelerator does that a
batch does not help. Arrivals are open-loop (Poisson, seeded): they do not wait for answers. Writes what was seen each
second as CSV and PNG, and prints how the requests ended. A request that is lost, or a status but 200 and 429, fails it.

    python benchmarks/autoscaling.py [--step 30] [--out benchmarks/results] [--speed 1] [--json]
"""

from __future__ import annotations

import argparse
import asyncio
import csv
import itertools
import json
import os
import random
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec

from rig.processes import free_port
from steelyard.contracts.demand import DemandReport
from steelyard.errors import SteelyardError
from steelyard.policy.scaling_log import replay
from steelyard.settings import Settings
from steelyard.wire.client import Pool
from steelyard.wire.fetch import fetch

MODEL_CODE = """
import fcntl, os, tempfile, time
from mlflow.models import set_model
from mlflow.pyfunc import PythonModel


class Model(PythonModel):
    # One request at a time in each replica, however many threads and workers it has.
    def predict(self, context, model_input, params=None):
        with open(os.path.join(tempfile.gettempdir(), f"one-at-a-time-{os.getppid()}"), "w") as turn:
            fcntl.flock(turn, fcntl.LOCK_EX)
            time.sleep(0.1 * len(model_input))
        return [1] * len(model_input)


set_model(Model())
"""
BASE_PER_S, LOW_S, HIGH_S, AFTER_S, HERD = 2.0, 60.0, 180.0, 660.0, 200
IDLE_S = 60.0
DEADLINE_S = 60.0
BODY = b'{"instances": [1]}'


@dataclass(frozen=True, slots=True)
class Second:
    """What was seen at one moment; `refused` and `answered` since the moment before."""

    at_s: float
    offered_per_s: float
    ready: int
    wanted: int
    running: int
    queued: int
    answered: int
    refused: int


@dataclass(slots=True)
class Run:
    settings: Settings
    token: str
    speed: float
    seconds: list[Second] = field(default_factory=list)
    outcomes: Counter[str] = field(default_factory=Counter)
    took_s: list[float] = field(default_factory=list)
    offered_per_s: float = 0.0
    began_s: float = field(default_factory=time.monotonic)

    @property
    def headers(self) -> list[tuple[bytes, bytes]]:
        return [(b"authorization", f"Bearer {self.token}".encode()), (b"content-type", b"application/json")]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--step", type=float, default=30.0, help="requests a second at the height of the load")
    parser.add_argument("--speed", type=float, default=1.0, help="how much faster the policy's time passes")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results", help="folder for CSV and PNG")
    parser.add_argument("--json", action="store_true", help="end with one line of JSON")
    arguments = parser.parse_args()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="autoscaling-")))
        model = _save_model(folder / "model")
        settings, token = stack.enter_context(_platform(folder / "home", arguments.speed))
        run = Run(settings, token, arguments.speed)
        herd = asyncio.run(_all(run, model, arguments.step))
        found = replay((settings.autoscaling_dir / "decisions.jsonl").read_text().splitlines())
    figures = _figures(run, herd) | {"decisions": len(found), "replayed_alike": sum(item.same for item in found)}
    _write(run, arguments.out)
    for name, value in figures.items():
        print(f"{name:28}{value}")
    if arguments.json:
        print(json.dumps(figures | {"cores": os.cpu_count(), "step_per_s": arguments.step, "speed": arguments.speed}))
    bad = {outcome for outcome in run.outcomes if outcome not in {"200", "429"}}
    if bad or herd != {"200": HERD} or figures["decisions"] != figures["replayed_alike"]:
        sys.exit(f"Not every request was answered as it should: {dict(run.outcomes)}, the herd {dict(herd)}.")


async def _all(run: Run, model: Path, step_per_s: float) -> Counter[str]:
    door, router = Pool(f"tcp:127.0.0.1:{run.settings.port}"), Pool(run.settings.router_address(0))
    try:
        await _deploy(run, door, model)
        run.began_s = time.monotonic()
        async with asyncio.TaskGroup() as group:
            watch = group.create_task(_watch(run, door, router))
            async with asyncio.TaskGroup() as requests:
                for per_s, span_s in ((BASE_PER_S, LOW_S), (step_per_s, HIGH_S), (BASE_PER_S, AFTER_S)):
                    await _offer(run, door, requests, per_s, span_s / run.speed)
            run.offered_per_s = 0.0
            await _until(lambda: bool(run.seconds) and run.seconds[-1].ready == 0, 900 / run.speed + 60)
            before = Counter(run.outcomes)
            async with asyncio.TaskGroup() as requests:
                for _ in range(HERD):
                    requests.create_task(_ask(run, door))
            await asyncio.sleep(5)
            watch.cancel()
        return Counter({outcome: count for outcome, count in (run.outcomes - before).items() if count})
    finally:
        door.close()
        router.close()


async def _deploy(run: Run, door: Pool, model: Path) -> None:
    entity = {"name": "m", "entity_name": str(model), "scale_to_zero_enabled": True, "max_provisioned_concurrency": 64}
    body = json.dumps({"name": "e", "config": {"served_entities": [entity]}}).encode()
    reply = await fetch(door, "POST", b"/api/2.0/serving-endpoints", headers=run.headers, body=body)
    if reply.status != 200:
        raise SystemExit(f"The endpoint was not created: {reply.body.decode()}")
    while True:
        reply = await fetch(door, "GET", b"/api/2.0/serving-endpoints/e", headers=run.headers)
        if json.loads(reply.body)["state"] == {"ready": "READY", "config_update": "NOT_UPDATING"}:
            return
        await asyncio.sleep(0.2)


async def _offer(run: Run, door: Pool, requests: asyncio.TaskGroup, per_s: float, span_s: float) -> None:
    run.offered_per_s = per_s
    rng = random.Random(per_s)
    at_s, end_s = time.monotonic(), time.monotonic() + span_s
    while at_s < end_s:
        requests.create_task(_ask(run, door))
        at_s += rng.expovariate(per_s)
        await asyncio.sleep(max(0.0, at_s - time.monotonic()))


async def _ask(run: Run, door: Pool) -> None:
    begin_s = time.monotonic()
    try:
        path = b"/serving-endpoints/e/invocations"
        reply = await fetch(door, "POST", path, headers=run.headers, body=BODY, timeout_s=DEADLINE_S)
        run.outcomes[str(reply.status)] += 1
        run.took_s.append(time.monotonic() - begin_s)
    except SteelyardError as error:
        run.outcomes[type(error).__name__] += 1


async def _watch(run: Run, door: Pool, router: Pool) -> None:
    before = Counter[str]()
    while True:
        told = await fetch(door, "GET", b"/api/2.0/serving-endpoints/e", headers=run.headers)
        demand = msgspec.json.decode((await fetch(router, "GET", b"/demand")).body, type=DemandReport).entities[0]
        (entity,) = json.loads(told.body)["config"]["served_entities"]
        since, before = run.outcomes - before, Counter(run.outcomes)
        run.seconds.append(
            Second(
                round(time.monotonic() - run.began_s, 2),
                run.offered_per_s,
                entity["ready_replicas"],
                entity["replicas"],
                demand.running,
                demand.queued,
                since["200"],
                since["429"],
            )
        )
        await asyncio.sleep(1.0 / min(run.speed, 5.0))


async def _until(condition: Any, timeout_s: float) -> None:
    async with asyncio.timeout(timeout_s):
        while True:
            if condition():
                return
            await asyncio.sleep(0.2)


def _figures(run: Run, herd: Counter[str]) -> dict[str, Any]:
    seconds = run.seconds
    step_s = next((second.at_s for second in seconds if second.offered_per_s > BASE_PER_S), 0.0)
    most = max(second.ready for second in seconds)
    calm_s = [second.at_s for second in seconds if second.at_s > step_s and second.queued > 5 and second.offered_per_s]
    spans = [(after.at_s - now.at_s, now.ready) for now, after in itertools.pairwise(seconds)]
    replica_s = sum(span_s * ready for span_s, ready in spans)
    return {
        "requests": sum(run.outcomes.values()),
        "outcomes": dict(run.outcomes),
        "herd": dict(herd),
        "most_replicas": most,
        "most_wanted": max(second.wanted for second in seconds),
        "queue_gone_after_step_s": round(max(calm_s, default=step_s) - step_s, 1),
        "took_p50_s": round(statistics.median(run.took_s), 3),
        "took_p99_s": round(statistics.quantiles(run.took_s, n=100)[98], 3),
        "replica_seconds": round(replica_s),
        "saved_vs_static_peak": round(1 - replica_s / (most * (seconds[-1].at_s - seconds[0].at_s)), 3),
    }


def _write(run: Run, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "autoscaling_live.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, [item.name for item in fields(Second)])
        writer.writeheader()
        writer.writerows(map(asdict, run.seconds))
    try:
        from matplotlib import pyplot
    except ImportError:
        print("No picture: matplotlib is not installed.")
        return
    pyplot.switch_backend("Agg")
    figure, panels = pyplot.subplots(4, 1, figsize=(9, 9), sharex=True, layout="constrained")
    at_s = [second.at_s for second in run.seconds]
    shown = [
        ("requests/s", {"offered": "offered_per_s"}),
        ("replicas", {"ready": "ready", "wanted": "wanted"}),
        ("requests", {"at replicas": "running", "waiting": "queued"}),
        ("since last look", {"answered": "answered", "429": "refused"}),
    ]
    for panel, (title, lines) in zip(panels, shown, strict=True):
        for label, name in lines.items():
            panel.step(at_s, [getattr(second, name) for second in run.seconds], where="post", label=label, linewidth=1)
        panel.set_ylabel(title)
        panel.legend(loc="upper right", frameon=False)
        panel.grid(alpha=0.3)
    panels[2].set_yscale("symlog")
    panels[-1].set_xlabel("seconds")
    figure.savefig(folder / "autoscaling_live.png", dpi=110)


def _save_model(folder: Path) -> Path:
    import mlflow.pyfunc

    code = folder.with_suffix(".py")
    code.write_text(MODEL_CODE)
    mlflow.pyfunc.save_model(folder, python_model=str(code), pip_requirements=[])
    return folder


@contextmanager
def _platform(home: Path, speed: float) -> Iterator[tuple[Settings, str]]:
    settings = Settings(home=home, port=free_port())
    more = {
        "STEELYARD_AUTO_CALIBRATION": "0",
        "STEELYARD_AUTOSCALING_SPEED": str(speed),
        "STEELYARD_SCALE_TO_ZERO_AFTER_S": str(IDLE_S),
    }
    command = [sys.executable, "-m", "steelyard.cli.main", "up", "--home", str(home), "--port", str(settings.port)]
    home.mkdir()
    with (home.parent / "up.log").open("wb") as log:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env={**os.environ, **more},
            start_new_session=True,
        )  # fmt: skip
    try:
        deadline_s = time.monotonic() + 120
        while not settings.client_file.exists() or "Ctrl-C" not in (home.parent / "up.log").read_text():
            if process.poll() is not None or time.monotonic() > deadline_s:
                raise SystemExit((home.parent / "up.log").read_text())
            time.sleep(0.1)
        yield settings, json.loads(settings.client_file.read_text())["token"]
    finally:
        process.terminate()
        process.wait(60)


if __name__ == "__main__":
    main()
