"""Worker processes with real models: the conversation, what the model's code may see, and how workers die."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from steelyard.errors import BadRequest, BadUpstream, ModelFailed, ModelLoadError, Unavailable
from steelyard.protocols.inputs import Inputs
from steelyard.runtimes.base import Caller
from support.models import save_iris_classifier, save_python_model
from support.waiting import wait_until
from support.workers import predictions, query, runtime_of

pytestmark = pytest.mark.slow

BEHAVIOURS = """
import ctypes, faulthandler, re, threading
class Model(PythonModel):
    def predict(self, context, model_input, params=None):
        word, _, rest = str(model_input['prompt']).partition(' ')
        if word == 'raise':
            raise ValueError('a secret')
        if word == 'exit':
            os._exit(int(rest))
        if word == 'segfault':
            faulthandler.disable()
            ctypes.string_at(0)
        if word == 'wait':
            while not pathlib.Path(rest).exists():
                time.sleep(0.01)
        if word == 'hold':  # Python's lock, in C, for long
            re.match('(a|a)*$', 'a' * 40 + 'b')
        if word == 'environ':
            return dict(os.environ)
        if word == 'status':
            return pathlib.Path('/proc/self/status').read_text()
        if word == 'self':
            score = int(pathlib.Path('/proc/self/oom_score_adj').read_text())
            return {'pid': os.getpid(), 'fds': len(os.listdir('/proc/self/fd')), 'group': os.getpgrp(),
                    'threads': threading.active_count(), 'oom': score, 'uid': os.getuid()}
        return {'echo': model_input}

    def predict_stream(self, context, model_input, params=None):
        word, _, rest = str(model_input['prompt']).partition(' ')
        try:
            number = 0
            while word == 'endless' or number < 3:
                if word == 'break' and number == 2:
                    raise ValueError('a secret')
                if word == 'exit' and number == 2:
                    os._exit(9)
                yield {'number': number}
                number += 1
        finally:
            if rest:
                with open(rest, 'a') as file:
                    file.write('closed ')
"""


@pytest.fixture(scope="module")
def folder():
    """Which an unprivileged user can read, as pytest's own cannot."""
    made = Path(tempfile.mkdtemp(prefix="steelyard-test-"))
    made.chmod(0o755)
    yield made
    shutil.rmtree(made, ignore_errors=True)


@pytest.fixture(scope="module")
def model(folder) -> str:
    return save_python_model(folder / "behaving", BEHAVIOURS)


@pytest.fixture(scope="module")
def shared(model):
    os.environ["STEELYARD_SECRET"] = "hush"
    os.environ["FROM_THE_REPLICA"] = "yes"
    runtime = runtime_of(model, environment={"FROM_THE_USER": "yes", "FROM_THE_REPLICA": "overridden"})
    runtime.load()
    yield runtime
    runtime.close()
    del os.environ["STEELYARD_SECRET"], os.environ["FROM_THE_REPLICA"]


@pytest.fixture
def mortal(model):
    """A worker that a test may kill."""
    runtime = runtime_of(model)
    runtime.load()
    yield runtime
    runtime.close()


def say(runtime, prompt: str, **values):
    return json.loads(runtime.answer(query({"prompt": prompt}), **values).body)


def gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def test_a_classifier_answers_by_each_variant_and_compares(tmp_path):
    saved = save_iris_classifier(tmp_path / "iris")
    runtime = runtime_of(saved.uri)
    runtime.load()
    try:
        assert runtime.warm_up() is True
        assert runtime.variants == ("pyfunc", "frame", "native")
        rows = np.array(saved.split["data"])
        inputs = Inputs(tuple(saved.split["columns"]), len(rows), rows)
        for variant in runtime.variants:
            runtime.name = variant
            assert predictions(runtime.answer(query({"dataframe_split": saved.split}))) == saved.predictions
            assert runtime.outcome(inputs, variant).plain == saved.predictions
    finally:
        runtime.close()


def test_errors_cross_with_their_class_and_without_the_models_text(shared):
    with pytest.raises(ModelFailed, match="raised ValueError") as failed:
        say(shared, "raise")
    assert "secret" not in failed.value.message
    with pytest.raises(BadRequest) as refused:
        shared.answer(query({"dataframe_records": 1}))
    assert refused.value.param == "dataframe_records"


