"""Requests of real models that wait for their worker share its calls, where the proof found each row treated alone."""

import json
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import numpy as np
import pandas as pd
import pytest

CONNECTIONS = 16
ROWS = np.random.default_rng(4).normal(size=(CONNECTIONS, 3)).round(3)
SOURCE = """
import os, pathlib, threading, time
import numpy as np, pandas as pd
from mlflow.pyfunc import PythonModel
from mlflow.models import set_model

CALLS = pathlib.Path(os.environ.get("CALLS", os.devnull))


class Model(PythonModel):
    def predict(self, context, model_input, params=None):
        with CALLS.open("a") as calls:
            calls.write(f"{len(model_input)}\\n")
        if (model_input["a"] > 900).any():
            raise ValueError("secret of the model")
        until = time.thread_time() + 0.002
        while time.thread_time() < until:
            pass
        ANSWER


set_model(Model())
"""


def save(folder: Path, answer: str) -> str:
    import mlflow.pyfunc
    from mlflow.models import infer_signature

    code = folder / "code.py"
    code.write_text(SOURCE.replace("ANSWER", answer))
    frame = pd.DataFrame(ROWS, columns=list("abc"))
    values = {"signature": infer_signature(frame), "input_example": frame.head(3), "pip_requirements": []}
    mlflow.pyfunc.save_model(folder / "model", python_model=str(code), **values)
    return str(folder / "model")


def body(row) -> dict:
    return {"dataframe_split": {"columns": list("abc"), "data": [list(row)]}}


def ask(replica, rows) -> list:
    """One request for each row, all at once; for a fault its status."""

    def one(row):
        with replica.client() as http:
            reply = http.post("/invocations", json=body(row))
            assert reply.status_code != 200 or reply.headers["x-steelyard-usage"] == "rows=1"
            return reply.json()["predictions"] if reply.status_code == 200 else reply.status_code

    with ThreadPoolExecutor(CONNECTIONS) as pool:
        return list(pool.map(one, rows))


def metric(http: httpx.Client, name: str) -> float:
    found = re.search(rf"^{name}_total{{[^}}]*}} (\S+)", http.get("/metrics").text, re.MULTILINE)
    return float(found[1]) if found else 0.0


@pytest.fixture
def counted(tmp_path, start_replica):
    """A replica of a model that answers by an expression, and a function that counts its calls since the last time."""

    def start(answer: str, **spec):
        calls = tmp_path / "calls"
        replica = start_replica(save(tmp_path, answer), environment_vars={"CALLS": str(calls)}, **spec).wait_ready()
        calls.write_text("")
        calls.chmod(0o666)

        def count() -> list[int]:
            rows = list(map(int, calls.read_text().split()))
            calls.write_text("")
            return rows

        return replica, count

    return start


def test_sixteen_at_once_are_answered_as_one_by_one_in_fewer_calls(counted):
    replica, count = counted("return pd.DataFrame({'sum': model_input['a'] + model_input['b'] * 2})")
    alone = [ask(replica, [row])[0] for row in ROWS]
    assert count() == [1] * CONNECTIONS
    for _ in range(4):
        assert ask(replica, ROWS) == alone
    calls = count()
    assert len(calls) < 4 * CONNECTIONS
    assert max(calls) > 1
    shared, taken = metric(replica.http, "steelyard_replica_shared_calls"), "steelyard_replica_sharing_requests"
    assert 0 < shared < metric(replica.http, taken)
    assert replica.load()["max_concurrency"] > 2


def test_a_bad_row_fails_only_its_own_request(counted):
    replica, _ = counted("return (model_input['a'] - model_input['c']).to_numpy()")
    alone = [ask(replica, [row])[0] for row in ROWS]
    rows = [*ROWS[:7], [999.0, 0.0, 0.0], *ROWS[7:]]
    for _ in range(3):
        assert ask(replica, rows) == [*alone[:7], 500, *alone[7:]]
    assert "secret of the model" in replica.log.read_text()


@pytest.mark.slow
@pytest.mark.parametrize(("when", "status"), [("True", 502), ("len(model_input) > 1", 200)], ids=["alone", "company"])
def test_a_row_that_ends_the_process_takes_no_others_request_with_it(counted, when, status):
    ending = f"_ = [os._exit(3) for a in model_input['a'] if a == 123.456 and {when}]"
    replica, _ = counted(f"{ending}; return model_input['b'].to_numpy()", max_concurrency=1)
    alone = [ask(replica, [row])[0] for row in ROWS]
    rows = [*ROWS[:7], [123.456, 0.0, 0.0], *ROWS[7:]]
    expected = [*alone[:7], [0.0] if status == 200 else status, *alone[7:]]
    for _ in range(30):  # which rows meet in a call is chance: until this one has met another
        assert ask(replica, rows) == expected
        if "with status 3" in replica.log.read_text():
            break
    else:
        pytest.fail(f"No row ended the process: {replica.log.read_text()[-1000:]}")
    assert ask(replica, rows) == expected  # by the process that came after


