"""Single files and sentence-transformers folders: known by their content, and refused where opening them runs code."""

import json
import pickle

import numpy as np
import pytest

from steelyard.errors import ModelLoadError
from steelyard.packages import Kind, inspect_package, resolve

ROWS = np.arange(120, dtype=float).reshape(40, 3)
LABELS = (ROWS[:, 0] > 60).astype(int)


@pytest.fixture(scope="module")
def lightgbm_text() -> str:
    lightgbm = pytest.importorskip("lightgbm")
    data = lightgbm.Dataset(ROWS, LABELS)
    return lightgbm.train({"objective": "binary", "verbose": -1, "num_threads": 1}, data, 2).model_to_string()


def test_a_lightgbm_text_model_is_known_whatever_it_is_called(tmp_path, lightgbm_text):
    for name in ("model.txt", "model.lgb"):
        (tmp_path / name).write_text(lightgbm_text)
        package = inspect_package(resolve(str(tmp_path / name)))
        assert package.kind is Kind.LIGHTGBM
        assert package.size_bytes == len(lightgbm_text.encode())


def test_both_of_xgboosts_formats_are_known(tmp_path):
    xgboost = pytest.importorskip("xgboost")
    booster = xgboost.train({"nthread": 1}, xgboost.DMatrix(ROWS, LABELS), 1)
    for name in ("m.json", "m.ubj"):
        booster.save_model(tmp_path / name)
        assert resolve(str(tmp_path / name)).kind is Kind.XGBOOST


def test_a_catboost_file_is_known(tmp_path):
    catboost = pytest.importorskip("catboost")
    model = catboost.CatBoostClassifier(iterations=1, verbose=0, allow_writing_files=False, thread_count=1)
    model.fit(ROWS, LABELS).save_model(str(tmp_path / "m.cbm"))
    assert resolve(str(tmp_path / "m.cbm")).kind is Kind.CATBOOST
    assert resolve(str(tmp_path)).path == (tmp_path / "m.cbm").resolve()


def test_an_onnx_file_is_known_alone_or_beside_its_external_weights(tmp_path):
    onnx = pytest.importorskip("onnx")
    value = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [None, 3])
    same = onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [None, 3])
    graph = onnx.helper.make_graph([onnx.helper.make_node("Identity", ["x"], ["y"])], "g", [value], [same])
    onnx.save(onnx.helper.make_model(graph), tmp_path / "m.onnx")
    (tmp_path / "m.onnx.data").write_bytes(b"weights")
    assert resolve(str(tmp_path / "m.onnx")).kind is Kind.ONNX
    assert resolve(str(tmp_path)).path == (tmp_path / "m.onnx").resolve()


def test_torchscript_is_told_from_pickled_weights(tmp_path):
    torch = pytest.importorskip("torch")
    torch.jit.save(torch.jit.script(torch.nn.Linear(2, 1)), tmp_path / "script.pt")
    assert resolve(str(tmp_path / "script.pt")).kind is Kind.TORCHSCRIPT
    torch.save(torch.nn.Linear(2, 1).state_dict(), tmp_path / "weights.pt")
    torch.save(torch.nn.Linear(2, 1).state_dict(), tmp_path / "old.pth", _use_new_zipfile_serialization=False)
    for name in ("weights.pt", "old.pth"):
        with pytest.raises(ModelLoadError, match="no TorchScript file; save the model with torch"):
            resolve(str(tmp_path / name))


def test_a_sentence_transformers_folder_is_known_by_its_modules(tmp_path):
    (tmp_path / "config.json").write_text('{"architectures": ["BertModel"]}')
    modules = [{"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"}]
    (tmp_path / "modules.json").write_text(json.dumps(modules))
    package = inspect_package(resolve(str(tmp_path)))
    assert package.kind is Kind.SENTENCE_TRANSFORMERS
    assert package.task == "llm/v1/embeddings"
    assert package.size_bytes > 0
    for other in ("{}", "[1]", "[", '[{"type": "mine.Thing"}]'):
        (tmp_path / "modules.json").write_text(other)
        assert resolve(str(tmp_path)).kind is Kind.HUGGING_FACE


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("model.pkl", pickle.dumps({"a": 1}), "is a pickle.*log the model with MLflow"),
        ("model.bin", pickle.dumps({"a": 1}), "is a pickle"),
        ("model.joblib", b"x^5S\x7f", "is a pickle"),
        ("model.onnx", b"version https://example.invalid/spec/v1", "not an ONNX model though its name"),
        ("model.cbm", b"no", "not a CatBoost model"),
        ("model.ubj", b"no", "not an XGBoost model"),
        ("model.bin", b"binf\x00", "old binary format"),
        ("model.zip", b"PK\x03\x04cut off", "no TorchScript file"),
        ("model.safetensors", b"\x10\x00", "weights alone"),
        ("notes.txt", b"hello", "unknown kind"),
        ("config.json", b'{"architectures": []}', "unknown kind"),
        ("empty", b"", "unknown kind"),
    ],
)
def test_other_files_are_refused_with_the_way_out(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ModelLoadError, match=message) as caught:
        resolve(str(tmp_path / name))
    assert "\n" not in caught.value.message


def test_the_python_version_and_old_requirements_come_from_conda_where_no_newer_file_says_so(tmp_path):
    (tmp_path / "MLmodel").write_text("flavors:\n  python_function:\n    python_version: 3.9.1\n")
    assert inspect_package(resolve(str(tmp_path))).python_version == "3.9.1"
    pip = "  - pip:\n    - mlflow==1.14.0\n    - 'numpy==1.19.5 # pinned'\n"
    (tmp_path / "conda.yaml").write_text("dependencies:\n  - python=3.8.5\n  - pip<=21\n" + pip)
    package = inspect_package(resolve(str(tmp_path)))
    assert package.python_version == "3.8.5"
    assert package.requirements == ("mlflow==1.14.0", "numpy==1.19.5")
    (tmp_path / "python_env.yaml").write_text("python: 3.10.12\nbuild_dependencies:\n- pip==23\n")
    (tmp_path / "requirements.txt").write_text("six==1.16.0 \\\n    --hash=sha256:00 # why\n# nothing\n\n")
    package = inspect_package(resolve(str(tmp_path)))
    assert package.python_version == "3.10.12"
    assert package.requirements == ("six==1.16.0      --hash=sha256:00",)
    assert package.size_bytes == sum(file.stat().st_size for file in tmp_path.iterdir())