def test_bodies_of_many_megabytes_go_both_ways(shared):
    text = "x" * 20_000_000
    assert say(shared, text)["echo"]["prompt"] == text


def test_the_models_code_sees_the_users_variables_and_none_of_the_platforms_secrets(shared):
    seen = say(shared, "environ")
    assert seen["FROM_THE_USER"] == "yes"
    assert seen["FROM_THE_REPLICA"] == "overridden"
    assert not [name for name in seen if name.startswith("STEELYARD_")]
    assert seen["OMP_NUM_THREADS"].isdigit()


def test_the_worker_cannot_gain_privileges_and_is_the_first_to_go(shared):
    status = say(shared, "status")
    assert "NoNewPrivs:\t1" in status
    me = say(shared, "self")
    assert me["oom"] > int(Path("/proc/self/oom_score_adj").read_text())
    assert me["group"] == os.getpgrp()


def test_what_an_unprivileged_user_cannot_read_runs_as_the_replica_does(tmp_path):
    runtime = runtime_of(save_python_model(tmp_path / "behaving", BEHAVIOURS))
    runtime.load()
    try:
        assert say(runtime, "self")["uid"] == os.getuid()
    finally:
        runtime.close()


def test_a_stream_comes_piece_by_piece_and_breaks_with_the_models_failure(shared):
    pieces = [json.loads(piece) for piece in shared.stream(query({"prompt": "count", "stream": True}))]
    assert pieces == [{"number": 0}, {"number": 1}, {"number": 2}]
    stream = shared.stream(query({"prompt": "break", "stream": True}))
    assert [json.loads(next(stream)), json.loads(next(stream))] == pieces[:2]
    with pytest.raises(ModelFailed, match="raised ValueError"):
        next(stream)


def test_two_hundred_cancelled_streams_close_their_generators_and_leak_nothing(shared, folder):
    mark = folder / "closed"
    mark.touch()
    mark.chmod(0o666)
    before, fds = say(shared, "self"), len(os.listdir("/proc/self/fd"))
    for _ in range(200):
        stream = shared.stream(query({"prompt": f"endless {mark}", "stream": True}))
        next(stream)
        stream.close()
    wait_until(lambda: mark.read_text().count("closed") == 200, timeout_s=20)
    after = wait_until(lambda: _settled(shared, before), timeout_s=20)
    assert after["fds"] <= before["fds"] + 1
    assert len(os.listdir("/proc/self/fd")) <= fds + 1


def _settled(runtime, before):
    now = say(runtime, "self")
    return now if now["threads"] <= before["threads"] + 1 else None


def test_slots_do_not_wait_for_each_other(shared, folder):
    mark = folder / "go"
    with ThreadPoolExecutor() as threads:
        slow = threads.submit(say, shared, f"wait {mark}")
        assert say(shared, "quick")["echo"] == {"prompt": "quick"}
        assert not slow.done()
        mark.touch()
        assert slow.result(timeout=30)


@pytest.mark.parametrize(
    ("kill", "how"),
    [
        (lambda runtime: say(runtime, "exit 7"), "with status 7"),
        (lambda runtime: say(runtime, "segfault"), "by SIGSEGV"),
    ],
)
def test_a_worker_that_dies_fails_what_it_had_and_the_next_one_serves_what_waits(mortal, folder, kill, how):
    pid = mortal.worker_pids[0]
    with ThreadPoolExecutor() as threads:
        held = threads.submit(say, mortal, "wait /nowhere")
        wait_until(lambda: mortal._pool.serving[0].busy == 1, timeout_s=10)
        with pytest.raises(BadUpstream, match=how):
            kill(mortal)
        began_s = time.monotonic()
        with pytest.raises(BadUpstream, match=how):
            held.result(timeout=5)
        assert time.monotonic() - began_s < 1
        queued = [threads.submit(say, mortal, f"later {number}") for number in range(3)]
        assert [item.result(timeout=120)["echo"]["prompt"] for item in queued] == ["later 0", "later 1", "later 2"]
    assert mortal.worker_pids[0] != pid


