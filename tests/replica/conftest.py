"""Real replica processes over their Unix sockets."""

import atexit
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import httpx
import pytest

from support.models import save_iris_classifier, save_python_model
from support.waiting import wait_until

BEHAVIOURS = '''
class Model(PythonModel):
    """Does what the first word of the prompt says."""

    def predict(self, context, model_input, params=None):
        word, _, rest = str(model_input["prompt"]).partition(" ")
        if word == "sleep":
            seconds, _, mark = rest.partition(" ")
            if mark:
                pathlib.Path(mark).touch()
            time.sleep(float(seconds))
            return {"slept": float(seconds)}
        if word == "raise":
            raise ValueError("secret of the model")
        if word == "leave":
            raise SystemExit(4)
        if word == "nan":
            return [1.0, float("nan")]
        if word == "set":
            return {1, 2}
        return {"echo": model_input}

    def predict_stream(self, context, model_input, params=None):
        word, _, rest = str(model_input["prompt"]).partition(" ")
        if word == "raise":
            raise ValueError("secret of the model")
        try:
            for number in range(int(rest or 3)):
                if word == "slow":
                    time.sleep(0.05)
                if word == "break" and number == 2:
                    raise ValueError("secret of the model")
                yield {"number": number}
        finally:
            if word == "slow":
                pathlib.Path(os.environ["MARK"]).touch()
'''


HOME = Path(tempfile.mkdtemp(prefix="replica-home-"))  # of all replicas here, so that each model is proven once
atexit.register(shutil.rmtree, HOME, ignore_errors=True)


class RunningReplica:
    """A replica process that a test started."""

    def __init__(self, model_uri: str, **spec) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="replica-"))  # short, since a socket's path holds 107 bytes
        self.socket = self.folder / "s"
        pipe_read, self.lifeline = os.pipe()
        values = {"id": "r1", "endpoint": "small", "served_entity": "small-1", "model_uri": model_uri}
        values |= {"address": f"unix:{self.socket}"} | spec
        (self.folder / "spec.json").write_text(json.dumps(values))
        self.log = self.folder / "log.txt"
        env = {**os.environ, "STEELYARD_LIFELINE_FD": str(pipe_read), "MARK": str(self.folder / "mark")}
        env["STEELYARD_HOME"] = str(HOME)
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "steelyard.replica", str(self.folder)],
                stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True, pass_fds=[pipe_read], env=env,
            )  # fmt: skip
        os.close(pipe_read)
        self.http = self.client()

    def client(self) -> httpx.Client:
        return httpx.Client(transport=httpx.HTTPTransport(uds=str(self.socket)), base_url="http://replica", timeout=60)

    def wait_ready(self) -> "RunningReplica":
        wait_until(self._ready, timeout_s=120)
        return self

    def _ready(self) -> bool:
        assert self.process.poll() is None, self.log.read_text()
        try:
            return self.http.get("/ready").status_code == 200
        except httpx.TransportError:
            return False

    def load(self) -> dict:
        return self.http.get("/load").json()

    def close(self) -> None:
        self.http.close()
        os.close(self.lifeline)
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


@pytest.fixture(scope="session")
def iris_model(tmp_path_factory):
    return save_iris_classifier(tmp_path_factory.mktemp("replica-models") / "iris")


@pytest.fixture(scope="session")
def behaving_model(tmp_path_factory) -> str:
    return save_python_model(tmp_path_factory.mktemp("replica-models") / "behaving", BEHAVIOURS)


@pytest.fixture(scope="session")
def iris_replica(iris_model):
    replica = RunningReplica(iris_model.uri)
    yield replica.wait_ready()
    replica.close()


@pytest.fixture(scope="module")
def behaving(behaving_model):
    replica = RunningReplica(behaving_model, max_concurrency=1)
    yield replica.wait_ready()
    replica.close()


def _starter():
    running = []

    def start(model_uri: str, **spec) -> RunningReplica:
        running.append(RunningReplica(model_uri, **spec))
        return running[-1]

    yield start
    for replica in running:
        replica.close()


start_replica = pytest.fixture(_starter, name="start_replica")
start_shared_replica = pytest.fixture(_starter, scope="module", name="start_shared_replica")
