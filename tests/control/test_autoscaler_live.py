"""The autoscaler with real processes: control, a router, replicas that start in milliseconds, and clients that ask.

One world for all tests, in order; its policy's time passes 30 times as fast, so that five minutes are ten seconds.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections import Counter

import httpx
import pytest

from steelyard.cli.main import run
from steelyard.policy.scaling_log import replay
from support.control_process import BASE, Control
from support.load import Load
from support.platform import free_port
from support.waiting import wait_until

SPEED = 30
PATIENCE_S = 120.0  # far more than it takes: a machine that is busy elsewhere only makes it late
BODY = {"instances": [1]}
PATH = "/serving-endpoints/e/invocations"


def entity(**sizes) -> dict:
    variables = {"TINY_CONCURRENCY": "2", "TINY_SLEEP_S": "0.2"}
    return {"name": "m", "entity_name": "models:/tiny/1", "environment_vars": variables, **sizes}


class World:
    """A control and a router that share a home, and an endpoint `e`."""

    def __init__(self, home) -> None:
        self.port = free_port()
        settings = {
            "STEELYARD_PORT": str(self.port),
            "STEELYARD_AUTOSCALING_SPEED": str(SPEED),
            "STEELYARD_SCALE_TO_ZERO_AFTER_S": "60",
            "STEELYARD_DRAIN_TIMEOUT_S": "10",
        }
        self.control = Control(home, routers=1, more=settings)
        self.control.start()
        with (home / "router.log").open("wb") as log:
            self.router = subprocess.Popen(
                [sys.executable, "-m", "steelyard.router"],
                env={**os.environ, **settings, "STEELYARD_HOME": str(home), "STEELYARD_ROUTERS": "1"},
                stdout=log, stderr=log,
            )  # fmt: skip
        self.token = self.control.http.post("/internal/first-token").json()["token"]
        self.log = home / "autoscaling" / "decisions.jsonl"

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def deploy(self, **sizes) -> None:
        body = {"name": "e", "config": {"served_entities": [entity(**sizes)]}}
        self.control.http.post(BASE, json=body).raise_for_status()
        self.control.wait_ready()
        wait_until(lambda: self.control.http.get("/internal/routers").json()["up_to_date"], PATIENCE_S)

    def counts(self) -> tuple[int, int]:
        """Ready and wanted replicas."""
        (served,) = self.control.get()["config"]["served_entities"]
        return served["ready_replicas"], served["replicas"]

    def kinds(self) -> Counter[str]:
        return Counter(event["kind"] for event in self.control.http.get(f"{BASE}/e/events").json()["events"])

    def close(self) -> None:
        self.router.terminate()
        self.router.wait(20)
        self.control.close()


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    made = World(tmp_path_factory.mktemp("autoscaler"))
    yield made
    made.close()


@pytest.fixture(scope="module")
def scaled(world):
    """The endpoint under a load that needs many replicas, then without; what its clients saw."""
    world.deploy(min_provisioned_concurrency=1, max_provisioned_concurrency=16)
    assert world.counts() == (1, 1)
    with Load(world.url, world.token, PATH, BODY, clients=10) as load:
        wait_until(lambda: world.counts()[0] >= 4, PATIENCE_S)
        world.most = world.counts()[1]
        world.control.process.send_signal(signal.SIGKILL)
        world.control.process.wait(10)
        world.logged = len(world.log.read_text().splitlines())
        world.control.start()
        wait_until(lambda: world.counts()[0] >= 4, PATIENCE_S)
        sent = load.sent
        wait_until(lambda: load.sent > sent + 50, PATIENCE_S)
    wait_until(lambda: world.counts() == (1, 1), PATIENCE_S)
    return load


def test_a_load_step_starts_replicas_and_nothing_is_lost_on_the_way_up_or_down(world, scaled):
    assert set(scaled.outcomes) == {200}, scaled.outcomes
    assert world.most <= 8  # 16 requests at once, of which a replica holds 2
    kinds = world.kinds()
    assert kinds["scaled_up"] >= 1
    assert kinds["scaled_down"] >= 1
    assert kinds["replica_died"] == 0


def test_a_control_that_was_killed_goes_on_from_what_it_knew(world, scaled):
    lines = [json.loads(line) for line in world.log.read_text().splitlines()[world.logged :]]
    begin = lines[0]
    assert begin["kind"] == "begin"
    assert begin["state"]["wanted"] >= 4
    assert begin["state"]["needs"]  # what the window down has seen
    first = lines[1]
    assert first["numbers"]["before"] == begin["state"]["wanted"]


def test_what_was_decided_is_decided_again_from_the_log(world, scaled, capsys, tmp_path):
    log = tmp_path / "decisions.jsonl"
    log.write_text(world.log.read_text())  # it still grows
    found = replay(log.read_text().splitlines())
    assert len(found) > 50
    assert all(item.same for item in found)
    assert max(item.recorded.replicas for item in found) >= 4
    assert run(["autoscaling", "replay", str(log)]) == 0
    assert f"{len(found)} decisions, 0 come out differently." in capsys.readouterr().out


def test_an_idle_endpoint_goes_to_zero_and_a_herd_of_first_requests_is_held_and_answered(world, scaled):
    body = {"served_entities": [entity(scale_to_zero_enabled=True, max_provisioned_concurrency=16)]}
    world.control.http.put(f"{BASE}/e/config", json=body).raise_for_status()
    wait_until(lambda: world.counts() == (0, 0), PATIENCE_S)
    assert world.control.state() == ("READY", "NOT_UPDATING")
    wait_until(lambda: not world.control.records(), PATIENCE_S)
    before = world.kinds()
    replies = asyncio.run(herd(world, 200))
    assert Counter(reply.status_code for reply in replies) == {200: 200}
    assert world.kinds()["scaled_up"] > before["scaled_up"]
    assert world.counts()[1] <= 8
    assert all(item.same for item in replay(world.log.read_text().splitlines()))
    wait_until(lambda: world.counts() == (0, 0), PATIENCE_S)


async def herd(world, count):
    headers = {"authorization": f"Bearer {world.token}"}
    limits = httpx.Limits(max_connections=count)
    async with httpx.AsyncClient(base_url=world.url, headers=headers, timeout=PATIENCE_S, limits=limits) as client:
        return await asyncio.gather(*(client.post(PATH, json=BODY) for _ in range(count)))
