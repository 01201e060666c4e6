"""Graphs in onnxruntime, MLflow's own and converted ones, beside MLflow's own predict."""

import numpy as np
import pandas as pd
import pytest

from steelyard.errors import BadRequest, ModelFailed, ModelLoadError
from steelyard.protocols.inputs import Inputs, Records
from support.native_models import assert_same, assert_threads_agree, export_all, inputs_of, save_sklearn

pytestmark = pytest.mark.slow

_RNG = np.random.default_rng(11)
COLUMNS = ["a", "b", "c"]
TRAIN = pd.DataFrame(_RNG.normal(size=(300, 3)), columns=COLUMNS)
SCORE = TRAIN["a"] * TRAIN["b"] - TRAIN["c"]
THREE = pd.cut(SCORE, 3, labels=False)
NAMES = np.array(["low", "middle", "high"])[THREE]
ROWS = pd.DataFrame(_RNG.normal(size=(500, 3)), columns=COLUMNS)
MIXED = pd.DataFrame(
    {
        "age": _RNG.integers(18, 90, 300),
        "city": _RNG.choice(["Rome", "Oslo", "Łódź"], 300),
        "income": _RNG.normal(0, 1, 300),
    }
)
MIXED_ROWS = MIXED.sample(500, replace=True, random_state=0, ignore_index=True)


def graph_saver(inputs, outputs, nodes, example):
    """An MLflow model of a graph; `inputs` and `outputs` are {name: (type, shape)}."""

    def save(folder):
        import mlflow.onnx
        import onnx
        from mlflow.models import infer_signature
        from onnx import TensorProto, helper, numpy_helper

        def values(described):
            return [
                helper.make_tensor_value_info(name, getattr(TensorProto, kind), shape)
                for name, (kind, shape) in described.items()
            ]

        weights = numpy_helper.from_array(np.array([[1.5], [-2.0], [0.25]], dtype=np.float32), "weights")
        made = [helper.make_node(kind, list(takes), list(gives)) for kind, takes, gives in nodes]
        graph = helper.make_graph(made, "graph", values(inputs), values(outputs), [weights])
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
        onnx.checker.check_model(model)
        mlflow.onnx.save_model(model, folder, signature=infer_signature(example), pip_requirements=[])

    return save


DOT = [("MatMul", ["x", "weights"], ["y"])]
SUM = [("Add", ["a", "b"], ["total"]), ("Mul", ["a", "b"], ["product"])]
PAIR = {"a": ("FLOAT", ["n"]), "b": ("FLOAT", ["n"])}
PAIR_OUT = {"total": ("FLOAT", ["n"]), "product": ("FLOAT", ["n"])}


def _pipeline(*names, last):
    def make():
        from sklearn import decomposition, preprocessing
        from sklearn.pipeline import make_pipeline

        owners = [preprocessing, decomposition]
        steps = [next(getattr(owner, name) for owner in owners if hasattr(owner, name))() for name in names]
        return make_pipeline(*steps, last())

    return make


def _logistic():
    from sklearn.linear_model import LogisticRegression

    return LogisticRegression(max_iter=500)


def _ridge():
    from sklearn.linear_model import Ridge

    return Ridge()


def _bayes():
    from sklearn.naive_bayes import GaussianNB

    return GaussianNB()


def _network():
    from sklearn.neural_network import MLPClassifier

    return MLPClassifier((8,), max_iter=30, random_state=0)


def _columns(last):
    def make():
        from sklearn.compose import make_column_transformer
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import OneHotEncoder, StandardScaler

        table = make_column_transformer((StandardScaler(), ["age", "income"]), (OneHotEncoder(), ["city"]))
        return make_pipeline(table, last())

    return make


