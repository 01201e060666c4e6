"""The exporter as a program: what it leaves for models that it can and cannot convert."""

import json
from pathlib import Path

import msgspec
import numpy as np
import pandas as pd
import pytest

from steelyard.contracts.artifacts import Artifact
from steelyard.errors import ModelLoadError
from steelyard.runtimes.native import open_native
from steelyard.runtimes.tree_walk import walker
from support.models import save_python_model
from support.native_models import export_all, inputs_of, save_sklearn

pytestmark = pytest.mark.slow

_RNG = np.random.default_rng(5)
TRAIN = pd.DataFrame(_RNG.normal(size=(200, 2)), columns=["a", "b"])
TARGET = (TRAIN["a"] > 0).astype(int)
TOWNS = pd.DataFrame({"town": _RNG.choice(["Rome", "Oslo"], 200), "a": TRAIN["a"]})


def _neighbours():
    from sklearn.neighbors import KNeighborsClassifier

    return KNeighborsClassifier()


def _logistic():
    from sklearn.linear_model import LogisticRegression

    return LogisticRegression()


def _forest():
    from sklearn.ensemble import RandomForestClassifier

    return RandomForestClassifier(30, random_state=0)


def _search():
    from sklearn.model_selection import GridSearchCV

    return GridSearchCV(_logistic(), {"C": [0.1, 1.0]}, cv=2)


def _towns():
    from sklearn.compose import make_column_transformer
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder

    return make_pipeline(make_column_transformer((OneHotEncoder(), ["town"]), remainder="passthrough"), _logistic())


def _save_categories(folder):
    import lightgbm
    import mlflow.lightgbm
    from mlflow.models import infer_signature

    codes = TRAIN.assign(b=_RNG.integers(0, 5, 200))
    model = lightgbm.LGBMClassifier(n_estimators=3, n_jobs=1, verbose=-1).fit(codes.astype({"b": "category"}), TARGET)
    mlflow.lightgbm.save_model(model, folder, signature=infer_signature(codes), pip_requirements=[])


def _save_text(folder):
    import lightgbm
    import mlflow.lightgbm
    from mlflow.models import infer_signature

    model = lightgbm.LGBMClassifier(n_estimators=3, n_jobs=1, verbose=-1).fit(TRAIN, TARGET)
    mlflow.lightgbm.save_model(model, folder, signature=infer_signature(TOWNS), pip_requirements=[])


def _save_python(folder):
    save_python_model(folder, "class Model(PythonModel):\n    def predict(self, context, x, params=None): return [1]")


def _save_without_signature(folder):
    import mlflow.sklearn

    model = _logistic().fit(TRAIN, TARGET)
    mlflow.sklearn.save_model(model, folder, pip_requirements=[], serialization_format="cloudpickle")


def _save_broken(folder):
    folder.mkdir()
    (folder / "MLmodel").write_text("flavors: {python_function: {loader_module: mlflow.sklearn}}\n")


SAVERS = {
    "broken": _save_broken,
    "forest": save_sklearn(_forest, TRAIN, TARGET),
    "search": save_sklearn(_search, TRAIN, TARGET),
    "towns": save_sklearn(_towns, TOWNS, TARGET),
    "neighbours": save_sklearn(_neighbours, TRAIN, TARGET),
    "categories": _save_categories,
    "text": _save_text,
    "python": _save_python,
    "unsigned": _save_without_signature,
}


TOOL = """
import pathlib, sys
assert sys.path[-1] == str(pathlib.Path(__file__).parent)
pathlib.Path(__file__).with_name("was_found").touch()
"""


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """Exported with a folder of tools, whose only one is imported when the exports are done."""
    root = tmp_path_factory.mktemp("export")
    (root / "tools").mkdir()
    (root / "tools" / "a_tool_of_the_platform.py").write_text(TOOL)
    return export_all(root, SAVERS, tools=root / "tools", then="import a_tool_of_the_platform")


