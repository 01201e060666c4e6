"""The ground is cleared before anything starts: locks, folders, ports, and what a killed platform left."""

import os
import subprocess
import sys

import pytest

from steelyard.contracts.replica import ReplicaSpec
from steelyard.settings import Settings
from steelyard.substrate import LocalSubstrate, processes
from steelyard.supervisor.ground import ProcessFiles, StartError, free_port, locked_home, private_folder


def test_home_is_locked_once_and_free_again(tmp_path):
    home = tmp_path / "home"
    with locked_home(home):
        assert home.stat().st_mode & 0o777 == 0o700
        with pytest.raises(StartError, match="already"), locked_home(home):
            pass
    with locked_home(home):
        pass


def test_folder_of_somebody_else_is_refused(tmp_path):
    target = tmp_path / "target"
    target.mkdir()
    (tmp_path / "link").symlink_to(target)
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    (tmp_path / "file").touch()
    for name in ("link", "dangling", "file"):
        with pytest.raises(StartError, match="not a folder of ours"):
            private_folder(tmp_path / name)


def test_port_zero_gives_a_free_one():
    assert free_port("127.0.0.1", 0) > 0


def test_record_that_cannot_be_written_is_no_reason_to_stop(tmp_path):
    files = ProcessFiles(Settings(home=tmp_path))
    (tmp_path / "run" / "control.json").mkdir()  # as on a full disk, writing there fails
    files.write("control", os.getpid())
    assert files.running() == []


@pytest.mark.anyio
async def test_leftovers_are_asked_then_killed(tmp_path):
    files = ProcessFiles(Settings(home=tmp_path))
    gentle = subprocess.Popen(["sleep", "60"], start_new_session=True)
    stubborn = subprocess.Popen(["sh", "-c", "trap '' TERM; echo; sleep 60 & wait; sleep 60"],
                                stdout=subprocess.PIPE, start_new_session=True)  # fmt: skip
    stubborn.stdout.readline()
    files.write("control", gentle.pid)
    files.write("router-0", stubborn.pid)
    record = processes.record_of(stubborn.pid)
    assert len(files.running()) == 2
    assert await files.clear(0.3) == 1
    assert files.running() == []
    assert not processes.group_is_alive(record)
    assert (gentle.wait(5), stubborn.wait(5)) == (-15, -9)
    assert await files.clear(0.3) == 0


@pytest.mark.anyio
async def test_replicas_of_an_earlier_platform_are_ended_and_put_away(tmp_path):
    settings = Settings(home=tmp_path)
    substrate = LocalSubstrate(settings.replicas_dir, command=[sys.executable, "-c", "import time; time.sleep(60)"])
    for name in ("recorded", "unrecorded"):
        spec = ReplicaSpec(id=name, endpoint="e", served_entity="m", address="tcp:127.0.0.1:1", model_uri="m")
        substrate.start(spec)
    (settings.replicas_dir / "unrecorded" / "process.json").unlink()  # its control was killed in between
    assert await ProcessFiles(settings).clear(5.0) == 0
    assert substrate.observe() == []
    assert {path.name for path in (settings.replicas_dir / ".retired").iterdir()} == {"recorded", "unrecorded"}


@pytest.mark.anyio
async def test_what_cannot_be_ended_is_named_instead_of_waited_for(tmp_path, monkeypatch):
    monkeypatch.setattr("steelyard.supervisor.ground.KILL_PATIENCE_S", 0.1)
    monkeypatch.setattr(processes, "kill_group", lambda record: None)  # as for a process that is not ours to kill
    files = ProcessFiles(Settings(home=tmp_path))
    deaf = subprocess.Popen(["sh", "-c", "trap '' TERM; echo; while :; do read line; done"],
                            stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)  # fmt: skip
    deaf.stdout.readline()
    files.write("control", deaf.pid)
    try:
        with pytest.raises(StartError, match=str(deaf.pid)):
            await files.clear(0.1)
    finally:
        deaf.kill()
        deaf.wait(5)
