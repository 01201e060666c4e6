"""Environments as they are really built: by uv, from the real index, by several processes, and by some that die."""

import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest

from steelyard.errors import ModelLoadError
from steelyard.packages import environment as module
from steelyard.packages import inspect_package, resolve
from steelyard.packages.environment import ensure, provide
from steelyard.packages.environment_store import MARKER_FILE, Store
from steelyard.packages.inspect import Package
from steelyard.packages.model_files import Kind
from steelyard.packages.requirements import Requirements
from steelyard.packages.satisfied import PYTHON_HERE
from steelyard.settings import Settings
from support.environments import OLD_REQUIREMENTS, old_environment, old_environment_home, save_old_sklearn_model
from support.slow_package import write_slow_package
from support.waiting import wait_until

pytestmark = pytest.mark.slow

SLOW = Requirements(("slow-package==1.0",))
BUILDER = """
import json, pathlib, sys
from steelyard.packages.environment import Requirements, provide
from steelyard.settings import Settings
home = pathlib.Path(sys.argv[1])
lines = []

def say(line):
    lines.append(line)
    if "waiting" in line:
        (home / "waiting").touch()

found = provide(Requirements(("slow-package==1.0",)), Settings(home=home), say)
print(json.dumps({"reused": found.reused, "python": str(found.python), "lines": lines}))
"""


@dataclass
class Slow:
    """A home, the folder that its builds find `slow-package` in, and the processes that a test started."""

    folder: Path
    settings: Settings
    builders: list[subprocess.Popen]

    def start(self) -> subprocess.Popen:
        command = [sys.executable, "-c", BUILDER, str(self.settings.home)]
        builder = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.builders.append(builder)
        return builder

    def build_pid(self) -> int:
        file = self.folder / "building"
        return int(wait_until(lambda: file.exists() and file.read_text(), 60))

    def go(self) -> None:
        (self.folder / "go").touch()

    def key(self) -> str:
        return next(iter(Store(self.settings.environments_dir).known()))


@pytest.fixture
def slow(tmp_path, monkeypatch):
    folder = tmp_path / "links"
    folder.mkdir()
    write_slow_package(folder)
    monkeypatch.setenv("UV_FIND_LINKS", str(folder))
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "cache"))
    world = Slow(folder, Settings(home=tmp_path / "home"), [])
    yield world
    world.go()
    for builder in world.builders:
        builder.kill()
        builder.communicate()