CASES = {
    "own_frame": (
        graph_saver({"x": ("FLOAT", ["n", 3])}, {"y": ("FLOAT", ["n", 1])}, DOT, TRAIN),
        ["onnx"],
        ROWS,
        True,
    ),
    "own_tensor": (
        graph_saver({"x": ("FLOAT", ["n", 3])}, {"y": ("FLOAT", ["n", 1])}, DOT, TRAIN.to_numpy("float32")),
        ["onnx"],
        ROWS.to_numpy("float32"),
        True,
    ),
    "own_columns": (graph_saver(PAIR, PAIR_OUT, SUM, TRAIN[["b", "a"]]), ["onnx"], ROWS[["b", "a"]], True),
    "own_tensors": (
        graph_saver(PAIR, PAIR_OUT, SUM, {name: TRAIN[name].to_numpy("float32") for name in "ab"}),
        ["onnx"],
        {name: ROWS[name].to_numpy("float32") for name in "ab"},
        True,
    ),
    "components": (
        save_sklearn(_pipeline("StandardScaler", "PCA", last=_logistic), TRAIN, NAMES),
        ["onnx"],
        ROWS,
        1e-9,
    ),
    "bayes": (save_sklearn(_bayes, TRAIN, THREE), ["onnx"], ROWS, 1e-9),
    "network": (save_sklearn(_network, TRAIN, THREE, predict="predict_proba"), ["onnx"], ROWS, 1e-9),
    "columns": (save_sklearn(_columns(_network), MIXED, MIXED["age"] > 50), ["onnx"], MIXED_ROWS, 1e-9),
}


UNFIT = {
    "powers": save_sklearn(_pipeline("PolynomialFeatures", last=_network), TRAIN, THREE),
    "wide": graph_saver({"x": ("FLOAT", ["n", 3])}, {"y": ("FLOAT", ["n", 3])}, [("Exp", ["x"], ["y"])], TRAIN),
}


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    return export_all(tmp_path_factory.mktemp("onnx"), {name: case[0] for name, case in CASES.items()} | UNFIT)


@pytest.mark.parametrize("name", CASES)
def test_predictions_are_the_models_own(exported, name):
    _, runtimes, rows, closeness = CASES[name]
    model = exported[name]
    assert model.names() == set(runtimes)
    its = model.reference(rows)
    runtime = model.runtime("onnx")
    rtol = 1e-9 if closeness is True else closeness
    assert_same(runtime.predict(inputs_of(rows)), its, exact=closeness is True, rtol=rtol)
    runtime.close()
    runtime.close()


def test_a_graph_that_onnxruntime_cannot_open_is_refused_in_words(exported):
    with pytest.raises(ModelLoadError, match="cannot open"):  # it has no powers of doubles
        exported["powers"].runtime("onnx")


def test_an_answer_that_is_not_one_per_row_is_never_split_among_rows(exported):
    with pytest.raises(ModelFailed, match="number of answers"):
        exported["wide"].runtime("onnx").predict(inputs_of(ROWS))


def test_rows_of_another_shape_or_type_are_the_clients_fault(exported):
    runtime = exported["own_tensor"].runtime("onnx")
    for rows in (np.zeros((2, 4), dtype="float32"), np.zeros((2, 3), dtype="int64")):
        with pytest.raises(BadRequest, match="types and shapes"):
            runtime.predict(inputs_of(rows))


def test_a_missing_column_is_named(exported):
    with pytest.raises(BadRequest, match="column 'b'"):
        exported["own_columns"].runtime("onnx").predict(inputs_of(ROWS[["a"]]))


def test_a_table_is_answered_by_a_table_and_tensors_by_tensors(exported):
    assert isinstance(exported["own_columns"].runtime("onnx").predict(inputs_of(ROWS[["b", "a"]])), Records)
    arrays = tuple(ROWS[name].to_numpy("float32") for name in "ab")
    inputs = Inputs(("a", "b"), len(ROWS), None, arrays, columnar=False)
    assert set(exported["own_tensors"].runtime("onnx").predict(inputs)) == {"total", "product"}


def test_threads_get_their_own_answers(exported):
    assert_threads_agree(exported["columns"].runtime("onnx"), MIXED_ROWS)
