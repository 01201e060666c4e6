"""Models that hang on some rows, in real replicas: their workers are replaced, and nobody else loses by it."""

import contextlib
import json
import re
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import numpy as np
import pandas as pd
import pytest

from steelyard.observe.machine import usable_cores
from support.waiting import wait_until

pytestmark = pytest.mark.slow

LIMIT_S = 180  # for anything that must happen: only a broken build takes so long, whatever else the machine does
GRACE_S = 2.0
SOURCE = """
import os, pathlib, re, signal, subprocess, time
from mlflow.pyfunc import PythonModel
from mlflow.models import set_model

FOLDER = pathlib.Path(os.environ.get("FOLDER", "/nowhere"))
WAYS = {7000.125: "loop", 7001.125: "child", 7002.125: "stop", 7003.125: "lock", 7004.125: "hold"}
EXITS = 7005.125


class Model(PythonModel):
    def predict(self, context, model_input, params=None):
        rows = model_input["a"].tolist()
        if FOLDER.exists():
            with (FOLDER / "calls").open("a") as calls:
                calls.write(" ".join(map(repr, rows)) + "\\n")
        for row in rows:
            self.do(WAYS.get(row))
        if rows == [EXITS]:
            os._exit(3)
        until = time.thread_time() + 0.002
        while time.thread_time() < until:
            pass
        return (model_input["a"] + 2 * model_input["b"]).to_numpy()

    def do(self, way):
        if way == "loop":
            while True:
                pass
        if way == "child":
            child = subprocess.Popen(["sleep", "86400"])
            (FOLDER / "child").write_text(str(child.pid))
            child.wait()
        if way == "stop":
            os.kill(os.getpid(), signal.SIGSTOP)
        if way == "lock":  # Python's lock, in C
            re.match("(a|a)*$", "a" * 60 + "b")
        while way == "hold" and not (FOLDER / "go").exists():
            until = time.thread_time() + 0.002
            while time.thread_time() < until:
                pass


set_model(Model())
"""
LOOP, CHILD, STOP, LOCK, HOLD, EXITS = (7000.125 + number for number in range(6))
WAYS = {"loop": LOOP, "child": CHILD, "stop": STOP, "lock": LOCK}
ROWS = np.random.default_rng(4).normal(size=(12, 2)).round(3)
EXAMPLE = [[0.5, 1.0], [1.5, 2.0], [2.5, 3.0]]  # in no request: each new worker predicts it before it serves


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> str:
    import mlflow.pyfunc
    from mlflow.models import infer_signature

    folder = tmp_path_factory.mktemp("hanging")
    (folder / "code.py").write_text(SOURCE)
    frame = pd.DataFrame(EXAMPLE, columns=list("ab"))
    values = {"signature": infer_signature(frame), "input_example": frame, "pip_requirements": []}
    mlflow.pyfunc.save_model(folder / "model", python_model=str(folder / "code.py"), **values)
    return str(folder / "model")


