"""The export that a worker does of the model it has loaded: the same artifacts as the exporter's own process makes."""

import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from steelyard.contracts.worker import EXPORTED
from steelyard.errors import ModelLoadError
from steelyard.runtimes.exporting import Exporting
from support.native_models import export_all, save_sklearn
from support.waiting import wait_until
from support.workers import predictions, query, runtime_of

pytestmark = pytest.mark.slow

_RNG = np.random.default_rng(5)
TRAIN = pd.DataFrame(_RNG.normal(size=(200, 2)), columns=["a", "b"])
TARGET = (TRAIN["a"] > 0).astype(int)


def _logistic():
    from sklearn.linear_model import LogisticRegression

    return LogisticRegression()


def _neighbours():
    from sklearn.neighbors import KNeighborsClassifier

    return KNeighborsClassifier()


def _forest():
    from sklearn.ensemble import RandomForestClassifier

    return RandomForestClassifier(20, random_state=0, n_jobs=-1)


def _lightgbm():
    from lightgbm import LGBMClassifier

    return LGBMClassifier(n_estimators=20, num_threads=4, verbose=-1)


def _xgboost():
    from xgboost import XGBClassifier

    return XGBClassifier(n_estimators=20, n_jobs=4)


def _catboost():
    from catboost import CatBoostClassifier

    return CatBoostClassifier(iterations=20, thread_count=4, verbose=False, allow_writing_files=False)


def _flavored(name, make):
    def save(folder):
        import importlib

        from mlflow.models import infer_signature

        model = make().fit(TRAIN, TARGET)
        signature = infer_signature(TRAIN)
        importlib.import_module(f"mlflow.{name}").save_model(model, folder, signature=signature, pip_requirements=[])

    return save


SAVERS = {
    "logistic": save_sklearn(_logistic, TRAIN, TARGET),
    "forest": save_sklearn(_forest, TRAIN, TARGET),
    "neighbours": save_sklearn(_neighbours, TRAIN, TARGET),
    "lightgbm": _flavored("lightgbm", _lightgbm),
    "xgboost": _flavored("xgboost", _xgboost),
    "catboost": _flavored("catboost", _catboost),
}


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    return export_all(tmp_path_factory.mktemp("beside"), SAVERS)


def _files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("name", SAVERS)
def test_a_worker_exports_what_the_exporter_does_and_serves_as_before(exported, name, tmp_path):
    model = exported[name]
    runtime = runtime_of(model.folder / "model", exports=True)
    runtime.load()
    try:
        assert runtime.exported(tmp_path / "out")
        mine, its = _files(tmp_path / "out"), _files(model.folder / "out")
        mine.pop("onnx/model.onnx", None), its.pop("onnx/model.onnx", None)  # a graph's nodes are named by chance
        assert {key: value for key, value in mine.items() if not key.endswith(".npz")} == {
            key: value for key, value in its.items() if not key.endswith(".npz")
        }
        for key in (key for key in its if key.endswith(".npz")):
            one, other = np.load(tmp_path / "out" / key), np.load(model.folder / "out" / key)
            assert {item: one[item].tobytes() for item in one} == {item: other[item].tobytes() for item in other}
        rows = {"columns": ["a", "b"], "data": TRAIN.head(9).to_numpy().tolist()}
        answered = predictions(runtime.answer(query({"dataframe_split": rows})))
        assert np.allclose(answered, np.ravel(model.reference(TRAIN.head(9))))
        wait_until(lambda: not _children(runtime.worker_pids[0]), 10)
    finally:
        runtime.close()


def _flawed(fault):
    from sklearn.base import BaseEstimator, ClassifierMixin

    class Flawed(ClassifierMixin, BaseEstimator):
        """Answers, but ends the process that looks for what converters look for."""

        def fit(self, rows, target):
            self.classes_ = np.unique(target)
            return self

        def predict(self, rows):
            return np.ones(len(rows), dtype=int)

        def __getattr__(self, name):
            if name == "best_estimator_":
                if fault == "exit":
                    os._exit(3)
                if fault == "kill":
                    os.kill(os.getpid(), 9)
                raise SystemExit(1)
            raise AttributeError(name)

    return Flawed()


@pytest.mark.parametrize("fault", ["exit", "kill", "raise"])
def test_a_conversion_that_ends_its_process_does_not_end_the_worker(fault, tmp_path):
    save_sklearn(lambda: _flawed(fault), TRAIN, TARGET)(tmp_path / "model")
    runtime = runtime_of(tmp_path / "model", exports=True)
    runtime.load()
    try:
        assert not runtime.exported(tmp_path / "out")
        rows = {"columns": ["a", "b"], "data": [[1.0, 2.0]]}
        assert predictions(runtime.answer(query({"dataframe_split": rows}))) == [1]
    finally:
        runtime.close()


def _open_pipes() -> int:
    links = (os.readlink(entry) for entry in Path("/proc/self/fd").iterdir() if entry.is_symlink())
    return sum(link.startswith("pipe:") for link in links)


def test_an_export_that_nobody_takes_leaves_no_pipe_open(exported, tmp_path):
    before = _open_pipes()
    runtime = runtime_of(exported["logistic"].folder / "model", exports=True)
    runtime.load()
    runtime.close()
    assert _open_pipes() == before


def test_a_model_that_cannot_be_loaded_leaves_no_pipe_open(tmp_path):
    save_sklearn(_logistic, TRAIN, TARGET)(tmp_path / "model")
    (tmp_path / "model" / "model.pkl").write_bytes(b"no pickle")
    before = _open_pipes()
    with pytest.raises(ModelLoadError):
        runtime_of(tmp_path / "model", exports=True).load()
    wait_until(lambda: _open_pipes() == before, 10)


@pytest.mark.parametrize("left", ["a link", "nothing", "links"])
def test_what_the_models_process_left_is_taken_without_links(left, tmp_path):
    home, out, secret = tmp_path / "home", tmp_path / "out", tmp_path / "secret"
    home.mkdir()
    secret.mkdir()
    (secret / "key").write_text("secret")
    exporting = Exporting()
    order = exporting.order(home)
    folder = Path(order.folder)
    if left == "a link":
        folder.symlink_to(secret)
    elif left == "links":
        folder.mkdir()
        (folder / "linear").symlink_to(secret)
        (folder / "hints.json").symlink_to(secret / "key")
        (folder / "plain").write_text("plain")
    os.write(order.descriptor, EXPORTED)
    exporting.begun()
    assert exporting.copy_to(out) is (left == "links")
    assert [path.name for path in tmp_path.glob("out/**/*")] == (["plain"] if left == "links" else [])


def _children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
