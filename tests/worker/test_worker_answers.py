"""What a worker does with a query, with real MLflow models, without a process around it."""

import json

import numpy as np
import pytest

from steelyard.errors import BadRequest, ModelFailed, ModelLoadError
from steelyard.protocols.inputs import Inputs
from steelyard.protocols.query import Dialect
from support.models import save_iris_classifier, save_python_model
from support.workers import Inside, query

TROUBLE = """
class Model(PythonModel):
    def predict(self, context, model_input, params=None):
        if 'raise' in str(model_input):
            raise ValueError('a secret row: ' + str(model_input))
        if 'leave' in str(model_input):
            raise SystemExit(3)
        if 'set' in str(model_input):
            return {1, 2}
        return [1]
"""


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    return save_iris_classifier(tmp_path_factory.mktemp("models") / "iris")


@pytest.fixture(scope="module")
def iris(saved):
    return Inside(saved.uri)


def test_predictions_are_the_models_own_in_every_format_and_variant(iris, saved):
    bodies = [
        {"dataframe_split": saved.split},
        {"dataframe_records": saved.records},
        {"instances": saved.records},
        {"inputs": saved.records},
        {"inputs": {name: [row[name] for row in saved.records] for name in saved.records[0]}},
    ]
    assert iris.model.variants == ("pyfunc", "frame", "native")
    for body in bodies:
        for variant in iris.model.variants:
            assert iris.ask(body, variant) == saved.predictions


def test_the_input_example_is_predicted_at_warm_up(iris):
    assert iris.answering.warm_up() is True
    assert not iris.model.streams


def test_a_missing_column_is_the_clients_fault_and_named(iris, saved):
    records = [{name: value for name, value in row.items() if name != "petal width (cm)"} for row in saved.records]
    with pytest.raises(BadRequest, match=r"petal width \(cm\)") as caught:
        iris.ask({"dataframe_records": records})
    assert caught.value.param == "petal width (cm)"


def test_a_chat_body_to_a_classifier_is_refused_without_echoing_it(iris):
    with pytest.raises(BadRequest) as caught:
        iris.ask({"messages": [{"role": "user", "content": "secret"}]})
    assert "secret" not in caught.value.message


def test_streaming_is_refused_where_the_model_cannot(iris, saved):
    with pytest.raises(BadRequest, match="cannot stream"):
        next(iris.answering.stream(query({"dataframe_split": saved.split, "stream": True})))


def test_open_inference_gets_the_same_predictions(iris, saved):
    names = saved.split["columns"]
    tensors = [
        {"name": name, "datatype": "FP64", "shape": [6], "data": [row[place] for row in saved.split["data"]]}
        for place, name in enumerate(names)
    ]
    answer = iris.whole({"id": "7", "inputs": tensors}, Dialect.OPEN_INFERENCE)
    assert answer["outputs"][0]["data"] == saved.predictions
    assert answer["id"] == "7"


def test_variants_have_the_same_outcome_as_the_models_own_predict(iris, saved):
    rows = np.array(saved.split["data"])
    inputs = Inputs(tuple(saved.split["columns"]), len(rows), rows)
    outcomes = {variant: iris.answering.outcome(inputs, variant) for variant in iris.model.variants}
    assert outcomes["pyfunc"] == outcomes["frame"] == outcomes["native"]
    assert outcomes["pyfunc"][1:] == (None, None)


def test_an_outcome_that_fails_names_the_error(tmp_path):
    inside = Inside(save_python_model(tmp_path / "trouble", TROUBLE))
    inputs = Inputs(("a",), 1, None, (np.array(["raise"], dtype=object),))
    assert inside.answering.outcome(inputs, "pyfunc") == (b"", None, "ModelFailed")
    with pytest.raises(BadRequest, match="variant 'native'"):
        inside.answering.outcome(inputs, "native")