@pytest.mark.parametrize(
    "answer",
    ["return (model_input['a'] - model_input['a'].mean()).to_numpy()", "return np.arange(len(model_input))"],
    ids=["centred", "numbered"],
)
def test_a_model_that_looks_at_the_rows_beside_one_is_never_given_anothers(counted, answer):
    replica, count = counted(answer)
    for _ in range(3):
        ask(replica, ROWS)
    assert count() == [1] * (3 * CONNECTIONS)


def test_a_model_that_waits_keeps_its_calls_side_by_side(counted):
    replica, count = counted("time.sleep(0.05); return model_input['a'].to_numpy()")
    alone = [ask(replica, [row])[0] for row in ROWS]
    for _ in range(3):
        assert ask(replica, ROWS) == alone
    assert set(count()) == {1}


def test_the_reference_itself_is_proven_where_nothing_else_can_serve(tmp_path, start_replica):
    import mlflow.pyfunc
    from mlflow.models import ModelSignature
    from mlflow.types import ColSpec, Schema
    from mlflow.types.schema import Array, DataType

    code = tmp_path / "code.py"
    code.write_text(SOURCE.replace("ANSWER", "return [a + sum(v) for a, v in zip(model_input['a'], model_input['v'])]"))
    inputs = Schema([ColSpec("double", "a"), ColSpec(Array(DataType.double), "v")])
    example = pd.DataFrame({"a": ROWS[:, 0], "v": ROWS[:, 1:].tolist()})
    values = {"signature": ModelSignature(inputs), "pip_requirements": [], "input_example": example}
    mlflow.pyfunc.save_model(tmp_path / "model", python_model=str(code), **values)
    replica = start_replica(str(tmp_path / "model")).wait_ready()
    assert replica.http.get("/ready").json()["runtime"] == "pyfunc"

    def one(row):
        with replica.client() as http:
            content = {"dataframe_split": {"columns": ["a", "v"], "data": [[row[0], list(row[1:])]]}}
            return [http.post("/invocations", json=content).json()["predictions"] for _ in range(8)]

    expected = [[row[0] + sum(row[1:])] for row in ROWS.tolist()]
    with ThreadPoolExecutor(CONNECTIONS) as pool:
        assert list(pool.map(one, ROWS.tolist())) == [[answer] * 8 for answer in expected]
    assert metric(replica.http, "steelyard_replica_sharing_requests") > 0


def test_a_second_start_knows_what_the_first_proved(counted, start_replica, tmp_path):
    replica, _ = counted("return model_input['a'].to_numpy()")
    again = start_replica(str(tmp_path / "model")).wait_ready()
    assert "proven before" in again.http.get("/ready").json()["reason"]
    assert ask(again, ROWS) == ask(replica, ROWS)
    for _ in range(4):
        ask(again, ROWS)
    assert metric(again.http, "steelyard_replica_sharing_requests") > 0


def _save_pipeline(folder: Path) -> None:
    import mlflow.sklearn
    from mlflow.models import infer_signature
    from sklearn.ensemble import ExtraTreesClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import FunctionTransformer

    frame = pd.DataFrame(np.random.default_rng(1).normal(size=(200, 3)), columns=list("abc"))
    labels = (frame["a"] + frame["b"] > 0).astype(int)
    trees = ExtraTreesClassifier(20, random_state=0)
    model = make_pipeline(FunctionTransformer(np.tanh), trees).fit(frame, labels)
    values = {"signature": infer_signature(frame, model.predict(frame)), "pip_requirements": []}
    mlflow.sklearn.save_model(model, folder, serialization_format="cloudpickle", **values)


def _save_torch(folder: Path) -> None:
    import mlflow.pytorch
    import torch
    from mlflow.models import infer_signature

    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(3, 64), torch.nn.ReLU(), torch.nn.Linear(64, 2)).eval()
    rows = np.random.default_rng(1).normal(size=(20, 3)).astype(np.float32)
    answers = model(torch.from_numpy(rows)).detach().numpy()
    values = {"signature": infer_signature(rows, answers), "pip_requirements": []}
    mlflow.pytorch.save_model(model, folder, serialization_format="pickle", **values)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["pipeline", "torch"])
def test_models_of_libraries_share_calls(kind, tmp_path, start_replica):
    {"pipeline": _save_pipeline, "torch": _save_torch}[kind](tmp_path / "model")
    replica = start_replica(str(tmp_path / "model")).wait_ready()

    def one(row):
        with replica.client() as http:
            content = json.dumps(body(row) if kind == "pipeline" else {"inputs": [row.tolist()]})
            return [
                http.post("/invocations", content=content, headers={"content-type": "application/json"}).json()
                for _ in range(12)
            ]

    alone = [one(row)[0]["predictions"] for row in ROWS]
    with ThreadPoolExecutor(CONNECTIONS) as pool:
        for answers, expected in zip(pool.map(one, ROWS), alone, strict=True):
            for answer in answers:
                np.testing.assert_allclose(answer["predictions"], expected, rtol=1e-5, atol=1e-6)
    assert metric(replica.http, "steelyard_replica_shared_calls") > 0
    requests = metric(replica.http, "steelyard_replica_sharing_requests")
    assert metric(replica.http, "steelyard_replica_shared_calls") < requests
