"""The Triton project's own HTTP client, unchanged, against the running platform: what the Open Inference world uses."""

from __future__ import annotations

import http.client
import json

import numpy as np
import pytest
import tritonclient.http as triton
from tritonclient.utils import InferenceServerException

from steelyard.samples.catalog import BREAST_CANCER, IRIS

IRIS_ROWS = np.array(IRIS.request["dataframe_split"]["data"])
IRIS_COLUMNS = IRIS.request["dataframe_split"]["columns"]
TUMOUR = BREAST_CANCER.request["dataframe_records"][0]


@pytest.fixture
def headers(platform) -> dict[str, str]:
    return {"Authorization": f"Bearer {platform.token}"}


@pytest.fixture(scope="module")
def client(platform):
    with triton.InferenceServerClient(f"127.0.0.1:{platform.port}") as made:
        yield made


def table(values: np.ndarray, datatype: str, *, binary: bool = True) -> triton.InferInput:
    tensor = triton.InferInput("rows", list(values.shape), datatype)
    tensor.set_data_from_numpy(values, binary_data=binary)
    return tensor


def by_column(rows: dict[str, list[float]], *, binary: bool = True) -> list[triton.InferInput]:
    tensors = []
    for name, values in rows.items():
        tensor = triton.InferInput(name, [len(values), 1], "FP64")
        tensor.set_data_from_numpy(np.array(values)[:, None], binary_data=binary)
        tensors.append(tensor)
    return tensors


def infer(client, headers: dict[str, str], name: str, inputs: list, **more) -> triton.InferResult:
    """The client writes into the headers that it is given, so it gets its own."""
    return client.infer(name, inputs, headers=dict(headers), **more)


def mlflow_answer(platform, name: str, body: dict) -> list:
    """What the endpoint says to the same rows in MLflow's dialect."""
    connection = http.client.HTTPConnection("127.0.0.1", platform.port, timeout=30)
    connection.request(
        "POST",
        f"/serving-endpoints/{name}/invocations",
        json.dumps(body),
        {"Authorization": f"Bearer {platform.token}", "Content-Type": "application/json"},
    )
    reply = connection.getresponse()
    assert reply.status == 200
    answer = json.loads(reply.read())["predictions"]
    connection.close()
    return answer


def test_server_and_model_say_what_they_are(client, headers):
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready("iris", headers=headers)
    assert not client.is_model_ready("ghost", headers=headers)
    assert "binary_tensor_data" in client.get_server_metadata(headers=headers)["extensions"]
    described = client.get_model_metadata("iris", headers=headers)
    assert described["name"] == "iris"
    assert [tensor["name"] for tensor in described["inputs"]] == IRIS_COLUMNS
    assert {tensor["datatype"] for tensor in described["inputs"]} == {"FP64"}
    assert [(tensor["name"], tensor["datatype"]) for tensor in described["outputs"]] == [("predict", "INT64")]
    (version,) = described["versions"]
    assert client.get_model_metadata("iris", version, headers=headers) == described
    assert client.is_model_ready("iris", version, headers=headers)


@pytest.mark.parametrize("binary", [True, False], ids=["binary", "json"])
def test_iris_answers_a_table_and_its_columns_as_it_answers_mlflows_dialect(platform, client, headers, binary):
    expected = mlflow_answer(platform, "iris", IRIS.request)
    columns = {name: IRIS_ROWS[:, place].tolist() for place, name in reversed(list(enumerate(IRIS_COLUMNS)))}
    outputs = [triton.InferRequestedOutput("predict", binary_data=binary)]
    for inputs in ([table(IRIS_ROWS, "FP64", binary=binary)], by_column(columns, binary=binary)):
        result = infer(client, headers, "iris", inputs, outputs=outputs, request_id="r-7")
        answer = result.as_numpy("predict")
        assert (answer.dtype, answer.tolist()) == (np.int64, expected)
        assert result.get_response()["id"] == "r-7"
        assert result.get_response()["model_name"] == "iris"
        assert result.get_response()["model_version"]
    assert infer(client, headers, "iris", [table(IRIS_ROWS, "FP64")]).as_numpy("predict").tolist() == expected


def test_breast_cancer_answers_bit_by_bit_as_in_mlflows_dialect(platform, client, headers):
    expected = mlflow_answer(platform, "breast-cancer", BREAST_CANCER.request)
    for binary in (True, False):
        inputs = by_column({name: [value] for name, value in TUMOUR.items()}, binary=binary)
        result = infer(client, headers, "breast-cancer", inputs)
        (output,) = result.get_response()["outputs"]
        assert output["datatype"] == "FP64"
        assert result.as_numpy(output["name"]).ravel().tolist() == expected
    single = np.array([list(TUMOUR.values())], dtype=np.float32)
    answer = infer(client, headers, "breast-cancer", [table(single, "FP32")]).as_numpy("predict")
    assert answer == pytest.approx(expected, rel=1e-3)


def test_a_thousand_rows_at_once_and_many_requests_at_a_time(client, headers):
    rows = np.tile(IRIS_ROWS, (500, 1))
    expected = infer(client, headers, "iris", [table(IRIS_ROWS, "FP64")]).as_numpy("predict").tolist() * 500
    assert infer(client, headers, "iris", [table(rows, "FP64")]).as_numpy("predict").tolist() == expected
    pending = [client.async_infer("iris", [table(IRIS_ROWS, "FP64")], headers=dict(headers)) for _ in range(20)]
    assert all(one.get_result().as_numpy("predict").tolist() == expected[:2] for one in pending)


@pytest.mark.parametrize(
    ("values", "datatype", "words"),
    [
        (np.zeros((1, 3)), "FP64", ["'rows'", "3 values", "4"]),
        (np.array([["a", "b", "c", "d"]], dtype=object), "BYTES", ["number", "string"]),
        (np.array([[True] * 4]), "BOOL", ["number", "boolean"]),
        (np.zeros((1, 4, 1)), "FP64", ["needs"]),
    ],
)
@pytest.mark.parametrize("binary", [True, False], ids=["binary", "json"])
def test_a_wrong_tensor_is_a_400_that_says_what_was_wrong(client, headers, values, datatype, words, binary):
    with pytest.raises(InferenceServerException) as caught:
        infer(client, headers, "iris", [table(values, datatype, binary=binary)])
    assert caught.value.status() == "400"
    assert all(word in caught.value.message() for word in words), caught.value.message()


def test_what_is_not_there_and_who_may_not_ask(client, headers):
    tensor = table(IRIS_ROWS, "FP64")
    for arguments, status, word in [
        ({"name": "ghost"}, "404", "ghost"),
        ({"name": "iris", "model_version": "9"}, "404", "'9'"),
        ({"name": "iris", "headers": {}}, "401", "Bearer"),
        ({"name": "iris", "outputs": [triton.InferRequestedOutput("nope")]}, "400", "nope"),
        ({"name": "smollm2"}, "400", ""),
    ]:
        with pytest.raises(InferenceServerException) as caught:
            infer(client, inputs=[tensor], **{"headers": headers, **arguments})
        assert caught.value.status() == status
        assert word in caught.value.message()
