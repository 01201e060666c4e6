"""Who takes part in `classic.py`: how each server is started on a model and how its clients ask it.

A contender is started twice per model, so all that it leaves behind between two starts lies in the folder it is given.
Peers run in the environments that `peers/install.py` makes; those that are not there are left out.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from peers.install import interpreter
from rig.dialects import MLFLOW, PLAIN, V2, Dialect
from rig.ours import TOKEN, settings_in, start_replica, start_router
from rig.processes import Pinned, free_port

PEERS = Path(__file__).resolve().parents[1] / "peers"
QUIET = {  # nobody reports its use, and nobody logs each request
    "DO_NOT_TRACK": "1",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "BENTOML_DO_NOT_TRACK": "True",
    "RAY_USAGE_STATS_ENABLED": "0",
}


@dataclass(frozen=True, slots=True)
class Model:
    name: str  # "linear", "lightgbm", "forest", "wide"
    folder: Path  # as `train.py` leaves it

    @property
    def is_booster(self) -> bool:
        return (self.folder / "model.txt").exists()


@dataclass(frozen=True, slots=True)
class Target:
    """One door that is measured, and the processes behind it."""

    name: str
    address: str  # "tcp:host:port" or "unix:/path"
    path: str
    dialect: Dialect
    servers: tuple[Pinned, ...]
    token: str = ""
    note: str = ""  # what was chosen at the start
    ready_s: float | None = None  # its own time from start to readiness; None: that of the first answer

    def pids(self) -> list[int]:
        return sorted({pid for server in self.servers for pid in server.pids()})


@dataclass(frozen=True, slots=True)
class Contender:
    """`start` leaves its processes on the stack; the first target is the whole of it."""

    name: str
    kind: Literal["ours", "mlflow", "peer", "floor"]
    start: Callable[[Model, Path, ExitStack], list[Target]]
    apart: bool = False  # it works while idle, so it is up only when nobody else is measured


def contenders(with_peers: bool) -> tuple[list[Contender], list[str]]:
    """Those that can take part, and a sentence about each peer that cannot."""
    chosen = [
        Contender("steelyard", "ours", _start_steelyard),
        Contender("mlflow", "mlflow", _start_mlflow),
        Contender("floor", "floor", _start_floor),
    ]
    missing = []
    for environment, contender in _PEER_CONTENDERS if with_peers else []:
        if interpreter(environment).exists():
            chosen.append(contender)
        else:
            missing.append(f"{contender.name} is left out: python benchmarks/peers/install.py {environment}")
    return chosen, missing


def _start_steelyard(model: Model, home: Path, stack: ExitStack) -> list[Target]:
    settings = settings_in(home, stack)
    begin_s = time.monotonic()
    replica = start_replica(settings, stack, model.name, model.folder / "mlflow")
    ready_s = time.monotonic() - begin_s
    router = start_router(settings, stack, {model.name: replica.view})
    note, path = replica.runtime, f"/serving-endpoints/{model.name}/invocations"
    door, both, alone = f"tcp:127.0.0.1:{settings.port}", (router, replica.server), (replica.server,)
    return [
        Target("steelyard", door, path, MLFLOW, both, TOKEN, note),
        Target("steelyard replica", replica.view.address, "/invocations", MLFLOW, alone, note=note, ready_s=ready_s),
    ]


def _start_mlflow(model: Model, home: Path, stack: ExitStack) -> list[Target]:
    port = free_port()
    command = [sys.executable, "-m", "mlflow", "models", "serve", "--model-uri", str(model.folder / "mlflow")]
    command += ["--env-manager", "local", "--workers", "1", "--host", "127.0.0.1", "--port", str(port)]
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"  # it looks for uvicorn there
    server = stack.enter_context(Pinned(command, home / "mlflow.log", env=QUIET | {"PATH": path}))
    return [Target("mlflow", f"tcp:127.0.0.1:{port}", "/invocations", MLFLOW, (server,))]


def _start_floor(model: Model, home: Path, stack: ExitStack) -> list[Target]:
    port = free_port()
    command = [sys.executable, str(PEERS / "floor_server.py"), str(port)]
    server = stack.enter_context(Pinned(command, home / "floor.log"))
    return [Target("floor", f"tcp:127.0.0.1:{port}", "/", PLAIN, (server,))]


def _start_litserve(model: Model, home: Path, stack: ExitStack) -> list[Target]:
    port = free_port()
    command = [str(interpreter("litserve")), str(PEERS / "litserve_server.py"), str(model.folder), str(port)]
    server = stack.enter_context(Pinned(command, home / "litserve.log", env=QUIET))
    return [Target("litserve", f"tcp:127.0.0.1:{port}", "/predict", PLAIN, (server,))]


def _start_bentoml(model: Model, home: Path, stack: ExitStack) -> list[Target]:
    port = free_port()
    command = [str(interpreter("bentoml")), "-m", "bentoml", "serve", "bentoml_service:Classic"]
    command += ["--working-dir", str(PEERS), "--host", "127.0.0.1", "--port", str(port)]
    environment = QUIET | {"MODEL_FOLDER": str(model.folder), "BENTOML_HOME": str(home / "bentoml")}
    server = stack.enter_context(Pinned(command, home / "bentoml.log", env=environment))
    return [Target("bentoml", f"tcp:127.0.0.1:{port}", "/predict", PLAIN, (server,))]


def _start_ray(model: Model, home: Path, stack: ExitStack) -> list[Target]:
    port = free_port()
    scratch = home / "r"
    command = [str(interpreter("ray")), str(PEERS / "ray_server.py"), str(model.folder), str(port), str(scratch)]
    environment = QUIET | {"RAY_SERVE_THROUGHPUT_OPTIMIZED": "1", "RAY_raylet_start_wait_time_s": "300"}
    server = stack.enter_context(Pinned(command, home / "ray.log", env=environment))
    return [Target("ray serve", f"tcp:127.0.0.1:{port}", "/", PLAIN, (server,))]


def _start_mlserver_mlflow(model: Model, home: Path, stack: ExitStack) -> list[Target]:
    return _start_mlserver(
        "mlserver mlflow", home, stack, "mlserver_mlflow.MLflowRuntime", model.folder / "mlflow", "/invocations", MLFLOW
    )


def _start_mlserver_native(model: Model, home: Path, stack: ExitStack) -> list[Target]:
    if model.is_booster:
        implementation, file = "mlserver_lightgbm.LightGBMModel", "model.txt"
    else:
        implementation, file = "mlserver_sklearn.SKLearnModel", "model.joblib"
    return _start_mlserver(
        "mlserver native", home, stack, implementation, model.folder / file, "/v2/models/classic/infer", V2
    )


def _start_mlserver(
    name: str, home: Path, stack: ExitStack, implementation: str, uri: Path, path: str, dialect: Dialect
) -> list[Target]:
    """No parallel workers: on one core the hop to them costs more than most predictions."""
    port = free_port()
    settings = {
        "debug": False,
        "host": "127.0.0.1",
        "http_port": port,
        "grpc_port": free_port(),
        "metrics_port": free_port(),
        "metrics_dir": str(home),
        "parallel_workers": 0,
    }
    (home / "settings.json").write_text(json.dumps(settings))
    served = {"name": "classic", "implementation": implementation, "parameters": {"uri": str(uri)}}
    (home / "model-settings.json").write_text(json.dumps(served))
    command = [str(interpreter("mlserver").with_name("mlserver")), "start", str(home)]
    server = stack.enter_context(Pinned(command, home / "mlserver.log", env=QUIET))
    return [Target(name, f"tcp:127.0.0.1:{port}", path, dialect, (server,))]


_PEER_CONTENDERS = [
    ("litserve", Contender("litserve", "peer", _start_litserve)),
    ("bentoml", Contender("bentoml", "peer", _start_bentoml)),
    ("mlserver", Contender("mlserver mlflow", "peer", _start_mlserver_mlflow)),
    ("mlserver", Contender("mlserver native", "peer", _start_mlserver_native)),
    ("ray", Contender("ray serve", "peer", _start_ray, apart=True)),
]
