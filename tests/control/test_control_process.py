"""Control as a process with real (tiny) replica processes: what it starts, replaces, adopts, drains and leaves."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys

import pytest

from steelyard.substrate import processes
from support.control_process import BASE, Control, config, ids_in
from support.waiting import wait_until


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    made = Control(tmp_path_factory.mktemp("control"))
    yield made
    made.close()


@pytest.fixture
def control(shared):
    """One control for all tests that can share it, started again if the last one ended it; empty at each start."""
    if shared.process is None or shared.process.poll() is not None:
        shared.start()
    for endpoint in shared.http.get(BASE).json()["endpoints"]:
        shared.http.delete(f"{BASE}/{endpoint['name']}").raise_for_status()
    wait_until(lambda: not shared.records() and not shared.snapshot().endpoints, 20)
    return shared


def test_endpoint_becomes_ready_and_reaches_the_snapshot(control):
    control.deploy(TINY_CONCURRENCY="3")
    control.wait_ready()
    (replica,) = control.records()
    assert control.served() == [replica]
    entity = control.get()["config"]["served_entities"][0]
    assert (entity["runtime"], entity["ready_replicas"], entity["replicas"]) == ("tiny", 1, 1)
    assert "tiny replica" in control.http.get(f"{BASE}/e/served-models/m/logs").json()["logs"]


def test_killed_replica_is_replaced(control):
    control.deploy()
    control.wait_ready()
    ((replica, record),) = control.records().items()
    os.kill(record.pid, signal.SIGKILL)
    wait_until(lambda: replica not in control.served() and control.served(), 10)
    control.wait_ready()
    assert replica not in control.records()
    assert any("was killed by SIGKILL" in message for message in control.events())


def test_several_replicas_start_when_one_cannot_hold_the_wanted_concurrency(control):
    wide = config(TINY_CONCURRENCY="2")
    wide["served_entities"][0]["min_provisioned_concurrency"] = 6
    control.http.post(BASE, json={"name": "e", "config": wide}).raise_for_status()
    control.wait_ready()
    assert len(control.records()) == 3
    narrow = config(TINY_CONCURRENCY="2")
    control.http.put(f"{BASE}/e/config", json=narrow).raise_for_status()
    wait_until(lambda: len(control.records()) == 1, 10)
    assert len(control.served()) == 1


def test_killed_control_leaves_replicas_alone_and_its_successor_adopts_them(control):
    control.deploy()
    control.wait_ready()
    before, snapshot = control.records(), control.snapshot()
    control.process.kill()
    control.process.wait(5)
    assert control.records() == before
    control.start()
    after = control.snapshot()
    assert control.records() == before
    assert after.endpoints == snapshot.endpoints
    assert after.version > snapshot.version
    control.wait_ready()
    assert control.records() == before


def test_successor_replaces_what_died_and_ends_what_is_no_longer_wanted(control):
    control.deploy("kept")
    control.deploy("orphan")
    control.wait_ready("kept")
    control.wait_ready("orphan")
    control.process.kill()
    control.process.wait(5)
    before = control.records()
    (kept,) = [name for name in before if name.startswith("kept")]
    os.kill(before[kept].pid, signal.SIGKILL)
    with sqlite3.connect(control.home / "steelyard.db") as database:
        database.execute("DELETE FROM endpoints WHERE name = 'orphan'")
    control.start()
    control.wait_ready("kept")
    wait_until(lambda: all(name.startswith("kept") for name in control.records()), 10)
    assert kept not in control.records()


def test_update_that_fails_keeps_the_old_replica_and_tells_why(control):
    control.deploy()
    control.wait_ready()
    before = control.records()
    control.update(TINY_FAIL="the weights are missing")
    control.wait_failed()
    assert control.state() == ("READY", "UPDATE_FAILED")
    assert control.records() == before
    failed = control.get()["pending_config"]["served_entities"][0]["state"]
    assert failed == {"deployment": "DEPLOYMENT_FAILED", "deployment_state_message": "the weights are missing"}
    assert any("the weights are missing" in message for message in control.events())
    control.update(FINE="now")
    control.wait_ready()
    assert control.records().keys() != before.keys()


def test_update_that_dies_silently_is_tried_again_and_fails_with_its_last_words(control):
    control.deploy(TINY_EXIT="7", TINY_PRINT="goodbye")
    control.wait_failed()
    assert control.state() == ("NOT_READY", "UPDATE_FAILED")
    assert sum("starts" in message for message in control.events()) == 4
    state = control.get()["pending_config"]["served_entities"][0]["state"]
    assert "exited with status 7" in state["deployment_state_message"]
    assert "goodbye" in state["deployment_state_message"]
    assert "goodbye" in control.http.get(f"{BASE}/e/served-models/m/build-logs").json()["logs"]


def test_new_config_serves_and_the_old_replica_ends_only_when_routers_have_applied_it(tmp_path):
    control = Control(tmp_path, routers=1)
    control.start()
    try:
        control.deploy()
        control.wait_ready()  # this router never answers, so the first configuration waits for it in vain
        first = control.snapshot(router=0)
        (old,) = control.records()
        control.update(NEW="1")
        second = control.snapshot(after=first.version, router=0)
        while ids_in(second) == [old]:
            second = control.snapshot(after=second.version, router=0)
        assert control.state() == ("READY", "IN_PROGRESS"), "routers are offered it before users are told"
        assert old in control.records()
        control.snapshot(after=second.version, router=0, wait_s=0)
        control.wait_ready()
        wait_until(lambda: old not in control.records(), 5)
    finally:
        control.close()


def test_endpoint_that_is_said_to_be_updated_is_ready_in_the_same_answer(control):
    control.deploy()
    for number in range(3):
        wait_until(lambda: control.state()[1] == "NOT_UPDATING", 20, every_s=0.001)
        assert control.state() == ("READY", "NOT_UPDATING")
        control.update(NUMBER=str(number))


def test_one_endpoint_in_trouble_does_not_hold_up_another(control):
    control.deploy("mute", TINY_WAIT_FOR="/no/such/file")
    control.deploy("broken", TINY_EXIT="1")
    control.deploy("fine")
    control.wait_ready("fine")
    assert control.state("mute") == ("NOT_READY", "IN_PROGRESS")
    wait_until(
        lambda: (
            [
                entity["state"]["deployment_state_message"]
                for entity in control.get("mute")["pending_config"]["served_entities"]
            ]
            == ["waiting"]
        ),
        5,
    )


def test_replica_that_is_never_ready_fails_after_the_start_timeout(tmp_path):
    control = Control(tmp_path, more={"STEELYARD_START_TIMEOUT_S": "1"})
    control.start()
    try:
        control.deploy(TINY_WAIT_FOR="/no/such/file")
        control.wait_failed()
        wait_until(lambda: not control.records(), 10)
        assert any("not ready within 1 s" in message for message in control.events())
    finally:
        control.close()


def test_deleted_endpoint_leaves_nothing_even_if_its_replica_is_stubborn(control):
    control.deploy(TINY_STUBBORN="1", TINY_CHILD="1")
    control.wait_ready()
    (record,) = control.records().values()
    assert control.http.delete(f"{BASE}/e").json() == {}
    assert control.http.get(f"{BASE}/e").status_code == 404
    wait_until(lambda: control.served() == [], 5)
    wait_until(lambda: not processes.group_is_alive(record), 15)
    control.deploy()
    control.wait_ready()


def test_stopped_endpoint_runs_nothing_and_comes_back(control):
    control.deploy()
    control.wait_ready()
    control.http.put(f"{BASE}/e/config/stop").raise_for_status()
    wait_until(lambda: not control.records(), 10)
    assert control.snapshot().endpoints[0].stopped
    control.http.put(f"{BASE}/e/config/start").raise_for_status()
    control.wait_ready()
    assert control.get()["config"]["config_version"] == 2


def test_locked_store_stops_changes_but_not_the_care_for_replicas(control):
    control.deploy()
    control.wait_ready()
    ((old, record),) = control.records().items()
    holder = sqlite3.connect(control.home / "steelyard.db")
    holder.execute("BEGIN EXCLUSIVE")
    try:
        os.kill(record.pid, signal.SIGKILL)
        wait_until(lambda: control.served() not in ([], [old]), 15)
        reply = control.http.get(BASE)
        assert (reply.status_code, reply.json()["error_code"]) == (503, "TEMPORARILY_UNAVAILABLE")
    finally:
        holder.rollback()
        holder.close()
    wait_until(lambda: control.http.get(BASE).status_code == 200, 10)
    wait_until(lambda: any("was killed by SIGKILL" in message for message in control.events()), 10)


@pytest.mark.parametrize("stubborn", [{}, {"TINY_STUBBORN": "1"}])
def test_control_told_to_end_leaves_no_replica(control, stubborn):
    control.deploy(**stubborn)
    control.wait_ready()
    (record,) = control.records().values()
    control.process.terminate()
    assert control.process.wait(15) == 0
    assert not processes.group_is_alive(record)


def test_replicas_that_ended_with_control_are_no_deaths_to_the_next_one(control):
    control.deploy()
    control.wait_ready()
    (first,) = control.records()
    control.process.terminate()
    assert control.process.wait(15) == 0
    control.start()
    control.wait_ready()
    told = control.events()
    assert f"Replica {first} has ended: the platform stops." in told
    assert not any("died" in message or "deaths" in message for message in told)
    assert first not in control.records()


def test_end_of_the_lifeline_ends_control_and_replicas(tmp_path):
    read_end, write_end = os.pipe()
    control = Control(tmp_path, lifeline=read_end)
    try:
        control.start()
        control.deploy()
        control.wait_ready()
        (record,) = control.records().values()
        os.close(write_end)
        assert control.process.wait(15) == 0
        assert not processes.group_is_alive(record)
    finally:
        os.close(read_end)
        control.close()


def test_control_that_cannot_open_its_store_says_so_in_one_line(tmp_path):
    environment = {**os.environ, "STEELYARD_HOME": str(tmp_path), "STEELYARD_STORE_URL": "mysql://u:secret@h/d"}
    ended = subprocess.run(
        [sys.executable, "-m", "steelyard.control"],
        env=environment,
        check=False,
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert ended.returncode == 2
    assert "sqlite or postgresql" in ended.stderr
    assert "secret" not in ended.stderr
    assert "Traceback" not in ended.stderr