def test_a_killed_worker_is_told_from_a_slow_one_and_queries_wait_within_their_deadline(mortal):
    os.kill(mortal.worker_pids[0], signal.SIGKILL)
    wait_until(lambda: not mortal.worker_pids, timeout_s=5)
    with pytest.raises(Unavailable, match="started again") as caught:
        say(mortal, "hello", caller=Caller(time.monotonic() + 0.2))
    assert caught.value.retry_after_s
    assert say(mortal, "hello")["echo"]


def test_a_stream_whose_worker_dies_does_not_end_as_if_it_were_whole(mortal):
    stream = mortal.stream(query({"prompt": "exit", "stream": True}))
    assert json.loads(next(stream))
    assert json.loads(next(stream))
    with pytest.raises(BadUpstream, match="with status 9"):
        next(stream)


def test_a_worker_that_keeps_dying_is_given_up(mortal, monkeypatch):
    monkeypatch.setattr("steelyard.runtimes.worker_pool._FIRST_PAUSE_S", 0.0)
    monkeypatch.setattr("steelyard.runtimes.worker_pool.MOST_DEATHS", 2)
    reasons = []
    mortal.on_dead = reasons.append
    for _ in range(2):
        with pytest.raises(BadUpstream):
            say(mortal, "exit 1")
    wait_until(lambda: reasons, timeout_s=10)
    assert "with status 1, 2 times" in reasons[0]
    with pytest.raises(Unavailable):
        say(mortal, "hello")


def test_a_model_that_holds_pythons_lock_holds_up_nothing_but_itself(mortal):
    pid = mortal.worker_pids[0]
    failures = []

    def hold():
        try:
            say(mortal, "hold")
        except BadUpstream as error:
            failures.append(error)

    thread = threading.Thread(target=hold)
    thread.start()
    wait_until(lambda: _is_busy(pid), timeout_s=60)
    began_s = time.monotonic()
    assert mortal.max_concurrency >= 1
    mortal.close()  # by force, since the worker hears nothing
    assert time.monotonic() - began_s < 10
    thread.join(timeout=5)
    assert gone(pid)
    assert "SIGKILL" in failures[0].message


def test_closing_twice_leaves_no_process_and_refuses_queries(model):
    runtime = runtime_of(model)
    runtime.load()
    pid = runtime.worker_pids[0]
    runtime.close()
    runtime.close()
    assert gone(pid)
    with pytest.raises(Unavailable):
        say(runtime, "hello")


def test_a_model_that_cannot_load_says_why_and_leaves_no_process(tmp_path):
    code = "class Model(PythonModel):\n    def load_context(self, context):\n        import no_such_module\n"
    runtime = runtime_of(save_python_model(tmp_path / "broken", code + "    def predict(self, context, x): pass"))
    with pytest.raises(ModelLoadError, match="no_such_module"):
        runtime.load()
    assert runtime.worker_pids == []


def test_a_model_that_ends_its_process_while_it_loads_says_how(tmp_path):
    code = "class Model(PythonModel):\n    def load_context(self, context):\n        os._exit(4)\n"
    runtime = runtime_of(save_python_model(tmp_path / "broken", code + "    def predict(self, context, x): pass"))
    with pytest.raises(ModelLoadError, match="with status 4 while it loaded"):
        runtime.load()


REPLICA = """
import sys, threading
sys.path.insert(0, sys.argv[2])
from support.workers import query, runtime_of
runtime = runtime_of(sys.argv[1])
loading = threading.Thread(target=runtime.load)
loading.start()
loading.join()  # the thread that asked for the worker is gone; the worker is not
print(runtime.worker_pids[0], flush=True)
runtime.answer(query({"prompt": "hold"}))
"""


def test_a_worker_dies_with_its_replica_whatever_its_model_is_at(model):
    tests = str(Path(__file__).parents[1])
    replica = subprocess.Popen([sys.executable, "-c", REPLICA, model, tests], stdout=subprocess.PIPE, text=True)
    pid = int(replica.stdout.readline())
    try:
        wait_until(lambda: _is_busy(pid), timeout_s=60)
        replica.kill()
        replica.wait()
        wait_until(lambda: gone(pid), timeout_s=1, every_s=0.02)
    finally:
        with contextlib.suppress(ProcessLookupError):
            replica.kill()
        replica.stdout.close()


def _is_busy(pid: int) -> bool:
    """Its processor time rises."""
    ticks = [int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11])]
    time.sleep(0.2)
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11]) > ticks[0] + 2
