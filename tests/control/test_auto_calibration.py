"""Control calibrates new versions by itself: real control, real replicas, real calibrations; only the time is short."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from contextlib import suppress

import httpx
import msgspec
import pytest

from steelyard.contracts.replica import LoadReport
from steelyard.contracts.snapshot import Snapshot
from steelyard.settings import Settings
from support.models import save_iris_classifier
from support.waiting import wait_until

BASE = "/api/2.0/serving-endpoints"
NAMES = ("one", "two", "three")


class Control:
    def __init__(self, home):
        self.settings = Settings(home=home)
        home.mkdir()
        environment = {
            **os.environ, "STEELYARD_HOME": str(home), "STEELYARD_ROUTERS": "0", "STEELYARD_DRAIN_TIMEOUT_S": "1",
            "STEELYARD_AUTO_CALIBRATION": "1", "STEELYARD_CALIBRATION_QUIET_S": "1",
            "STEELYARD_CALIBRATION_BUDGET_S": "10",
        }  # fmt: skip
        self.log = home / "control.log"
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "steelyard.control"], stdout=log, stderr=log, env=environment,
                start_new_session=True,
            )  # fmt: skip
        self.http = client(self.settings.control_address)
        wait_until(self.answers, 60)

    def answers(self):
        assert self.process.poll() is None, self.log.read_text()
        with suppress(httpx.HTTPError):
            return self.http.get("/livez").status_code == 200

    def jobs(self, name):
        return self.http.get(f"{BASE}/{name}/calibrations").json().get("calibrations", [])

    def running(self):
        """The endpoint that is being loaded now."""
        return next((name for name in NAMES if any(job["state"] == "RUNNING" for job in self.jobs(name))), None)

    def events(self, name):
        return {event["kind"]: event["message"] for event in self.http.get(f"{BASE}/{name}/events").json()["events"]}

    def snapshot(self):
        return msgspec.json.decode(self.http.get("/internal/snapshot").content, type=Snapshot)

    def entity(self, name):
        return next(item.served_entities[0] for item in self.snapshot().endpoints if item.name == name)

    def close(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(60)
        shutil.rmtree(self.settings.sockets, ignore_errors=True)


def client(address):
    transport = httpx.HTTPTransport(uds=address.removeprefix("unix:"))
    return httpx.Client(transport=transport, base_url="http://local", timeout=30, trust_env=False)


@pytest.mark.slow
def test_new_versions_are_calibrated_in_quiet_give_way_and_share_what_was_learnt(tmp_path):
    model = save_iris_classifier(tmp_path / "iris")
    control = Control(tmp_path / "home")
    try:
        for name in NAMES:
            given = {"name": name, "config": {"served_entities": [{"name": "m", "entity_name": model.uri}]}}
            control.http.post(BASE, json=given).raise_for_status()
        first = wait_until(control.running, 120)
        with client(control.entity(first).replicas[0].address) as replica:
            seen = lambda: msgspec.json.decode(replica.get("/load").content, type=LoadReport)  # noqa: E731
            wait_until(lambda: seen().completed_total > 100 or control.running() is None, 60)
            before = seen()
            assert before.user_requests_total == 0  # a calibration is no user
            assert replica.post("/invocations", json={"dataframe_split": model.split}).status_code == 200
            wait_until(lambda: "calibration_put_off" in control.events(first), 60)
            assert seen().user_requests_total == 1
        assert control.entity(first).cost is None
        assert "gave way" in control.events(first)["calibration_put_off"]
        (stopped,) = control.jobs(first)
        assert (stopped["state"], stopped["message"]) == ("FAILED", "The calibration was stopped.")

        others = [name for name in NAMES if name != first]
        wait_until(lambda: all("calibrated" in control.events(name) for name in others), 120)
        measured = [name for name in others if "serves the same files" not in control.events(name)["calibrated"]]
        assert len(measured) == 1  # and the other one took it over
        costs = [control.entity(name).cost for name in others]
        assert costs[0] == costs[1]
        assert costs[0].coefficients["row"] > 0
        results = [control.jobs(name)[0]["result"] for name in others]
        assert [result["endpoint"] for result in results] == others
        assert results[0]["model_hash"] == results[1]["model_hash"] != ""
        assert "per row" in control.events(others[0])["calibrated"]
    finally:
        control.close()
