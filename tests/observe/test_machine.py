"""Cores and memory are what control groups and affinity leave, not what the machine has."""

from pathlib import Path

import pytest

from steelyard.observe import machine


def test_the_machine_has_cores_and_memory():
    assert 1 <= machine.usable_cores() <= 4096
    assert machine.memory_limit_bytes() > 64 << 20
    assert machine.available_memory_bytes() > 0


@pytest.mark.parametrize(("quota", "cores"), [("max 100000", 64), ("150000 100000", 2), ("20000 100000", 1)])
def test_a_cpu_quota_bounds_the_threads(tmp_path, monkeypatch, quota, cores):
    (tmp_path / "cpu.max").write_text(quota)
    monkeypatch.setattr(machine, "_CGROUP", tmp_path)
    monkeypatch.setattr(machine.os, "sched_getaffinity", lambda _: set(range(64)))
    assert machine.usable_cores() == cores


def test_a_memory_limit_is_read_from_the_control_group(tmp_path, monkeypatch):
    (tmp_path / "memory.max").write_text("1000000\n")
    monkeypatch.setattr(machine, "_CGROUP", tmp_path)
    assert machine.memory_limit_bytes() == 1_000_000
    (tmp_path / "memory.max").write_text("max\n")
    assert machine.memory_limit_bytes() > 1_000_000


def test_the_tightest_of_all_groups_around_the_process_counts(tmp_path, monkeypatch):
    monkeypatch.setattr(machine, "_CGROUP", tmp_path)
    monkeypatch.setattr(machine.os, "sched_getaffinity", lambda _: set(range(64)))
    real = machine._text
    own = "0::/platform.slice/steelyard.service\n"
    monkeypatch.setattr(machine, "_text", lambda file: own if file == Path("/proc/self/cgroup") else real(file))
    service = tmp_path / "platform.slice" / "steelyard.service"
    service.mkdir(parents=True)
    (tmp_path / "cpu.max").write_text("800000 100000")
    (service / "cpu.max").write_text("400000 100000")
    (service / "memory.max").write_text("1000000")
    assert machine.usable_cores() == 4
    assert machine.memory_limit_bytes() == 1_000_000
    (service.parent / "cpu.max").write_text("200000 100000")
    assert machine.usable_cores() == 2