class Hanging:
    """A replica of that model, and what its model writes down."""

    def __init__(self, replica, folder: Path) -> None:
        self.replica = replica
        self.folder = folder

    def calls(self) -> list[list[float]]:
        """The rows (column a) of each call, as far as it is written."""
        text = (self.folder / "calls").read_text()
        return [list(map(float, line.split())) for line in text.split("\n")[:-1]]

    def forget(self) -> None:
        (self.folder / "calls").write_text("")
        (self.folder / "go").unlink(missing_ok=True)

    def go_on(self) -> None:
        (self.folder / "go").touch()

    def begun(self, row: float, times: int = 1) -> None:
        """Wait until the model is at work on it."""
        wait_until(lambda: sum(row in call for call in self.calls()) >= times, LIMIT_S)

    def post(self, a: float, b: float = 0.0, deadline_s: float | None = None) -> httpx.Response:
        with self.replica.client() as http:
            headers = {} if deadline_s is None else {"x-steelyard-deadline-ms": str(deadline_s * 1000)}
            return http.post("/invocations", json=content(a, b), headers=headers, timeout=LIMIT_S)

    def answers(self, rows) -> None:
        for a, b in rows:
            reply = self.post(a, b)
            assert reply.status_code == 200, (reply.text, self.replica.log.read_text())
            assert reply.json()["predictions"] == [pytest.approx(a + 2 * b)]

    def hung(self) -> int:
        text = self.replica.http.get("/metrics").text
        return int(float(re.search(r"^steelyard_replica_hung_workers_total{[^}]*} (\S+)", text, re.MULTILINE)[1]))

    def in_flight(self) -> int:
        return self.replica.load()["in_flight"]

    def wait_replaced(self, before: int) -> None:
        """The worker has been, its lanes are free, and the next worker answers."""
        wait_until(lambda: self.hung() > before, LIMIT_S)
        wait_until(lambda: self.in_flight() == 0, LIMIT_S)
        self.answers(ROWS[:4])
        assert self.hung() == before + 1


@pytest.fixture(scope="module")
def start(model, start_shared_replica, tmp_path_factory):
    def start(**spec) -> Hanging:
        folder = tmp_path_factory.mktemp("marks")
        (folder / "calls").write_text("")
        replica = start_shared_replica(model, environment_vars={"FOLDER": str(folder)}, **spec).wait_ready()
        hanging = Hanging(replica, folder)
        hanging.answers(ROWS)
        return hanging

    return start


@pytest.fixture(scope="module")
def of_one_lane(start) -> Hanging:
    return start(max_concurrency=1)


@pytest.fixture(scope="module")
def of_two_lanes(start) -> Hanging:
    return start(max_concurrency=2)


@pytest.fixture
def one(of_one_lane) -> Hanging:
    of_one_lane.forget()
    return of_one_lane


@pytest.fixture
def two(of_two_lanes) -> Hanging:
    if usable_cores() > 1:  # else it has one lane, whatever the bound
        assert of_two_lanes.replica.http.get("/ready").json()["max_concurrency"] >= 2
    of_two_lanes.forget()
    return of_two_lanes


def gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def content(a: float, b: float = 0.0) -> dict:
    return {"dataframe_split": {"columns": ["a", "b"], "data": [[a, b]]}}


@contextlib.contextmanager
def busy_cores():
    """A process that computes for each core."""
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(usable_cores())]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


@pytest.mark.parametrize("way", WAYS)
def test_a_worker_that_hangs_past_its_deadline_is_replaced_and_its_lane_is_free(one, way):
    before = one.hung()
    for deadline_s in (2, 8, 32, 128):  # longer where the machine was too busy for the model to begin
        reply = one.post(WAYS[way], deadline_s=deadline_s)
        assert reply.status_code == 504
        if one.calls():
            break
    one.wait_replaced(before)
    assert sum(WAYS[way] in call for call in one.calls()) == 1  # it had no other try
    lines = [json.loads(line) for line in one.replica.log.read_text().splitlines() if '"worker_hung"' in line]
    assert (lines[-1]["endpoint"], lines[-1]["replica"]) == ("small", "r1")
    assert "1 call went on for" in lines[-1]["reason"]
    if way == "child":
        child = int((one.folder / "child").read_text())
        wait_until(lambda: gone(child), LIMIT_S)


def test_a_call_whose_client_has_gone_hangs_as_one_past_its_deadline(one):
    before = one.hung()
    body = json.dumps(content(LOOP)).encode()
    head = f"POST /invocations HTTP/1.1\r\nhost: r\r\ncontent-type: application/json\r\ncontent-length: {len(body)}"
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(one.replica.socket))
        client.sendall(head.encode() + b"\r\n\r\n" + body)
        one.begun(LOOP)
        assert one.hung() == before
    one.wait_replaced(before)


