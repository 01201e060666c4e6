"""Calibrations as control runs them: one at a time, followed, stopped, kept; the process is a stand-in script."""

import asyncio
import sys
from pathlib import Path

import msgspec
import pytest

from steelyard.contracts.cost import (
    Calibration,
    CalibrationEnd,
    CalibrationSpec,
    Hardware,
    LatencyTarget,
    StoredCalibration,
)
from steelyard.control.calibrations import Calibrations, keep, read_kept
from steelyard.errors import Conflict

pytestmark = pytest.mark.anyio
SPEC = CalibrationSpec(endpoint="iris", served_entity="iris-1", address="unix:/nowhere", model_uri="models:/iris/1")


def result(**changes):
    values = {
        "endpoint": "iris", "served_entity": "iris-1", "model_uri": "models:/iris/1", "model_version": None,
        "runtime": "linear", "hardware": Hardware(processor="p", cores=2, memory_bytes=8 << 30), "created_ms": 1,
        "took_s": 1.0, "complete": True, "concurrency": 4, "target": LatencyTarget(), "coefficients": {"row": 0.1},
        "held_out_median_error": 0.05, "held_out_p95_error": 0.1, "cross_validated_median_error": 0.05, "largest": {},
    }  # fmt: skip
    return Calibration(**(values | changes))


def stand_in(tmp_path: Path, code: str) -> tuple[str, ...]:
    script = tmp_path / "stand_in.py"
    script.write_text(f"import sys, time\ndef say(line): print(line, flush=True)\n{code}\n")
    return (sys.executable, str(script))


def end_line(**values):
    return repr(msgspec.json.encode(CalibrationEnd(**values)).decode())


async def finished(calibrations, endpoint_id="e1"):
    async with asyncio.timeout(20):
        while True:
            jobs = await calibrations.of(endpoint_id)
            if jobs and jobs[0].state != "RUNNING":
                return jobs[0]
            await asyncio.sleep(0.02)


class Working:
    """`run` in a task for as long as the block lasts."""

    def __init__(self, calibrations):
        self.calibrations = calibrations

    async def __aenter__(self):
        self.task = asyncio.create_task(self.calibrations.run())
        return self.calibrations

    async def __aexit__(self, *_):
        self.task.cancel()
        await asyncio.wait([self.task])


async def test_progress_is_shown_and_the_result_kept(tmp_path):
    line = '{"type":"progress","done":3,"left":9,"detail":"reads, 8 at a time"}'
    command = stand_in(
        tmp_path, f"say({line!r})\nsys.stdin.readline() if 0 else time.sleep(0.3)\nsay({end_line(result=result())})"
    )
    told = []
    async with Working(Calibrations(tmp_path / "kept", command, told.append)) as calibrations:
        assert calibrations.begin("e1", SPEC).state == "RUNNING"
        async with asyncio.timeout(20):
            while (await calibrations.of("e1"))[0].done != 3:
                await asyncio.sleep(0.02)
        job = await finished(calibrations)
    assert (job.state, job.result) == ("DONE", result())
    assert told == [StoredCalibration(endpoint_id="e1", result=result())]
    assert await Calibrations(tmp_path / "kept").of("e1") == [job]  # after a restart of control
    assert await Calibrations(tmp_path / "kept").of("another") == []


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (f"say({end_line(failure='The model said no.')})", "The model said no."),
        ("sys.exit(5)", "The calibration's process ended with status 5."),
        ("say('nonsense')", "The calibration said something that control does not understand."),
        ("say('x' * 20_000_000)", "The calibration said something that control does not understand."),
    ],
)
async def test_whatever_goes_wrong_is_told_and_the_next_one_may_run(tmp_path, code, message):
    async with Working(Calibrations(tmp_path / "kept", stand_in(tmp_path, code))) as calibrations:
        for _ in range(2):
            calibrations.begin("e1", SPEC)
            job = await finished(calibrations)
            assert (job.state, job.message, job.result) == ("FAILED", message, None)
            async with asyncio.timeout(5):
                while calibrations._wanted is not None:
                    await asyncio.sleep(0.01)


async def test_a_command_that_cannot_be_started_is_told(tmp_path):
    async with Working(Calibrations(tmp_path / "kept", (str(tmp_path / "missing"),))) as calibrations:
        calibrations.begin("e1", SPEC)
        assert "cannot be run" in (await finished(calibrations)).message


async def test_they_run_one_at_a_time_and_only_the_owner_stops_one(tmp_path):
    command = stand_in(tmp_path, "sys.stdin.read()\nsay('{}')")
    async with Working(Calibrations(tmp_path / "kept", command)) as calibrations:
        calibrations.begin("e1", SPEC)
        await asyncio.sleep(0.1)
        with pytest.raises(Conflict, match="'iris' is running"):
            calibrations.begin("e2", SPEC)
        assert not calibrations.stop("e2")
        assert calibrations.stop("e1")
        job = await finished(calibrations)
        assert (job.state, job.message) == ("FAILED", "The calibration was stopped.")


async def test_control_leaves_no_process_behind(tmp_path):
    mark = tmp_path / "pid"
    code = f"import os, pathlib\npathlib.Path({str(mark)!r}).write_text(str(os.getpid()))\nsys.stdin.read()"
    async with Working(Calibrations(tmp_path / "kept", stand_in(tmp_path, code))) as calibrations:
        calibrations.begin("e1", SPEC)
        async with asyncio.timeout(20):
            while not (mark.exists() and mark.read_text()):
                await asyncio.sleep(0.02)
    assert not Path(f"/proc/{mark.read_text()}").exists()


def test_one_result_is_kept_per_model_version_and_hardware(tmp_path):
    other = Hardware(processor="q", cores=2, memory_bytes=8 << 30)
    for changes in ({}, {"created_ms": 2}, {"model_version": "2"}, {"hardware": other}):
        keep(tmp_path, StoredCalibration(endpoint_id="e1", result=result(**changes)))
    assert len(list(tmp_path.glob("*.json"))) == 3
    assert sorted(found.created_ms for found in read_kept(tmp_path, "e1")) == [1, 1, 2]
    (tmp_path / "broken.json").write_text("{")
    assert len(read_kept(tmp_path, "e1")) == 3


def test_names_that_are_no_file_names_are_kept_all_the_same(tmp_path):
    path = keep(tmp_path, StoredCalibration(endpoint_id="e", result=result(endpoint="../a b", served_entity="ü/" * 99)))
    assert path.parent == tmp_path
    assert read_kept(tmp_path, "e")


def test_machines_alike_have_one_fingerprint():
    one = Hardware(processor="p", cores=2, memory_bytes=(8 << 30) + 1)
    assert one.fingerprint == Hardware(processor="p", cores=2, memory_bytes=8 << 30).fingerprint
    assert one.fingerprint != Hardware(processor="p", cores=4, memory_bytes=8 << 30).fingerprint
