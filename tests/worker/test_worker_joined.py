"""Requests that share a call are answered byte for byte as each is alone, errors included, or they do not share one."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from steelyard.errors import SteelyardError
from steelyard.protocols.inputs import Inputs, join
from steelyard.protocols.mlflow import to_frame, to_plain
from steelyard.protocols.query import Dialect
from steelyard.worker.joined import Joined, alike
from steelyard.worker.parts import Evidence, divide, form_of
from support.workers import Inside, query

SOURCE = '''
import os
import numpy as np, pandas as pd
from mlflow.pyfunc import PythonModel
from mlflow.models import set_model


def score(row):
    """Of one row: an integer, a fraction, or nothing."""
    if row["t"] == "bad":
        raise ValueError("secret of the model")
    return {0: row["n"], 1: row["n"] / 2, 2: None, 3: 0.25 if row["x"] != row["x"] else row["x"]}[row["n"] % 4]


class Model(PythonModel):
    def predict(self, context, model_input, params=None):
        rows = model_input.reindex(columns=["n", "x", "t"]).to_dict(orient="records")
        scores = [score(row) for row in rows]
        return eval(os.environ["ANSWER"])


set_model(Model())
'''
ANSWERS = {
    "frame": "pd.DataFrame({'score': scores, 'n': model_input['n']})",
    "typed frame": "pd.DataFrame({'score': [float(s or 0) for s in scores], 'n': model_input['n']})",
    "series": "pd.Series(scores, name='s')",
    "labelled": "pd.Series([str(s) for s in scores], index=[f'r{n}' for n in model_input['n']])",
    "array": "np.array([s or 0 for s in scores])",
    "texts": "np.array([s if s else 'none' for s in scores])",
    "matrix": "np.array([[s or 0, 1] for s in scores])",
    "list": "scores",
    "list of a series": "pd.Series(scores).tolist()",
    "objects of a frame": "pd.DataFrame({'score': scores, 'n': model_input['n']}).to_dict('records')",
    "objects": "[{'score': s} for s in scores]",
    "dict": "{'score': scores, 'n': model_input['n'].to_numpy(), 'x': np.array([s or 0 for s in scores])}",
    "wandering": "pd.DataFrame([{'n': n, **({'x': 1} if n % 3 else {})} for n in model_input['n'].tolist()])",
    "categories": "pd.DataFrame({'c': pd.Categorical([str(s) for s in scores])})",
    "nullable": "pd.DataFrame({'s': scores}).convert_dtypes()",
}


@pytest.fixture(scope="module")
def only_inside(tmp_path_factory):
    import mlflow.pyfunc
    from mlflow.models import ModelSignature
    from mlflow.types import ColSpec, Schema

    columns = [ColSpec("long", "n"), ColSpec("double", "x", required=False), ColSpec("string", "t", required=False)]
    folder = tmp_path_factory.mktemp("joined")
    (folder / "code.py").write_text(SOURCE)
    values = {"pip_requirements": [], "signature": ModelSignature(Schema(columns))}
    mlflow.pyfunc.save_model(folder / "model", python_model=str(folder / "code.py"), **values)
    return Inside(folder / "model")


@pytest.fixture
def insides(only_inside, monkeypatch):
    """The model, answering in a way that it is given by name."""
    monkeypatch.setattr("steelyard.worker.answer.log", lambda *_, **__: None)  # a trace for every bad row

    def inside(name: str) -> Inside:
        monkeypatch.setenv("ANSWER", ANSWERS[name])
        only_inside.model.evidence["pyfunc"] = Evidence()  # as if it had just been loaded
        return only_inside

    return inside


ROWS = st.fixed_dictionaries(
    {"n": st.integers(-4, 9)},
    optional={
        "x": st.none() | st.integers(-2, 3).map(lambda whole: whole + 0.5),
        "t": st.sampled_from(["a", "", None]),
    },
)


@st.composite
def requests(draw):
    """Mostly what clients send: one to three alike rows; now and then something that is refused, or fails."""
    kind = draw(st.sampled_from(["rows"] * 6 + ["tensors", "bad", "wrong", "indexed", "empty"]))
    rows = draw(st.lists(ROWS, min_size=1, max_size=3))
    columns = ["n", *(name for name in ("x", "t") if any(name in row for row in rows))]
    data = [[row.get(name) for name in columns] for row in rows]
    split = {"columns": columns, "data": data}
    if kind == "bad":
        split = {"columns": ["n", "t"], "data": [[1, "bad"]]}
    elif kind == "wrong":
        split = {"columns": ["n"], "data": [["text"]]}
    elif kind == "indexed":
        split |= {"index": list(range(7, 7 + len(rows)))}
    elif kind == "empty":
        split = {"columns": ["n"], "data": []}
    elif kind == "tensors":
        values = [row["n"] for row in rows]
        tensor = {"name": "n", "datatype": "INT64", "shape": [len(rows)], "data": values}
        return query({"inputs": [tensor]}, Dialect.OPEN_INFERENCE, model="m")
    return query({"dataframe_split": split})


def said(result) -> object:
    return (type(result), result.message) if isinstance(result, Exception) else (result.body, result.content_type)


def one_by_one(inside, queries) -> list:
    answers = []
    for item in queries:
        try:
            answers.append(inside.answering.answer(item, "pyfunc"))
        except SteelyardError as error:
            answers.append(error)
    return [said(answer) for answer in answers]


def joined(inside, queries, most_rows=100) -> tuple[list, Joined]:
    told = {}
    together = Joined(inside.answering, queries, "pyfunc", most_rows, lambda place, it: told.update({place: said(it)}))
    together.run()
    assert sorted(told) == list(range(len(queries)))
    return [told[place] for place in range(len(queries))], together


@pytest.mark.parametrize("name", ANSWERS)
def test_answers_equal_those_of_requests_one_by_one(insides, name):
    inside = insides(name)

    @settings(
        max_examples=15,
        deadline=None,
        phases=(Phase.explicit, Phase.reuse, Phase.generate),
        suppress_health_check=list(HealthCheck),
    )
    @given(groups=st.lists(st.lists(requests(), min_size=1, max_size=8), min_size=1, max_size=4))
    def check(groups):
        inside.model.evidence["pyfunc"] = Evidence()  # a model that has just been loaded
        for queries in groups:
            assert joined(inside, queries)[0] == one_by_one(inside, queries)

    check()


def split(rows, columns=("n",)):
    return query({"dataframe_split": {"columns": list(columns), "data": rows}})


def test_one_call_answers_all_once_alone_has_shown_the_types(insides):
    inside = insides("typed frame")
    queries = [split([[4 * n, n + 0.5]], ("n", "x")) for n in range(1, 17)]
    first, second, third = (joined(inside, queries)[1] for _ in range(3))
    assert first.tally.calls > 1  # nothing was known of the model's output
    assert second.tally.calls <= first.tally.calls
    assert (third.tally.calls, third.tally.rows) == (1, 16)
    assert joined(inside, queries, most_rows=5)[1].tally.calls == 4


def test_a_row_that_fails_fails_alone(insides):
    inside = insides("objects")
    good = [split([[4, "a"], [8, "b"]], ("n", "t")) for _ in range(5)]
    bad = split([[4, "a"], [8, "bad"]], ("n", "t"))
    told, _ = joined(inside, [*good[:2], bad, *good[2:]])
    assert told == one_by_one(inside, [*good[:2], bad, *good[2:]])
    assert [isinstance(answer[0], bytes) for answer in told] == [True, True, False, True, True, True]


def test_a_null_of_one_request_never_makes_floats_of_anothers_integers(insides):
    inside = insides("frame")
    whole, null = split([[4]]), split([[6]])
    for queries in ([whole, whole], [null, null], [whole, null], [null, whole, whole]):
        told, together = joined(inside, queries)
        assert told == one_by_one(inside, queries)
    assert b'"score":4,' in told[1][0]
    assert "types" in together.apart  # such a model's requests do not share calls any more


PASSED_ON = {
    "list of a series": lambda scores: pd.Series(scores).tolist(),
    "list of an array": lambda scores: np.array([s or 0 for s in scores]).tolist(),
    "lists of a matrix": lambda scores: np.array([[s or 0, 1] for s in scores]).tolist(),
    "list of scalars": lambda scores: list(np.array([s or 0 for s in scores])),
    "list of texts": lambda scores: np.array([s or "none" for s in scores]).tolist(),
    "list of truths": lambda scores: np.array([s or False for s in scores]).tolist(),
    "objects of an array": lambda scores: np.array([s or 0 for s in scores]).astype(object),
    "objects of a frame": lambda scores: pd.DataFrame({"score": scores, "x": 1}).to_dict("records"),
    "dict of lists": lambda scores: pd.DataFrame({"score": scores, "x": 1}).to_dict("list"),
    "series of objects": lambda scores: pd.Series(pd.Series(scores).tolist(), dtype=object),
    "arrays in a list": lambda scores: [np.array([s, 1]) for s in pd.Series(scores).tolist()],
    "numbers as categories": lambda scores: pd.Series(scores).astype("category"),
}


@pytest.mark.parametrize("seen", [[2.5], [4], [None], [1, 4.0], [2.5, None], [4, 2.5, None], [1, 4, 4.0, 2.5, None]])
@pytest.mark.parametrize("name", PASSED_ON)
def test_types_that_a_column_gave_its_values_are_noticed_behind_it(name, seen):
    """Whatever was seen alone, often enough: no other request's values change what an answer is."""
    answer, evidence, rng = PASSED_ON[name], Evidence(), np.random.default_rng(7)
    for score in seen * 20:
        evidence.learn(answer([score]), 1)
    for _ in range(50):
        scores = [[1, 4, 4.0, 2.5, None][place] for place in rng.integers(0, 5, 3)]
        output = answer(scores)
        form = form_of(output, 3)
        for place, part in enumerate(divide(output, [1, 1, 1])):
            if scores[place] in seen and evidence.vouches(form, place, place + 1):
                assert repr(to_plain(part)) == repr(to_plain(answer([scores[place]])))