def test_a_model_of_an_older_generation_gets_the_libraries_that_it_was_trained_with(tmp_path):
    found = old_environment()
    code = "import sklearn, numpy, pandas; print(sklearn.__version__, numpy.__version__, pandas.__version__)"
    shown = subprocess.run([found.python, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.split() == ["1.4.2", "1.26.4", "2.1.4"]
    assert "is wanted" in found.reason
    folder = Store(old_environment_home() / "environments").place(found.key)
    assert "scikit-learn==1.4.2" in (folder / "build.log").read_text()
    marker = msgspec.json.decode((folder / MARKER_FILE).read_bytes())
    assert marker["requirements"] == sorted(["msgspec>=0.19", *OLD_REQUIREMENTS])

    saved = save_old_sklearn_model(tmp_path / "model", found.python)
    assert len(saved.predictions) == len(saved.records) == 6
    package = inspect_package(resolve(saved.uri))
    assert package.python_version.startswith("3.11")
    lines: list[str] = []
    started_s = time.monotonic()
    again = ensure(package, Settings(home=old_environment_home()), lines.append)
    assert time.monotonic() - started_s < 2
    assert again.reused
    assert (again.key, again.python, again.fingerprint) == (found.key, found.python, found.fingerprint)
    assert any("built before and used again" in line for line in lines)


def test_a_second_environment_shares_its_files_with_uvs_cache():
    root = old_environment_home() / "environments" / old_environment().key
    if os.stat(root).st_dev != os.stat(Path.home()).st_dev or "UV_CACHE_DIR" in os.environ:
        pytest.skip("uv's cache lies on another disk")
    libraries = [file for file in root.rglob("*.so") if file.stat().st_nlink > 1]
    assert libraries


def test_the_platforms_own_environment_serves_what_it_satisfies(tmp_path):
    lines: list[str] = []
    found = ensure(Package(tmp_path, Kind.LIGHTGBM), Settings(home=tmp_path), lines.append)
    assert found.python == Path(sys.executable)
    assert (found.key, found.reused, lines) == ("platform", True, [])
    found.release()


def test_an_impossible_pin_is_one_sentence_and_the_log_holds_the_rest(tmp_path):
    lines: list[str] = []
    package = Package(tmp_path, Kind.MLFLOW, requirements=("scikit-learn==99.0", "mlflow"))
    with pytest.raises(ModelLoadError) as caught:
        ensure(package, Settings(home=tmp_path), lines.append)
    expected = "The model's requirements cannot be installed: no version of scikit-learn==99.0 exists."
    assert caught.value.message == expected
    assert any("unsatisfiable" in line for line in lines)
    assert not list((tmp_path / "environments").glob("*/"))


def test_no_network_is_said(tmp_path, monkeypatch):
    monkeypatch.setenv("UV_DEFAULT_INDEX", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("UV_HTTP_RETRIES", "0")
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "cache"))
    with pytest.raises(ModelLoadError, match="index cannot be reached and uv's cache does not hold everything"):
        provide(Requirements(("six==1.15.0", "slow-package")), Settings(home=tmp_path), lambda line: None)


def test_a_missing_uv_is_said(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ModelLoadError, match="uv, which builds it, is missing; install uv"):
        provide(SLOW, Settings(home=tmp_path), lambda line: None)


def test_a_folder_that_cannot_be_written_is_said(tmp_path):
    (tmp_path / "home").write_text("a file")
    with pytest.raises(ModelLoadError, match=r"cannot be made in '.*environments': Not a directory"):
        provide(SLOW, Settings(home=tmp_path / "home"), lambda line: None)


def test_a_python_that_is_not_here_is_replaced_with_a_warning(tmp_path):
    lines: list[str] = []
    for version, words in (("3.6", "older than 3.10"), ("3.99", "not on this machine")):
        found = provide(Requirements((), python=version), Settings(home=tmp_path), lines.append)
        assert found.key == "platform"
        assert words in lines[-1]
        assert f"{PYTHON_HERE} runs it" in lines[-1]


def test_processes_that_want_the_same_build_it_once(slow):
    builders = [slow.start() for _ in range(3)]
    slow.build_pid()
    slow.go()
    told = []
    for builder in builders:
        out, err = builder.communicate(timeout=60)
        assert builder.returncode == 0, err
        told.append(msgspec.json.decode(out))
    assert sorted(each["reused"] for each in told) == [False, True, True]
    assert len({each["python"] for each in told}) == 1
    assert sum("Building slow-package" in line for each in told for line in each["lines"]) == 1
    command = [told[0]["python"], "-c", "import slow_package; print(slow_package.ANSWER)"]
    assert subprocess.run(command, capture_output=True, check=True).stdout.strip() == b"42"


def test_a_builder_killed_with_its_process_group_leaves_nothing_that_looks_finished(slow):
    command = [sys.executable, "-c", BUILDER, str(slow.settings.home)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, start_new_session=True) as builder:
        worker = slow.build_pid()
        os.killpg(builder.pid, signal.SIGKILL)
    wait_until(lambda: not _runs(worker), 10)
    assert (slow.settings.environments_dir / slow.key()).is_dir()
    slow.go()
    found = provide(SLOW, slow.settings, lambda line: None)
    assert not found.reused
    assert found.python.exists()


def test_a_builder_killed_alone_is_waited_for_until_its_uv_has_ended_too(slow):
    builder = slow.start()
    worker = slow.build_pid()
    builder.kill()
    builder.wait()
    store = Store(slow.settings.environments_dir)
    assert _runs(worker)
    assert store.own(slow.key()) is None  # its uv still writes there
    later = slow.start()
    wait_until((slow.settings.home / "waiting").exists, 60)
    slow.go()
    out, err = later.communicate(timeout=60)
    assert later.returncode == 0, err
    assert not msgspec.json.decode(out)["reused"]


def test_a_build_that_takes_too_long_ends_with_all_its_processes(slow, monkeypatch):
    monkeypatch.setattr(module, "BUILD_LIMIT_S", 6.0)
    with pytest.raises(ModelLoadError, match="could not be installed within"):
        provide(SLOW, slow.settings, lambda line: None)
    if (slow.folder / "building").exists():  # on a busy machine the time may be over before the build begins
        worker = slow.build_pid()
        wait_until(lambda: not _runs(worker), 10)
    assert not (slow.settings.environments_dir / slow.key()).exists()


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_running_replica_keeps_its_environment_from_being_cleaned_away(slow):
    slow.go()
    found = provide(SLOW, slow.settings, lambda line: None)
    far_s = time.time() + 90 * 86_400
    assert module.collect_garbage(slow.settings, far_s) == ()
    found.release()
    found.release()
    assert len(module.collect_garbage(slow.settings, far_s + 31 * 86_400)) == 1
    assert not found.python.exists()
