"""What a worker gives up before a model runs in it, on real processes."""

import os
import pwd
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

import pytest

from steelyard.packages import inspect_package, resolve
from steelyard.runtimes.workers import WorkerRuntime
from support.models import save_python_model
from support.workers import predictions, query, runtime_of

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root has privileges to give up"),
]

WHO = """
class Model(PythonModel):
    def load_context(self, context):
        if os.environ.get("NEEDS"):
            open(os.environ["NEEDS"]).close()
    def predict(self, context, model_input, params=None):
        home = pathlib.Path(os.environ["HOME"])
        (home / "mine").touch()
        try:
            os.setuid(0)
            back = True
        except PermissionError:
            back = False
        return [os.getuid(), os.getgid(), os.getgroups(), str(home), back]
"""


def common_python() -> Path | None:
    """An interpreter that nobody may use, of this minor version, so that it can import what this one has."""
    for path in ("/usr/bin/python3", "/usr/local/bin/python3"):
        if not Path(path).exists():
            continue
        version = subprocess.run([path, "-V"], capture_output=True, text=True, check=False).stdout
        if version.startswith(f"Python {sys.version_info.major}.{sys.version_info.minor}."):
            return Path(path)
    return None


@pytest.fixture(scope="module")
def python():
    site = sysconfig.get_path("purelib")
    command = ["-c", f"import os; os.setuid(65534); os.listdir({site!r})"]
    path = common_python()
    if path is None or subprocess.run([path, *command], capture_output=True, check=False).returncode:
        pytest.skip("no interpreter that everyone may use")
    return path


@pytest.fixture(scope="module")
def model():
    folder = Path(tempfile.mkdtemp(prefix="steelyard-test-"))
    folder.chmod(0o755)
    yield save_python_model(folder / "who", WHO)
    shutil.rmtree(folder)


def started(model: str, python: Path, **values) -> WorkerRuntime:
    package = inspect_package(resolve(model))
    runtime = WorkerRuntime(package, python=python, extra_path=(Path(sysconfig.get_path("purelib")),), **values)
    runtime.load()
    return runtime


def test_a_model_that_everyone_may_read_runs_as_nobody_for_good_with_a_home_of_its_own(model, python):
    runtime = started(model, python)
    try:
        uid, gid, groups, home, back = predictions(runtime.answer(query({"inputs": [1]})))
        assert uid == pwd.getpwnam("nobody").pw_uid
        assert gid == pwd.getpwnam("nobody").pw_gid
        assert groups == []
        assert not back
        assert home != os.environ.get("HOME")
    finally:
        runtime.close()
    assert not Path(home).exists()


def test_a_model_that_turns_out_to_need_privileges_gets_them_back(model, python, tmp_path):
    (tmp_path / "secret").touch(mode=0o600)
    runtime = started(model, python, environment={"NEEDS": str(tmp_path / "secret")})
    try:
        assert predictions(runtime.answer(query({"inputs": [1]})))[0] == 0
    finally:
        runtime.close()


def test_a_model_that_only_root_may_read_runs_as_root(tmp_path):
    runtime = runtime_of(save_python_model(tmp_path / "who", WHO), environment={"HOME": str(tmp_path)})
    runtime.load()
    try:
        assert predictions(runtime.answer(query({"inputs": [1]})))[0] == 0
    finally:
        runtime.close()