def test_what_the_model_raises_is_its_failure_without_its_text_and_its_trace_is_logged(tmp_path, capfd):
    inside = Inside(save_python_model(tmp_path / "trouble", TROUBLE))
    assert inside.ask({"inputs": ["fine"]}) == [1]
    capfd.readouterr()
    with pytest.raises(ModelFailed, match="raised ValueError") as caught:
        inside.ask({"inputs": ["raise"]})
    assert "secret" not in caught.value.message
    line = json.loads(capfd.readouterr().err.splitlines()[-1])
    assert line["event"] == "prediction_failed"
    assert line["level"] == "error"
    assert "ValueError" in line["trace"]
    assert inside.answering.warm_up() is False  # no input example


@pytest.mark.parametrize(("word", "message"), [("leave", "tried to end its process"), ("set", "returned a set")])
def test_a_model_that_leaves_or_answers_nonsense_fails_only_the_query(tmp_path, word, message):
    inside = Inside(save_python_model(tmp_path / "trouble", TROUBLE))
    with pytest.raises(ModelFailed, match=message):
        inside.ask({"inputs": [word]})


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
    inside = Inside(tmp_path / "m")
    for variant in ("pyfunc", "frame"):
        assert inside.ask({"inputs": [{"a": 1.0}]}, variant) == [5]
        assert inside.ask({"inputs": [{"a": 1.0}], "params": {"k": 7}}, variant) == [7]
    with pytest.raises(BadRequest, match="k") as caught:
        inside.ask({"inputs": [{"a": 1.0}], "params": {"k": "secret"}})
    assert "secret" not in caught.value.message


def test_type_hinted_models_take_inputs_as_they_are(tmp_path):
    body = (
        "class Model(PythonModel):\n"
        "    def predict(self, model_input: list[str]):\n"
        "        return [len(item) for item in model_input]\n"
    )
    inside = Inside(save_python_model(tmp_path / "hints", body))
    assert inside.model.variants == ("pyfunc",)
    assert inside.ask({"inputs": ["a", "bcd"]}) == [1, 3]
    with pytest.raises(BadRequest):
        inside.ask({"inputs": [{"a": 1}]})
    with pytest.raises(BadRequest, match="inputs"):
        inside.ask({"dataframe_records": [{"a": 1}]})


def test_artifacts_and_code_paths_come_with_the_model(tmp_path):
    import mlflow.pyfunc

    (tmp_path / "of_its_own").mkdir()
    (tmp_path / "of_its_own" / "__init__.py").write_text("FACTOR = 3\n")
    (tmp_path / "weight.txt").write_text("14")
    (tmp_path / "code.py").write_text(
        "from mlflow.pyfunc import PythonModel\nfrom mlflow.models import set_model\n"
        "class Model(PythonModel):\n"
        "    def load_context(self, context):\n"
        "        from of_its_own import FACTOR\n"
        "        self.answer = FACTOR * int(open(context.artifacts['weight']).read())\n"
        "    def predict(self, context, model_input, params=None):\n"
        "        return [self.answer]\n"
        "set_model(Model())\n"
    )
    mlflow.pyfunc.save_model(
        tmp_path / "m",
        python_model=str(tmp_path / "code.py"),
        artifacts={"weight": str(tmp_path / "weight.txt")},
        code_paths=[str(tmp_path / "of_its_own")],
        pip_requirements=[],
    )
    assert Inside(tmp_path / "m").ask({"inputs": [1]}) == [42]


ASYNCHRONOUS = """
import asyncio
class Model(PythonModel):
    async def predict(self, context, model_input, params=None):
        await asyncio.sleep(0)
        if 'raise' in str(model_input):
            raise ValueError('a secret')
        if 'wait' in str(model_input):
            await asyncio.sleep(60)
        return {'echo': model_input['prompt']}

    async def predict_stream(self, context, model_input, params=None):
        try:
            for number in range(3):
                await asyncio.sleep(0)
                yield {'number': number}
        finally:
            await asyncio.sleep(0)
            pathlib.Path(__file__).with_name('closed').touch()
"""


