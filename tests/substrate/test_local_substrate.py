"""Replicas as processes: they are found again, end as told, and leave nothing behind."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from steelyard.contracts.replica import ReplicaSpec, ReplicaStatus
from steelyard.substrate import LocalSubstrate, processes
from support.tiny import TINY_REPLICA
from support.waiting import wait_until


@pytest.fixture
def place(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("s")  # short: socket paths hold 107 bytes


@pytest.fixture
def substrate(place):
    made = LocalSubstrate(place / "replicas", command=[sys.executable, "-S", TINY_REPLICA])
    yield made
    for item in made.observe():
        made.kill(item.spec.id)
        wait_until(lambda: not any(found.alive for found in made.observe()), 5)


def spec_of(place: Path, name: str = "r1", **environment: str) -> ReplicaSpec:
    return ReplicaSpec(
        id=name,
        endpoint="e",
        endpoint_id="e1",
        served_entity="m",
        address=f"unix:{place / name}.sock",
        model_uri="tiny",
        environment_vars=environment,
    )


def only(substrate: LocalSubstrate):
    (found,) = substrate.observe()
    return found


def test_started_replica_is_alive_in_a_session_of_its_own_and_logs_to_its_folder(substrate, place):
    pid = substrate.start(spec_of(place))
    found = only(substrate)
    assert found.alive
    assert found.pid == pid
    assert os.getsid(pid) == pid
    log = place / "replicas" / "r1" / "log.txt"
    wait_until(lambda: b"tiny replica r1" in log.read_bytes(), 5)
    assert found.spec == spec_of(place)


def test_another_substrate_finds_what_the_first_one_started(substrate, place):
    pid = substrate.start(spec_of(place))
    status = ReplicaStatus(state="ready", max_concurrency=4)
    substrate.note_ready("r1", status)
    found = only(LocalSubstrate(place / "replicas"))
    assert (found.alive, found.pid, found.ready) == (True, pid, status)


def test_a_process_that_was_started_but_not_recorded_is_found_by_its_folder(substrate, place):
    pid = substrate.start(spec_of(place))
    (place / "replicas" / "r1" / "process.json").unlink()
    found = only(LocalSubstrate(place / "replicas"))
    assert (found.alive, found.pid) == (True, pid)
    assert (place / "replicas" / "r1" / "process.json").exists()


def test_a_record_from_before_a_reboot_means_nobody_who_runs_now(substrate, place):
    pid = substrate.start(spec_of(place))
    record = processes.record_of(pid)
    before = msgspec.structs.replace(record, boot_id="another boot")
    assert processes.group_is_alive(record)
    assert not processes.is_alive(before)
    assert not processes.group_is_alive(before)
    processes.kill_group(before)
    processes.send_signal(before, signal.SIGKILL)
    assert processes.is_alive(record)


def test_thread_counts_are_given_where_the_model_does_not_set_them(substrate, place):
    pid = substrate.start(spec_of(place, OMP_NUM_THREADS="7"))
    wait_until(lambda: b"OMP_NUM_THREADS=7\0" in Path(f"/proc/{pid}/environ").read_bytes(), 5)
    given = dict(item.split(b"=", 1) for item in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0") if item)
    assert int(given[b"MKL_NUM_THREADS"]) >= 1


def test_a_process_that_cannot_be_recorded_does_not_run(substrate, place, monkeypatch):
    started = []

    def full_disk(pid: int):
        started.append(processes.record_of(pid))
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(processes, "record_of_child", full_disk)
    with pytest.raises(OSError, match="No space"):
        substrate.start(spec_of(place))
    assert not processes.is_alive(started[0])
    assert not (place / "replicas" / "r1").exists()


def test_terminated_replica_ends_and_its_log_stays_readable_after_retirement(substrate, place):
    substrate.start(spec_of(place))
    wait_until((place / "r1.sock").exists, 5)
    substrate.terminate("r1")
    wait_until(lambda: not only(substrate).alive, 5)
    substrate.retire("r1")
    assert substrate.observe() == []
    assert not (place / "r1.sock").exists()
    (log,) = substrate.log_files("e1", "m")
    assert b"tiny replica" in log.read_bytes()


def test_failure_and_exit_are_told_apart(substrate, place):
    substrate.start(spec_of(place, "bad", TINY_FAIL="no weights"))
    substrate.start(spec_of(place, "gone", TINY_EXIT="7", TINY_PRINT="last words"))
    wait_until(lambda: not any(item.alive for item in substrate.observe()), 5)
    found = {item.spec.id: item for item in substrate.observe()}
    assert found["bad"].failure == "no weights"
    assert found["gone"].failure is None
    assert "last words" in found["gone"].death


def test_death_by_signal_is_named(substrate, place):
    pid = substrate.start(spec_of(place))
    os.kill(pid, signal.SIGKILL)
    seen = wait_until(lambda: not (found := only(substrate)).alive and found, 5)
    assert "was killed by SIGKILL" in seen.death


def test_what_a_dead_replica_leaves_in_its_group_is_killed(substrate, place):
    pid = substrate.start(spec_of(place, TINY_CHILD="1"))
    wait_until((place / "r1.sock").exists, 5)
    record = processes.record_of(pid)
    assert record is not None
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not only(substrate).alive, 5)
    wait_until(lambda: not processes.group_is_alive(record), 5)


def test_kill_ends_a_replica_that_ignores_sigterm(substrate, place):
    substrate.start(spec_of(place, TINY_STUBBORN="1"))
    wait_until((place / "r1.sock").exists, 5)
    substrate.terminate("r1")
    assert only(substrate).alive
    substrate.kill("r1")
    wait_until(lambda: not only(substrate).alive, 5)


def test_a_reused_pid_is_neither_taken_for_the_replica_nor_signalled(place):
    with subprocess.Popen(["sleep", "60"], start_new_session=True) as stranger:
        try:
            true = processes.record_of(stranger.pid)
            assert true is not None
            stale = msgspec.structs.replace(true, start_ticks=true.start_ticks - 1)
            assert not processes.is_alive(stale)
            processes.send_signal(stale, signal.SIGKILL)
            processes.kill_group(stale)
            assert processes.is_alive(true)
        finally:
            stranger.kill()


def test_a_command_that_does_not_exist_leaves_no_folder(place):
    substrate = LocalSubstrate(place / "replicas", command=["/no/such/program"])
    with pytest.raises(OSError, match="No such file"):
        substrate.start(spec_of(place))
    assert substrate.observe() == []


def test_replicas_do_not_see_the_store_or_the_token(place):
    environment = dict(os.environ, STEELYARD_STORE_URL="postgresql://u:secret@h/d", STEELYARD_TOKEN="sy-1", KEEP="yes")
    show = "import os; print(*(f'{name}={value}' for name, value in os.environ.items()), sep='\\n')"
    substrate = LocalSubstrate(place / "replicas", command=[sys.executable, "-c", show], environment=environment)
    substrate.start(spec_of(place, OMP_NUM_THREADS="3"))
    wait_until(lambda: not only(substrate).alive, 5)
    text = (place / "replicas" / "r1" / "log.txt").read_text()
    assert "secret" not in text
    assert "sy-1" not in text
    assert "KEEP=yes" in text
    assert "OMP_NUM_THREADS=3" in text
    assert "OPENBLAS_NUM_THREADS=" in text


def test_only_the_newest_retired_folders_are_kept(substrate, place):
    for number in range(5):
        substrate.start(spec_of(place, f"r{number}", TINY_EXIT="1"))
        wait_until(lambda: not only(substrate).alive, 5)
        substrate.retire(f"r{number}")
    kept = [path.parent.name for path in substrate.log_files("e1", "m")]
    assert kept == ["r4", "r3", "r2"]