def test_an_artifact_names_its_columns_and_files(exported):
    out = exported["forest"].folder / "out" / "forest"
    artifact = msgspec.json.decode((out / "artifact.json").read_bytes(), type=Artifact)
    assert artifact.runtime == "forest"
    assert artifact.features == ["a", "b"]
    assert all((out / file).is_file() for file in artifact.files.values())
    assert not list(out.rglob("*.pkl"))


def test_a_search_is_its_best_estimator(exported):
    assert exported["search"].names() == {"linear"}


def test_hints_are_the_very_split_points(exported):
    import mlflow.sklearn

    hints = json.loads((exported["forest"].folder / "out" / "hints.json").read_text())
    forest = mlflow.sklearn.load_model(str(exported["forest"].folder / "model"))
    for place, name in enumerate(["a", "b"]):
        true = {float(t) for one in forest.estimators_ for t in one.tree_.threshold[one.tree_.feature == place]}
        assert 10 < len(hints["thresholds"][name]) <= 2048
        assert set(hints["thresholds"][name]) <= true


def test_hints_know_the_categories(exported):
    hints = json.loads((exported["towns"].folder / "out" / "hints.json").read_text())
    assert hints["categories"] == {"town": ["Oslo", "Rome"]}


def test_a_refusal_is_one_sentence_for_the_user(exported):
    assert exported["neighbours"].refusal("linear") == "KNeighborsClassifier is not linear."
    assert "pandas categories" in exported["categories"].refusal("lightgbm")
    assert "text columns" in exported["text"].refusal("lightgbm")
    for name in SAVERS:
        for file in (exported[name].folder / "out").glob("*/refused.txt"):
            text = file.read_text()
            assert text.count("\n") == 1
            assert text.endswith(".\n")
            assert "Traceback" not in text


def test_a_model_of_ones_own_code_or_without_a_signature_has_no_candidates(exported):
    for name in ("python", "unsigned"):
        assert exported[name].names() == set()


def test_a_model_that_cannot_be_loaded_leaves_nothing_and_stops_nothing(exported):
    assert list((exported["broken"].folder / "out").iterdir()) == []


def test_tools_are_found_behind_the_models_own_packages(exported):
    assert (exported["broken"].folder.parent / "tools" / "was_found").exists()


class TestOpening:
    def test_a_damaged_artifact_is_refused_in_words(self, exported, tmp_path):
        source = exported["forest"].folder / "out" / "forest"
        for damaged in ("artifact.json", "model.txt"):
            folder = tmp_path / damaged
            folder.mkdir()
            for file in source.iterdir():
                (folder / file.name).write_bytes(b"" if file.name == damaged else file.read_bytes())
            with pytest.raises(ModelLoadError):
                open_native(folder)

    def test_arrays_of_objects_are_never_unpickled(self, exported, tmp_path):
        for file in (exported["search"].folder / "out" / "linear").iterdir():
            (tmp_path / file.name).write_bytes(file.read_bytes())
        np.savez(tmp_path / "arrays.npz", coef=np.array([object()]), intercept=np.zeros(1))
        with pytest.raises(ModelLoadError):
            open_native(Path(tmp_path))

    def test_an_absent_library_is_refused_in_words(self, exported, tmp_path, monkeypatch):
        monkeypatch.setattr(walker, "Trees", None)  # the walk in C needs no library
        for file in (exported["forest"].folder / "out" / "forest").iterdir():
            (tmp_path / file.name).write_bytes(file.read_bytes())
        artifact = json.loads((tmp_path / "artifact.json").read_bytes())
        artifact.update({"runtime": "lightgbm", "library": "/no/such/lib.so"})
        artifact["options"]["finish"] = "values"
        (tmp_path / "artifact.json").write_text(json.dumps(artifact))
        with pytest.raises(ModelLoadError, match=r"lib\.so"):
            open_native(tmp_path)


def test_the_converted_models_answer(exported):
    for name, kind, rows in (("search", "linear", TRAIN), ("towns", "linear", TOWNS)):
        model = exported[name]
        assert model.runtime(kind).predict(inputs_of(rows)).tolist() == model.reference(rows).tolist()