def test_asynchronous_models_run_to_their_end(tmp_path):
    inside = Inside(save_python_model(tmp_path / "asynchronous", ASYNCHRONOUS))
    assert inside.whole({"prompt": "a"}) == {"echo": "a"}
    with pytest.raises(ModelFailed, match="raised ValueError"):
        inside.whole({"prompt": "raise"})
    pieces = [json.loads(piece) for piece in inside.answering.stream(query({"prompt": "a", "stream": True}))]
    assert pieces == [{"number": 0}, {"number": 1}, {"number": 2}]


def test_closing_an_asynchronous_stream_closes_the_models_generator(tmp_path):
    path = save_python_model(tmp_path / "asynchronous", ASYNCHRONOUS)
    stream = Inside(path).answering.stream(query({"prompt": "a", "stream": True}))
    next(stream)
    mark = tmp_path / "asynchronous" / "closed"
    assert not mark.exists()
    stream.close()
    assert mark.exists()


def test_an_asynchronous_model_is_cancelled_when_the_replica_ends_the_connection(tmp_path):
    from steelyard.worker.coroutines import Gone

    inside = Inside(save_python_model(tmp_path / "asynchronous", ASYNCHRONOUS))
    inside.end.close()
    with pytest.raises(Gone):
        inside.whole({"prompt": "wait"})


CHAT_AGENT = """
from mlflow.pyfunc import ResponsesAgent
from mlflow.types.responses import ResponsesAgentRequest, ResponsesAgentResponse, ResponsesAgentStreamEvent
class Model(ResponsesAgent):
    def predict(self, request: ResponsesAgentRequest) -> ResponsesAgentResponse:
        text = str(request.input[-1].content)
        return ResponsesAgentResponse(output=[self.create_text_output_item(text.upper(), "1")])
    def predict_stream(self, request):
        item = self.create_text_output_item("HELLO", "1")
        yield ResponsesAgentStreamEvent(type="response.output_item.done", item=item)
"""


def test_responses_agents_take_and_give_their_own_dialect(tmp_path):
    inside = Inside(save_python_model(tmp_path / "agent", CHAT_AGENT))
    body = {"input": [{"role": "user", "content": "hello"}]}
    assert inside.whole(body)["output"][0]["content"][0]["text"] == "HELLO"
    pieces = [json.loads(piece) for piece in inside.answering.stream(query({**body, "stream": True}))]
    assert pieces[0]["type"] == "response.output_item.done"


EMBEDDER = """
class Model(PythonModel):
    def predict(self, context, model_input, params=None):
        return [[float(len(text)), 1.0] for text in model_input['input']]
"""


def test_embedding_models_answer_openais_dialect(tmp_path):
    inside = Inside(save_python_model(tmp_path / "embedder", EMBEDDER))
    answer = inside.whole({"input": ["a", "bcd"], "model": "x"}, Dialect.EMBEDDINGS)
    assert [item["embedding"] for item in answer["data"]] == [[1.0, 1.0], [3.0, 1.0]]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("    def load_context(self, context):\n        raise RuntimeError('no weights')\n", "no weights"),
        ("    def load_context(self, context):\n        import no_such_module\n", "no_such_module"),
        ("    def load_context(self, context):\n        1 / 0\n", "ZeroDivisionError"),
        ("    def load_context(self, context):\n        raise SystemExit(1)\n", "end its process"),
    ],
)
def test_a_model_that_cannot_load_says_why(tmp_path, body, message):
    code = f"class Model(PythonModel):\n{body}    def predict(self, context, model_input):\n        return [1]"
    path = save_python_model(tmp_path / "broken", code)
    with pytest.raises(ModelLoadError, match=message):
        Inside(path)


def test_a_model_that_fails_on_its_own_example_is_not_ready(tmp_path):
    path = save_python_model(tmp_path / "trouble", TROUBLE)
    (tmp_path / "trouble" / "example.json").write_text('{"inputs": ["raise"]}')
    with open(tmp_path / "trouble" / "MLmodel", "a") as file:
        file.write("saved_input_example_info:\n  serving_input_path: example.json\n")
    with pytest.raises(ModelLoadError, match="its own input example: ValueError: "):
        Inside(path).answering.warm_up()