def test_those_who_shared_a_call_that_hung_get_their_answers(one):
    """Each has one more try, alone: a row that ends its process then has had it."""
    before = one.hung()
    for deadline_s in (3, 9, 27, 81):  # until the model has begun with both and others in one call
        one.forget()
        with ThreadPoolExecutor(len(ROWS) + 3) as pool:
            hold = pool.submit(one.post, HOLD)
            one.begun(HOLD)
            hanging = pool.submit(one.post, LOOP, 0.0, deadline_s)
            ends = pool.submit(one.post, EXITS)
            others = [pool.submit(one.post, a, b) for a, b in ROWS]
            wait_until(lambda: one.in_flight() >= len(ROWS) + 2, LIMIT_S)  # the one with a deadline may have left
            one.go_on()
            assert hold.result(LIMIT_S).status_code == 200
            assert hanging.result(LIMIT_S).status_code == 504
            answers = [other.result(LIMIT_S) for other in others]
            assert [answer.status_code for answer in answers] == [200] * len(ROWS)
            expected = [[pytest.approx(a + 2 * b)] for a, b in ROWS.tolist()]
            assert [answer.json()["predictions"] for answer in answers] == expected
            ended = ends.result(LIMIT_S)
        wait_until(lambda: one.in_flight() == 0, LIMIT_S)
        calls = one.calls()
        assert all(sum(row in call for call in calls) <= 2 for row in [LOOP, EXITS, *ROWS[:, 0]])
        if any({LOOP, EXITS} < set(call) for call in calls):
            break
    else:
        pytest.fail(f"No other row met the one that hangs: {calls} {one.replica.log.read_text()[-2000:]}")
    assert ended.status_code == 502
    assert one.hung() > before
    one.answers(ROWS)


def test_a_slow_call_that_is_wanted_is_left_alone_under_load(two):
    """Beside one that hangs: its worker is replaced only when the slow one has been answered."""
    before = two.hung()
    with ThreadPoolExecutor(2) as pool, busy_cores():
        slow = pool.submit(two.post, HOLD)
        two.begun(HOLD)
        if usable_cores() > 1:
            hanging = pool.submit(two.post, CHILD, 0.0, 5.0)
            assert hanging.result(LIMIT_S).status_code == 504
        until_s = time.monotonic() + 3 * GRACE_S
        wait_until(lambda: time.monotonic() > until_s, LIMIT_S)
        assert two.hung() == before
        assert not slow.done()
        two.go_on()
        assert slow.result(LIMIT_S).status_code == 200
    if any(CHILD in call for call in two.calls()):
        two.wait_replaced(before)
    assert sum(HOLD in call for call in two.calls()) == 1


@pytest.mark.skipif(usable_cores() < 2, reason="a replica has as many lanes as cores")
def test_what_waited_unread_in_a_stopped_worker_is_answered_by_the_next(two):
    before = two.hung()
    for deadline_s in (3, 9, 27, 81):  # until the other one came while the worker was stopped
        with ThreadPoolExecutor(2) as pool:
            stops = pool.submit(two.post, STOP, 0.0, deadline_s)
            wait_until(lambda stops=stops: two.calls() or stops.done(), LIMIT_S)
            waits = pool.submit(two.post, *ROWS[0])
            wait_until(lambda waits=waits: two.in_flight() == 2 or waits.done(), LIMIT_S)
            waited = not stops.done()
            assert stops.result(LIMIT_S).status_code == 504
            reply = waits.result(LIMIT_S)
        assert reply.status_code == 200
        assert reply.json()["predictions"] == [pytest.approx(ROWS[0, 0] + 2 * ROWS[0, 1])]
        if two.calls()[0] == [STOP]:
            two.wait_replaced(before)
            if waited:
                break
        before = two.hung()
        two.forget()
    else:
        pytest.fail("The machine was too slow for any request to meet a stopped worker.")
