"""Starts Steelyard's own processes as the platform starts them: real replicas and a real router with a snapshot.

Used by `classic.py`, `soak.py` and `router.py`. There is no control process: the snapshot that control would send lies
on disk, and the router keeps asking for a newer one in vain.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import msgspec

from rig.loadgen import ask
from rig.processes import SERVER_CORE, Pinned, free_port
from steelyard.contracts.replica import FAILURE_FILE, SPEC_FILE, ReplicaSpec, ReplicaStatus
from steelyard.contracts.snapshot import EndpointView, ReplicaView, ServedEntityView, Snapshot, TokenView
from steelyard.settings import Settings

TOKEN = "benchmark-token"
READY_S = 600.0  # the first start of a model proves its runtimes
_GET_READY = b"GET /ready HTTP/1.1\r\nhost: replica\r\n\r\n"


@dataclass(frozen=True, slots=True)
class RunningReplica:
    server: Pinned
    view: ReplicaView  # as control would tell it to the routers
    runtime: str


def settings_in(home: Path, stack: ExitStack) -> Settings:
    """Settings of a platform of its own in `home`; its folder of sockets goes with the stack."""
    settings = Settings(home=home, port=free_port(), log_level="warning")
    home.mkdir(parents=True, exist_ok=True)
    settings.sockets.mkdir(mode=0o700, parents=True, exist_ok=True)
    stack.callback(shutil.rmtree, settings.sockets, ignore_errors=True)
    return settings


def start_replica(
    settings: Settings,
    stack: ExitStack,
    endpoint: str,
    model: Path,
    core: int | None = SERVER_CORE,
    program: tuple[str, ...] = ("-m", "steelyard.replica"),
) -> RunningReplica:
    """A replica that is ready; `program` is what Python runs. Raises SystemExit with its log when it cannot start."""
    folder = settings.replicas_dir / f"{endpoint}-1"
    folder.mkdir(parents=True, exist_ok=True)
    address = settings.replica_address(f"{endpoint}-1")
    spec = ReplicaSpec(
        id=f"{endpoint}-1", endpoint=endpoint, served_entity=f"{endpoint}-1", address=address, model_uri=str(model)
    )
    (folder / SPEC_FILE).write_bytes(msgspec.json.encode(spec))
    command = [sys.executable, *program, str(folder)]
    server = stack.enter_context(Pinned(command, folder / "log.txt", core, settings.to_env()))
    status = _await_ready(server, address, folder)
    view = ReplicaView(id=spec.id, address=address, max_concurrency=status.max_concurrency)
    return RunningReplica(server, view, status.runtime or "")


def start_router(
    settings: Settings, stack: ExitStack, replicas: dict[str, ReplicaView], core: int | None = SERVER_CORE
) -> Pinned:
    """The router, with one replica per endpoint's name; it may not answer yet."""
    endpoints = []
    for endpoint, view in replicas.items():
        entity = ServedEntityView(name=f"{endpoint}-1", traffic_percentage=100, replicas=[view])
        endpoints.append(
            EndpointView(name=endpoint, creation_timestamp=0, creator="benchmark", served_entities=[entity])
        )
    token = TokenView(sha256=hashlib.sha256(TOKEN.encode()).hexdigest(), principal="benchmark")
    snapshot = Snapshot(version=1, tokens=[token], endpoints=endpoints)
    (settings.home / "router-snapshot.json").write_bytes(msgspec.json.encode(snapshot))
    environment = {**settings.to_env(), "STEELYARD_DRAIN_TIMEOUT_S": "1"}
    command = [sys.executable, "-m", "steelyard.router", "--index", "0"]
    return stack.enter_context(Pinned(command, settings.home / "router.log", core, environment))


def _await_ready(server: Pinned, address: str, folder: Path) -> ReplicaStatus:
    deadline_s = time.monotonic() + READY_S
    while time.monotonic() < deadline_s and server.process.poll() is None:
        try:
            reply = ask(address, _GET_READY, timeout_s=10)
            if reply.status == 200:
                return msgspec.json.decode(reply.body, type=ReplicaStatus)
        except OSError:
            pass
        time.sleep(0.01)
    failure = folder / FAILURE_FILE
    reason = json.loads(failure.read_bytes())["message"] if failure.exists() else "It was not ready in time."
    raise SystemExit(f"The replica cannot start. {reason}\n{server.tail()}")
