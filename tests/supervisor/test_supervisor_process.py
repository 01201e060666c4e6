"""A whole platform under its supervisor: what is killed comes back, and at the end nothing is left."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import httpx
import pytest

from steelyard.settings import Settings
from support.models import save_python_model
from support.processes import processes_of
from support.waiting import wait_until

BASE = "/api/2.0/serving-endpoints"
TESTS = str(Path(__file__).parents[1])
MODEL = "class Model(PythonModel):\n    def predict(self, context, model_input, params=None):\n        return [0]"


class Platform:
    def __init__(self, home: Path, port: int = 0, **environment: str) -> None:
        self.home = home
        self.process = subprocess.Popen(
            [sys.executable, "-m", "support.run_supervisor", str(home), str(port)],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
            env={**os.environ, "PYTHONPATH": TESTS, **environment},
        )  # fmt: skip
        self.first_line = self.process.stdout.readline()

    def told(self) -> dict:
        assert self.first_line.startswith("{"), self.first_line + self.process.stdout.read()
        return json.loads(self.first_line)

    def client(self) -> httpx.Client:
        told = self.told()
        headers = {"authorization": f"Bearer {told['token']}"}
        return httpx.Client(base_url=told["url"], headers=headers, timeout=10, trust_env=False)

    def pids(self, role: str) -> list[int]:
        return [item.pid for item in processes_of(self.home, role) if item.pid != self.process.pid]

    def end(self, how: signal.Signals = signal.SIGTERM) -> tuple[int, str]:
        self.process.send_signal(how)
        output = self.process.stdout.read()
        return self.process.wait(30), output

    def nothing_left(self) -> bool:
        return not processes_of(self.home)

    def close(self) -> None:
        self.process.kill()
        self.process.wait(10)
        wait_until(self.nothing_left, 20)
        shutil.rmtree(Settings(home=self.home).sockets, ignore_errors=True)


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> str:
    return save_python_model(tmp_path_factory.mktemp("models") / "zero", MODEL)


@pytest.fixture
def home(tmp_path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def platform_of(home):
    started: list[Platform] = []

    def start(**more) -> Platform:
        started.append(Platform(home, **more))
        return started[-1]

    yield start
    for platform in started:
        platform.close()


def deploy(http: httpx.Client, uri: str) -> None:
    body = {"name": "zero", "config": {"served_entities": [{"name": "m", "entity_name": uri}]}}
    http.post(BASE, json=body).raise_for_status()
    ready = {"ready": "READY", "config_update": "NOT_UPDATING"}
    wait_until(lambda: http.get(f"{BASE}/zero").json()["state"] == ready, 60)


def answers(http: httpx.Client) -> bool:
    try:
        return http.post("/serving-endpoints/zero/invocations", json={"inputs": [1]}).json() == {"predictions": [0]}
    except httpx.HTTPError:
        return False


@pytest.mark.slow
def test_killed_control_and_router_come_back_replicas_stay_and_sigterm_leaves_nothing(platform_of, model):
    platform = platform_of()
    with platform.client() as http:
        assert httpx.get(platform.told()["url"] + BASE).status_code == 401
        deploy(http, model)
        wait_until(lambda: answers(http), 10)
        replicas, (control,), (router,) = (
            platform.pids("steelyard.replica"), platform.pids("steelyard.control"), platform.pids("steelyard.router")
        )  # fmt: skip
        os.kill(control, signal.SIGKILL)
        assert answers(http)
        wait_until(lambda: platform.pids("steelyard.control") not in ([], [control]), 10)
        wait_until(lambda: http.get(f"{BASE}/zero").status_code == 200, 20)
        assert http.get(f"{BASE}/zero").json()["state"]["ready"] == "READY"
        assert answers(http)
        os.kill(router, signal.SIGKILL)
        wait_until(lambda: answers(http), 20)
        assert platform.pids("steelyard.replica") == replicas
    sockets = Settings(home=platform.home).sockets
    assert sockets.exists()
    assert platform.end() == (0, "stopped\n")
    assert platform.nothing_left()
    assert not sockets.exists()


@pytest.mark.slow
def test_kill_of_the_supervisor_ends_everything_and_the_next_one_starts_on_the_same_home(platform_of, home, model):
    first = platform_of()
    with first.client() as http:
        deploy(http, model)
    assert first.pids("steelyard.replica")
    told = first.told()
    first.process.kill()
    first.process.wait(10)
    (home / "client.json").write_text(json.dumps({"url": told["url"], "token": told["token"]}))
    second = platform_of()
    assert second.told()["token"] is None, "the saved token opens the platform, so there is no new one"
    headers = {"authorization": f"Bearer {told['token']}"}
    with httpx.Client(base_url=second.told()["url"], headers=headers, timeout=10) as http:
        wait_until(lambda: http.get(f"{BASE}/zero").json()["state"]["ready"] == "READY", 60)
    second.process.kill()
    second.process.wait(10)
    wait_until(second.nothing_left, 15)


@pytest.mark.slow
def test_second_supervisor_on_one_home_is_refused_and_names_the_first(platform_of, home):
    first = platform_of()
    first.told()
    second = platform_of()
    assert second.process.wait(20) == 1
    assert second.first_line == f"refused: A platform runs on {home} already (process {first.process.pid}).\n"
    assert first.pids("steelyard.control")


def test_taken_port_is_refused_in_one_line(platform_of):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        platform = platform_of(port=port)
        assert platform.process.wait(20) == 1
    assert platform.first_line.startswith(f"refused: 127.0.0.1:{port} cannot be listened on")
    assert platform.nothing_left()


def test_process_that_cannot_start_is_named_with_its_reason(platform_of):
    platform = platform_of(STEELYARD_STORE_URL="mysql://h/d")
    assert platform.process.wait(60) == 1
    assert platform.first_line == "refused: control does not start: The store can be sqlite or postgresql, not mysql.\n"
    assert platform.nothing_left()


def test_home_that_is_a_file_is_refused(platform_of, home):
    home.write_text("")
    platform = platform_of()
    assert platform.first_line.startswith(f"refused: The home folder {home} cannot be used")


def test_signal_during_the_start_ends_it_and_leaves_nothing(platform_of, home):
    watcher = threading.Thread(target=lambda: wait_until(lambda: processes_of(home, "steelyard.control"), 20))
    watcher.start()

    def interrupt() -> None:
        watcher.join()
        (pid,) = [item.pid for item in processes_of(home, "run_supervisor")]
        os.kill(pid, signal.SIGINT)

    interrupter = threading.Thread(target=interrupt)
    interrupter.start()
    platform = platform_of()
    interrupter.join()
    assert platform.process.wait(30) in (0, 1)
    assert platform.nothing_left()
