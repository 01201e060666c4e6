"""The real calibration process against real replica processes: rows, a language model, and what goes wrong."""

import os
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

import httpx
import msgspec
import pytest

from steelyard.contracts.cost import CalibrationEnd, CalibrationLine, CalibrationProgress, CalibrationSpec
from steelyard.contracts.replica import ReplicaSpec
from support.language_models import save_language_model
from support.models import save_iris_classifier
from support.waiting import wait_until


@contextmanager
def running(uri, home):
    """A replica; gives its address and process."""
    folder = Path(tempfile.mkdtemp(prefix="cal-"))  # short, since a socket's path holds 107 bytes
    spec = ReplicaSpec(id="r", endpoint="m", served_entity="m-1", address=f"unix:{folder / 's'}", model_uri=uri)
    (folder / "spec.json").write_bytes(msgspec.json.encode(spec))
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "steelyard.replica", str(folder)],
            stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True,
            env={**os.environ, "STEELYARD_HOME": str(home)},
        )  # fmt: skip
    http = httpx.Client(transport=httpx.HTTPTransport(uds=str(folder / "s")), base_url="http://replica", timeout=10)

    def ready():
        assert process.poll() is None, (folder / "log").read_text()
        try:
            return http.get("/ready").status_code == 200
        except httpx.TransportError:
            return False

    try:
        wait_until(ready, timeout_s=180)
        yield spec.address, process
    finally:
        http.close()
        process.kill()
        process.wait()


def start(uri, address, pid=None, **wishes):
    spec = CalibrationSpec(endpoint="m", served_entity="m-1", address=address, pid=pid, model_uri=uri, **wishes)
    command = [sys.executable, "-m", "steelyard.calibration", msgspec.json.encode(spec).decode()]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def calibrate(*arguments, **wishes):
    """What it said, and its exit status."""
    with start(*arguments, **wishes) as process:
        lines = [msgspec.json.decode(line, type=CalibrationLine) for line in process.stdout]
    return lines[:-1], lines[-1], process.returncode


@pytest.mark.slow
def test_a_classic_model_is_calibrated_by_its_rows(tmp_path):
    model = save_iris_classifier(tmp_path / "iris")
    with running(model.uri, tmp_path / "home") as (address, replica):
        progress, end, status = calibrate(model.uri, address, replica.pid, budget_s=8)
    assert status == 0, end.failure
    result = end.result
    assert all(isinstance(line, CalibrationProgress) for line in progress)
    assert result.took_s < 30
    assert {"row"} <= set(result.coefficients) <= {"request", "row"}
    assert all(value > 0 for value in result.coefficients.values())
    assert result.coefficients["row"] * result.largest["rows"] < 1000  # MU: no second for one request
    assert {window.held_out for window in result.windows} == {True, False}
    assert result.held_out_median_error < 1
    assert result.hardware.cores >= 1
    assert result.target.whole_s >= 0.1


@pytest.mark.slow
def test_a_language_model_is_calibrated_by_its_tokens(tmp_path):
    folder = save_language_model(tmp_path / "tiny")
    with running(str(folder), tmp_path / "home") as (address, replica):
        _, end, status = calibrate(str(folder), address, replica.pid, budget_s=25)
    assert status == 0, end.failure
    result = end.result
    assert result.runtime == "llm"
    assert {"input", "output"} & set(result.coefficients)
    assert "row" not in result.coefficients
    assert result.target.first_token_s >= 2
    outputs = [window.totals.get("output", 0) for window in result.windows]
    assert sum(outputs) > 100
    assert all(window.totals["request"] > 0 for window in result.windows if window.totals.get("input"))


def test_a_replica_that_is_not_there_is_told_in_one_sentence(tmp_path):
    _, end, status = calibrate("m", f"unix:{tmp_path / 'nobody'}")
    assert status == 1
    assert end.result is None
    assert end.failure.endswith(".")
    assert "\n" not in end.failure


def test_it_ends_when_its_input_ends(tmp_path):
    """Control is gone: nobody would stop it otherwise."""
    from http.server import BaseHTTPRequestHandler
    from socketserver import ThreadingMixIn, UnixStreamServer
    from threading import Thread

    class Mute(BaseHTTPRequestHandler):
        def do_GET(self):
            time.sleep(60)

    class Server(ThreadingMixIn, UnixStreamServer):
        daemon_threads = True

    path = Path(tempfile.mkdtemp(prefix="cal-")) / "s"
    server = Server(str(path), Mute)
    Thread(target=server.serve_forever, daemon=True).start()
    process = start("m", f"unix:{path}")
    time.sleep(0.1)
    process.stdin.close()
    assert process.wait(20) == 1
    assert isinstance(msgspec.json.decode(process.stdout.read().splitlines()[-1], type=CalibrationLine), CalibrationEnd)
    process.stdout.close()
    server.shutdown()


def test_a_senseless_argument_is_refused():
    done = subprocess.run([sys.executable, "-m", "steelyard.calibration", "{}"], capture_output=True, check=False)
    assert done.returncode == 2
    assert b"usage" in done.stderr
