"""Control's real process on a home of its own, with tiny replicas, for tests of what it starts and when."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import msgspec

from steelyard.contracts.replica import ProcessRecord
from steelyard.contracts.snapshot import Snapshot
from steelyard.settings import Settings
from steelyard.substrate import processes
from support.waiting import wait_until

BASE = "/api/2.0/serving-endpoints"
TESTS = Path(__file__).parents[1]


@dataclass
class Control:
    """A control on its own home; `start` may be called again after it has ended."""

    home: Path
    routers: int = 0
    more: dict[str, str] = field(default_factory=dict)
    lifeline: int = -1
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self.settings = Settings(home=self.home)
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])]),
            "STEELYARD_HOME": str(self.home),
            "STEELYARD_ROUTERS": str(self.routers),
            "STEELYARD_DRAIN_TIMEOUT_S": "1",
            "STEELYARD_AUTO_CALIBRATION": "0",
            "STEELYARD_LIFELINE_FD": str(self.lifeline),
            **self.more,
        }
        with (self.home / "control.log").open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "support.tiny_control"],
                stdout=log, stderr=log, env=environment, start_new_session=True,
                pass_fds=[self.lifeline] if self.lifeline >= 0 else [],
            )  # fmt: skip
        path = self.settings.control_address.removeprefix("unix:")
        self.http = httpx.Client(
            transport=httpx.HTTPTransport(uds=path), base_url="http://control", timeout=10, trust_env=False
        )
        wait_until(self.alive, 30)

    def alive(self) -> bool:
        assert self.process.poll() is None, (self.home / "control.log").read_text()
        try:
            return self.http.get("/livez").status_code == 200
        except httpx.HTTPError:
            return False

    def close(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            self.process.wait(20)
        for record in self.records().values():
            processes.kill_group(record)
        shutil.rmtree(Settings(home=self.home).sockets, ignore_errors=True)

    def deploy(self, name: str = "e", **environment: str) -> None:
        self.http.post(BASE, json={"name": name, "config": config(**environment)}).raise_for_status()

    def update(self, name: str = "e", **environment: str) -> None:
        self.http.put(f"{BASE}/{name}/config", json=config(**environment)).raise_for_status()

    def get(self, name: str = "e") -> dict:
        return self.http.get(f"{BASE}/{name}").json()

    def state(self, name: str = "e") -> tuple[str, str]:
        state = self.get(name)["state"]
        return state["ready"], state["config_update"]

    def wait_ready(self, name: str = "e") -> None:
        wait_until(lambda: self.state(name) == ("READY", "NOT_UPDATING"), 20)

    def wait_failed(self, name: str = "e") -> None:
        wait_until(lambda: self.state(name)[1] == "UPDATE_FAILED", 20)

    def events(self, name: str = "e") -> list[str]:
        return [event["message"] for event in self.http.get(f"{BASE}/{name}/events").json()["events"]]

    def records(self) -> dict[str, ProcessRecord]:
        """Live replicas by id."""
        found = {}
        for path in self.home.glob("replicas/*/process.json"):
            with suppress(FileNotFoundError):  # it is removed while we look
                record = msgspec.json.decode(path.read_bytes(), type=ProcessRecord)
                if processes.is_alive(record):
                    found[path.parent.name] = record
        return found

    def snapshot(self, after: int = -1, router: int = -1, wait_s: float = 5) -> Snapshot:
        params = {"after": after, "router": router, "wait_s": wait_s}
        return msgspec.json.decode(self.http.get("/internal/snapshot", params=params).content, type=Snapshot)

    def served(self) -> list[str]:
        """Replicas that routers may use."""
        return ids_in(self.snapshot())


def ids_in(snapshot: Snapshot) -> list[str]:
    entities = [entity for endpoint in snapshot.endpoints for entity in endpoint.served_entities]
    return [replica.id for entity in entities for replica in entity.replicas]


def config(**environment: str) -> dict:
    return {"served_entities": [{"name": "m", "entity_name": "models:/tiny/1", "environment_vars": environment}]}
