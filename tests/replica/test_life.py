"""How a replica process starts, fails and ends."""

import json
import os
import signal
import threading

import httpx

from support.models import save_python_model
from support.waiting import wait_until

SLOW_START = """
class Model(PythonModel):
    def load_context(self, context):
        time.sleep(3)
    def predict(self, context, model_input, params=None):
        time.sleep(float(model_input["prompt"]))
        return "done"
"""


def test_a_model_that_cannot_be_found_leaves_a_reason_and_status_3(start_replica):
    replica = start_replica("/no/such/model")
    assert replica.process.wait(60) == 3
    failure = json.loads((replica.folder / "failure.json").read_text())
    assert failure["code"] == "MODEL_LOAD_FAILED"
    assert "/no/such/model" in failure["message"]


def test_a_model_that_raises_while_loading_leaves_its_reason_and_trace(start_replica, tmp_path):
    body = "class Model(PythonModel):\n    def load_context(self, context):\n        raise RuntimeError('no weights')\n"
    path = save_python_model(tmp_path / "m", body + "    def predict(self, context, model_input):\n        return [0]")
    replica = start_replica(path)
    assert replica.process.wait(120) == 3
    assert "no weights" in json.loads((replica.folder / "failure.json").read_text())["message"]
    assert "load_context" in replica.log.read_text()


def test_an_address_that_cannot_be_bound_is_a_failure_too(start_replica, iris_model):
    replica = start_replica(iris_model.uri, address="unix:/no/such/folder/s")
    assert replica.process.wait(60) == 3
    assert "/no/such/folder" in (replica.folder / "failure.json").read_text()


def test_state_is_told_while_loading_and_running_requests_outlive_sigterm(start_replica, tmp_path):
    replica = start_replica(save_python_model(tmp_path / "m", SLOW_START))

    def state():
        try:
            return replica.http.get("/ready")
        except httpx.TransportError:
            return None

    early = wait_until(state, timeout_s=60)
    assert early.status_code == 503
    assert early.json()["state"] == "starting"
    assert replica.http.get("/health").status_code == 200
    refused = replica.http.post("/invocations", json={"prompt": "0"})
    assert refused.status_code == 503
    assert "retry-after" in refused.headers
    assert '"in_flight":0' in refused.headers["endpoint-load-metrics"]
    replica.wait_ready()

    answers = []

    def work():
        with replica.client() as client:
            answers.append(client.post("/invocations", json={"prompt": "1.5"}))

    thread = threading.Thread(target=work)
    thread.start()
    wait_until(lambda: replica.load()["in_flight"] == 1, timeout_s=10)
    os.kill(replica.process.pid, signal.SIGTERM)
    wait_until(lambda: replica.http.get("/ready").json()["state"] == "draining", timeout_s=5)
    late = replica.http.post("/invocations", json={"prompt": "0"})
    assert late.status_code == 503
    assert late.headers["x-steelyard-draining"] == "1"
    assert '"in_flight":1' in late.headers["endpoint-load-metrics"]
    thread.join()
    assert answers[0].json() == "done"
    assert replica.process.wait(20) == 0
    assert not replica.socket.exists()


def test_a_request_that_outlasts_the_drain_is_cut_and_the_process_ends(start_replica, behaving_model):
    replica = start_replica(behaving_model, drain_timeout_s=0.5).wait_ready()
    errors = []

    def work():
        with replica.client() as client:
            try:
                client.post("/invocations", json={"prompt": "sleep 30"})
            except httpx.TransportError as error:
                errors.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    wait_until(lambda: replica.load()["in_flight"] == 1, timeout_s=10)
    os.kill(replica.process.pid, signal.SIGTERM)
    assert replica.process.wait(10) == 0
    thread.join()
    assert errors


def test_the_end_of_the_lifeline_ends_a_loading_replica(start_replica, tmp_path):
    replica = start_replica(save_python_model(tmp_path / "m", SLOW_START.replace("sleep(3)", "sleep(60)")))
    wait_until(replica.socket.exists, timeout_s=60)
    os.close(replica.lifeline)
    replica.lifeline = os.open(os.devnull, os.O_RDONLY)
    assert replica.process.wait(20) == 0
    assert "the platform is gone" in replica.log.read_text()


def test_environment_variables_reach_the_model(start_replica, tmp_path):
    body = (
        "class Model(PythonModel):\n    def predict(self, context, model_input, params=None):\n"
        "        return os.environ['COLOUR']"
    )
    replica = start_replica(save_python_model(tmp_path / "m", body), environment_vars={"COLOUR": "blue"}).wait_ready()
    assert replica.http.post("/invocations", json={"inputs": [1]}).json() == {"predictions": "blue"}


def test_a_folder_without_a_spec_is_an_error(tmp_path):
    import subprocess
    import sys

    command = [sys.executable, "-m", "steelyard.replica", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, timeout=60, check=False)
    assert done.returncode == 2
    assert b"spec_unreadable" in done.stderr