@pytest.mark.parametrize(
    "output",
    [[1, 3, 5], [0.5, 2.0, 7.25], ["a", "b", "7"], [None, "a", "b"], [{"a": 1, "b": 0.5, "c": [1, 0]}] * 3,
     [[0.5, 0.25], [1.0, 0.0], [0.5, 0.5]], {"a": [1, 2, 3], "b": ["x", "y", "z"]}, np.array([True, False, True])],
    ids=repr,
)  # fmt: skip
def test_values_of_one_type_are_vouched_for(output):
    evidence = Evidence()
    for _ in range(8):
        for part in divide(output, [1, 1, 1]):
            evidence.learn(part, 1)
    form = form_of(output, 3)
    assert all(evidence.vouches(form, place, place + 1) for place in range(3))
    assert not evidence.apart


def test_an_output_of_ever_other_keys_ends_what_is_remembered():
    evidence = Evidence()
    for number in range(3000):
        evidence.learn([{f"key {number}": 1}], 1)
    assert "too many forms" in evidence.apart
    assert sum(map(len, evidence._times)) < 3000


def test_the_frame_of_a_shared_call_has_the_dtypes_of_each_request(insides):
    """What columns of objects become depends on their values: None beside integers would make floats of them."""
    arrays = [
        np.array(values, dtype=object)
        for values in (["a"], ["a", None], [None], [None, None], [1], [1, None], [2**63], [True], [True, None], [b"x"],
                       [[1]], [{}], [1.5], [pd.Timestamp(0)], [pd.Timestamp(0), None])
    ]  # fmt: skip
    arrays += [np.empty(count, dtype=object) for count in (1, 2)]
    for array in arrays[-2:]:
        array[:] = [np.array([1.0, 2.0]) for _ in array]
    items = [Inputs(("c",), len(array), parts=(array,)) for array in arrays]
    shared = 0
    for one in items:
        for other in items:
            if (key := alike(one)) is not None and key == alike(other):
                whole = join([one, other])
                assert [str(to_frame(whole).dtypes["c"])] * 2 == [str(to_frame(it).dtypes["c"]) for it in (one, other)]
                shared += 1
    assert shared > 10


