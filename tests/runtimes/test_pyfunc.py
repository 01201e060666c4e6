"""The pyfunc runtime with real MLflow models, without a replica around it."""

import json

import pytest

from steelyard.errors import BadRequest, ModelFailed, ModelLoadError
from steelyard.packages import inspect_package, resolve
from steelyard.protocols.media import Media
from steelyard.protocols.mlflow import parse_invocation, to_plain
from steelyard.runtimes.pyfunc import PyfuncRuntime
from steelyard.runtimes.select import select
from support.models import save_iris_classifier, save_python_model

TROUBLE = """
class Model(PythonModel):
    def predict(self, context, model_input, params=None):
        if 'raise' in str(model_input):
            raise ValueError('a secret row: ' + str(model_input))
        return [1]
"""


def runtime_of(path) -> PyfuncRuntime:
    runtime = PyfuncRuntime(inspect_package(resolve(str(path))))
    runtime.load()
    return runtime


def ask(body) -> object:
    return parse_invocation(json.dumps(body).encode(), Media.JSON)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    return save_iris_classifier(tmp_path_factory.mktemp("models") / "iris")


@pytest.fixture(scope="module")
def iris(saved):
    return runtime_of(saved.uri)


def test_predictions_are_the_models_own_in_every_format(iris, saved):
    bodies = [
        {"dataframe_split": saved.split},
        {"dataframe_records": saved.records},
        {"instances": saved.records},
        {"inputs": saved.records},
        {"inputs": {name: [row[name] for row in saved.records] for name in saved.records[0]}},
    ]
    for body in bodies:
        assert to_plain(iris.predict(ask(body))) == saved.predictions


def test_the_input_example_is_predicted_at_warm_up(iris):
    assert iris.warm_up() is True
    assert iris.task is None
    assert not iris.streams


def test_a_missing_column_is_the_clients_fault_and_named(iris, saved):
    records = [{name: value for name, value in row.items() if name != "petal width (cm)"} for row in saved.records]
    with pytest.raises(BadRequest, match=r"petal width \(cm\)") as caught:
        iris.predict(ask({"dataframe_records": records}))
    assert caught.value.param == "petal width (cm)"


def test_a_chat_body_to_a_classifier_is_refused_without_echoing_it(iris):
    with pytest.raises(BadRequest) as caught:
        iris.predict(ask({"messages": [{"role": "user", "content": "secret"}]}))
    assert "secret" not in caught.value.message


def test_streaming_is_refused_where_the_model_cannot(iris, saved):
    with pytest.raises(BadRequest, match="cannot stream"):
        next(iris.predict_stream(ask({"dataframe_split": saved.split, "stream": True})))


def test_what_the_model_raises_is_its_failure_without_its_text(tmp_path):
    runtime = runtime_of(save_python_model(tmp_path / "trouble", TROUBLE))
    assert runtime.predict(ask({"inputs": ["fine"]})) == [1]
    with pytest.raises(ModelFailed, match="raised ValueError") as caught:
        runtime.predict(ask({"inputs": ["raise"]}))
    assert "secret" not in caught.value.message
    assert runtime.warm_up() is False  # no input example


def test_params_follow_the_signature(tmp_path):
    import mlflow.pyfunc
    from mlflow.models import infer_signature

    source = tmp_path / "code.py"
    source.write_text(
        "from mlflow.pyfunc import PythonModel\nfrom mlflow.models import set_model\n"
        "class Model(PythonModel):\n"
        "    def predict(self, context, model_input, params=None):\n"
        "        return [params['k']] * len(model_input)\n"
        "set_model(Model())\n"
    )
    signature = infer_signature([{"a": 1.0}], [1], params={"k": 5})
    mlflow.pyfunc.save_model(tmp_path / "m", python_model=str(source), signature=signature, pip_requirements=[])
    runtime = runtime_of(tmp_path / "m")
    assert runtime.predict(ask({"inputs": [{"a": 1.0}]})) == [5]
    assert runtime.predict(ask({"inputs": [{"a": 1.0}], "params": {"k": 7}})) == [7]
    with pytest.raises(BadRequest, match="k") as caught:
        runtime.predict(ask({"inputs": [{"a": 1.0}], "params": {"k": "secret"}}))
    assert "secret" not in caught.value.message


def test_type_hinted_models_take_inputs_as_they_are(tmp_path):
    body = (
        "class Model(PythonModel):\n"
        "    def predict(self, model_input: list[str]):\n"
        "        return [len(item) for item in model_input]\n"
    )
    runtime = runtime_of(save_python_model(tmp_path / "hints", body))
    assert runtime.predict(ask({"inputs": ["a", "bcd"]})) == [1, 3]
    with pytest.raises(BadRequest):
        runtime.predict(ask({"inputs": [{"a": 1}]}))
    with pytest.raises(BadRequest, match="inputs"):
        runtime.predict(ask({"dataframe_records": [{"a": 1}]}))


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("    def load_context(self, context):\n        raise RuntimeError('no weights')\n", "no weights"),
        ("    def load_context(self, context):\n        import no_such_module\n", "no_such_module"),
        ("    def load_context(self, context):\n        1 / 0\n", "ZeroDivisionError"),
    ],
)
def test_a_model_that_cannot_load_says_why(tmp_path, body, message):
    code = f"class Model(PythonModel):\n{body}    def predict(self, context, model_input):\n        return [1]"
    path = save_python_model(tmp_path / "broken", code)
    with pytest.raises(ModelLoadError, match=message):
        runtime_of(path)


def test_a_model_that_fails_on_its_own_example_is_not_ready(tmp_path, saved):
    path = save_python_model(tmp_path / "trouble", TROUBLE)
    (tmp_path / "trouble" / "example.json").write_text('{"inputs": ["raise"]}')
    with open(tmp_path / "trouble" / "MLmodel", "a") as file:
        file.write("saved_input_example_info:\n  serving_input_path: example.json\n")
    with pytest.raises(ModelLoadError, match="its own input example"):
        runtime_of(path).warm_up()


def test_mlflow_models_select_pyfunc_with_a_reason(saved):
    selection = select(inspect_package(resolve(saved.uri)), 3)
    assert selection.predict.name == "pyfunc"
    assert selection.predict.max_concurrency == 3
    assert selection.generate is None
    assert "sklearn" in selection.reason
