import json
from pathlib import Path

import pytest

from steelyard.errors import ModelLoadError
from steelyard.packages import Kind, inspect_package, resolve

MLMODEL = """
flavors:
  python_function:
    loader_module: mlflow.sklearn
    streamable: true
  sklearn: {}
mlflow_version: 3.1.0
metadata:
  task: llm/v1/chat
is_signature_from_type_hint: true
saved_input_example_info:
  artifact_path: input_example.json
  serving_input_path: serving_input_example.json
signature:
  inputs: '[{"type": "double", "name": "a"}]'
"""


@pytest.fixture
def mlflow_folder(tmp_path) -> Path:
    folder = tmp_path / "a model"
    folder.mkdir()
    (folder / "MLmodel").write_text(MLMODEL)
    (folder / "requirements.txt").write_text("# pinned\nscikit-learn==1.0\n\nnumpy\n")
    (folder / "serving_input_example.json").write_text('{"inputs": [1]}')
    return folder


def test_an_mlflow_folder_is_found_by_path_file_uri_or_its_mlmodel_file(mlflow_folder):
    for uri in (str(mlflow_folder), mlflow_folder.as_uri(), str(mlflow_folder / "MLmodel")):
        location = resolve(uri, version="3")
        assert location.kind is Kind.MLFLOW
        assert location.path == mlflow_folder.resolve()


def test_the_mlmodel_file_is_read_without_mlflow(mlflow_folder):
    package = inspect_package(resolve(str(mlflow_folder)))
    assert package.flavors == ("python_function", "sklearn")
    assert package.task == "llm/v1/chat"
    assert package.streamable
    assert package.from_type_hints
    assert package.requirements == ("scikit-learn==1.0", "numpy")
    assert json.loads(package.signature_inputs) == [{"type": "double", "name": "a"}]
    assert package.example == b'{"inputs": [1]}'


def test_an_old_frame_example_becomes_a_scoring_body(mlflow_folder):
    info = "artifact_path: input_example.json\n  type: dataframe\n  pandas_orient: split"
    text = MLMODEL.replace("artifact_path: input_example.json\n  serving_input_path: serving_input_example.json", info)
    (mlflow_folder / "MLmodel").write_text(text)
    (mlflow_folder / "input_example.json").write_text('{"columns": ["a"], "data": [[1.0]]}')
    package = inspect_package(resolve(str(mlflow_folder)))
    assert json.loads(package.example) == {"dataframe_split": {"columns": ["a"], "data": [[1.0]]}}


def test_a_hugging_face_folder_is_known_by_its_config(tmp_path):
    (tmp_path / "config.json").write_text('{"architectures": ["LlamaForCausalLM"]}')
    location = resolve(str(tmp_path))
    assert location.kind is Kind.HUGGING_FACE
    assert inspect_package(location).architecture == "LlamaForCausalLM"


def test_a_gguf_file_alone_or_alone_in_its_folder(tmp_path):
    file = tmp_path / "m.gguf"
    file.write_bytes(b"GGUF\x03\x00\x00\x00")
    assert resolve(str(file)).kind is Kind.GGUF
    assert resolve(str(tmp_path)).path == file.resolve()
    (tmp_path / "n.gguf").write_bytes(b"GGUF")
    with pytest.raises(ModelLoadError, match=r"2 model files \(m\.gguf, n\.gguf\)"):
        resolve(str(tmp_path))


@pytest.mark.parametrize(
    ("uri", "message"),
    [
        ("/no/such/model", "no model at '/no/such/model'"),
        ("ftp://host/model", "scheme"),
        ("file://elsewhere/model", "another machine"),
        ("models:/no-such-model/1", "cannot be fetched"),
        ("models:/no-such-model@champion", "cannot be fetched"),
        ("runs:/0123456789abcdef0123456789abcdef/model", "cannot be fetched"),
        ("a\x00b", "'a"),
        ("", "no model|is no model"),
    ],
)
def test_a_bad_uri_is_one_sentence(uri, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path / 'mlflow.db'}")
    with pytest.raises(ModelLoadError, match=message) as caught:
        resolve(uri)
    assert "\n" not in caught.value.message


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("MLmodel", b"flavors: [", "cannot be read"),
        ("MLmodel", b"[]", "no MLmodel file"),
        ("MLmodel", b"flavors: {}", "no flavor"),
        ("MLmodel", b"\xff\xfe\x00", "cannot be read"),
        ("config.json", b"{", "cannot be read"),
        ("config.json", b"[]", "no architecture"),
        ("config.json", b'{"architectures": []}', "no architecture"),
        ("x.gguf", b"ZIP", "not a GGUF"),
        ("readme.txt", b"", "is no model"),
    ],
)
def test_broken_packages_say_what_is_wrong(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ModelLoadError, match=message):
        inspect_package(resolve(str(tmp_path)))


def test_a_registered_model_resolves_by_version_and_alias(tmp_path, monkeypatch):
    import mlflow

    from support.models import save_python_model

    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path / 'mlflow.db'}")
    monkeypatch.chdir(tmp_path)
    saved = save_python_model(
        tmp_path / "m", "class Model(PythonModel):\n    def predict(self, context, model_input):\n        return [1]"
    )
    client = mlflow.MlflowClient()
    client.create_registered_model("small")
    client.create_model_version("small", source=saved)
    client.set_registered_model_alias("small", "champion", "1")
    for uri, version in (
        ("models:/small/1", None),
        ("models:/small@champion", None),
        ("models:/small", "1"),
        ("small", "1"),
    ):
        location = resolve(uri, version)
        assert location.kind is Kind.MLFLOW
        assert (location.path / "MLmodel").is_file()