def test_other_columns_dtypes_or_shapes_do_not_share_a_call():
    ints, floats = np.arange(2), np.arange(2.0)
    different = [
        Inputs(("a",), 2, ints.reshape(2, 1)),
        Inputs(("a",), 2, floats.reshape(2, 1)),
        Inputs(("b",), 2, ints.reshape(2, 1)),
        Inputs(("a",), 2, parts=(ints,)),
        Inputs(("a",), 2, parts=(ints,), columnar=False),
        Inputs((None,), 2, parts=(np.zeros((2, 3)),), columnar=False),
        Inputs((None,), 2, parts=(np.zeros((2, 4)),), columnar=False),
        Inputs((None,), 2, parts=(np.zeros((2, 4), dtype=np.float32),), columnar=False),
    ]
    assert len({alike(item) for item in different}) == len(different)


def test_parts_have_the_index_that_they_have_alone():
    frame = pd.DataFrame({"a": [1, 2, 3], "b": list("xyz")})
    parts = divide(frame, [1, 2])
    assert [list(part.index) for part in parts] == [[0], [0, 1]]
    assert parts[1].to_dict(orient="list") == {"a": [2, 3], "b": ["y", "z"]}
    assert [list(part.index) for part in divide(frame.set_index("b"), [1, 2])] == [["x"], ["y", "z"]]


@pytest.mark.parametrize(
    "output",
    [None, 3, "abc", {}, {"a": 1}, {"a": [1, 2]}, [1, 2], np.zeros(2), np.zeros((2, 3)), np.float64(1), {1, 2, 3},
     pd.DataFrame(), pd.DataFrame({"a": [1]}), {"a": {"b": [1, 2, 3]}}, np.zeros(3, dtype="V4"), object()],
    ids=repr,
)  # fmt: skip
def test_outputs_that_are_not_by_row_have_no_form(output):
    assert form_of(output, 3) is None


def test_a_model_that_answers_asynchronously_keeps_its_requests_apart(tmp_path: Path):
    from support.models import save_python_model

    body = (
        "class Model(PythonModel):\n    async def predict(self, context, model_input, params=None):\n        return [1]"
    )
    inside = Inside(save_python_model(tmp_path / "async", body))
    assert json.loads(inside.answering.answer(query({"inputs": [1]}), "pyfunc").body)["predictions"] == [1]
    assert "asynchronous" in inside.answering.evidence("pyfunc").apart
