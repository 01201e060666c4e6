"""Linear models and what comes before them, as numpy, beside MLflow's own predict."""

import numpy as np
import pandas as pd
import pytest

from steelyard.errors import BadRequest
from support.native_models import assert_same, export_all, inputs_of, save_sklearn

pytestmark = pytest.mark.slow

COLUMNS = ["a", "b", "c", "d"]
_RNG = np.random.default_rng(7)
TRAIN = pd.DataFrame(_RNG.normal(size=(300, 4)) * [1, 10, 0.1, 50] + [0, 5, 0, 100], columns=COLUMNS)
SCORE = TRAIN["a"] + TRAIN["b"] / 10 - TRAIN["c"] * 3
BINARY = (SCORE > 0.5).astype(int)
NAMES = np.array(["low", "middle", "high"])[pd.cut(SCORE, 3, labels=False)]
ROWS = pd.DataFrame(_RNG.normal(size=(500, 4)) * [1, 10, 0.1, 50] + [0, 5, 0, 100], columns=COLUMNS)
GAPS = ROWS.mask(_RNG.random(ROWS.shape) < 0.15)
MIXED = pd.DataFrame(
    {
        "age": _RNG.integers(18, 90, 300),
        "city": _RNG.choice(["Rome", "Oslo", "Łódź"], 300),
        "income": _RNG.normal(3e4, 1e4, 300),
        "member": _RNG.random(300) < 0.5,
    }
)
MIXED_ROWS = pd.DataFrame(
    {
        "age": _RNG.integers(18, 90, 500),
        "city": _RNG.choice(["Rome", "Oslo", "Łódź", "Atlantis"], 500),
        "income": np.where(_RNG.random(500) < 0.1, np.nan, _RNG.normal(3e4, 1e4, 500)),
        "member": _RNG.random(500) < 0.5,
    }
)


def _linear(kind, **settings):
    def make():
        from sklearn import linear_model, svm

        return getattr(linear_model if hasattr(linear_model, kind) else svm, kind)(**settings)

    return make


def _after(steps, last):
    def make():
        from sklearn import impute, preprocessing
        from sklearn.pipeline import make_pipeline

        made = [getattr(impute if hasattr(impute, name) else preprocessing, name)(**how) for name, how in steps]
        return make_pipeline(*made, last())

    return make


def _columns(last, **encoder):
    def make():
        from sklearn.compose import make_column_transformer
        from sklearn.impute import SimpleImputer
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import OneHotEncoder, StandardScaler

        table = make_column_transformer(
            (make_pipeline(SimpleImputer(), StandardScaler()), ["age", "income"]),
            (OneHotEncoder(**{"handle_unknown": "ignore", **encoder}), ["city"]),
            remainder="passthrough",
        )
        return make_pipeline(table, last())

    return make


def _lightgbm():
    import lightgbm

    return lightgbm.LGBMClassifier(n_estimators=10, verbose=-1)


def _random_forest():
    from sklearn.ensemble import RandomForestClassifier

    return RandomForestClassifier(10, random_state=0)


LOGISTIC = _linear("LogisticRegression", max_iter=500)
LABEL = MIXED["age"] > 50
CASES = {
    # name: (saver, runtimes, rows, exact)
    "logistic": (save_sklearn(LOGISTIC, TRAIN, BINARY), ["linear"], ROWS, False),
    "logistic_names": (save_sklearn(LOGISTIC, TRAIN, NAMES), ["linear"], ROWS, False),
    "logistic_chances": (save_sklearn(LOGISTIC, TRAIN, NAMES, predict="predict_proba"), ["linear"], ROWS, False),
    "logistic_two_chances": (save_sklearn(LOGISTIC, TRAIN, BINARY, predict="predict_proba"), ["linear"], ROWS, False),
    "logistic_flags": (save_sklearn(LOGISTIC, TRAIN, BINARY == 1), ["linear"], ROWS, False),
    "least_squares": (save_sklearn(_linear("LinearRegression"), TRAIN, SCORE), ["linear"], ROWS, False),
    "two_targets": (
        save_sklearn(_linear("Ridge"), TRAIN, np.stack([SCORE, 2 * SCORE], 1)),
        ["linear"],
        ROWS,
        False,
    ),
    "one_target_wide": (
        save_sklearn(_linear("LinearRegression"), TRAIN, SCORE.to_numpy().reshape(-1, 1)),
        ["linear"],
        ROWS,
        False,
    ),
    "lasso": (save_sklearn(_linear("Lasso", alpha=0.01), TRAIN, SCORE), ["linear"], ROWS, False),
    "elastic": (save_sklearn(_linear("ElasticNet", alpha=0.01), TRAIN, SCORE), ["linear"], ROWS, False),
    "sgd": (save_sklearn(_linear("SGDClassifier", random_state=0), TRAIN, NAMES), ["linear"], ROWS, False),
    "sgd_log": (
        save_sklearn(_linear("SGDClassifier", loss="log_loss", random_state=0), TRAIN, NAMES, predict="predict_proba"),
        ["linear"],
        ROWS,
        False,
    ),
    "perceptron": (save_sklearn(_linear("Perceptron"), TRAIN, BINARY), ["linear"], ROWS, False),
    "ridge_classifier": (save_sklearn(_linear("RidgeClassifier"), TRAIN, NAMES), ["linear"], ROWS, False),
    "linear_svc": (save_sklearn(_linear("LinearSVC"), TRAIN, NAMES), ["linear"], ROWS, False),
    "linear_svr": (save_sklearn(_linear("LinearSVR"), TRAIN, SCORE), ["linear"], ROWS, False),
    "poisson": (save_sklearn(_linear("PoissonRegressor"), TRAIN / 100, np.abs(SCORE)), ["linear"], ROWS / 100, False),
    "floats": (
        save_sklearn(_linear("LinearRegression"), TRAIN.astype("float32"), SCORE.astype("float32")),
        ["linear"],
        ROWS.astype("float32"),
        False,
    ),
    "scaled": (save_sklearn(_after([("StandardScaler", {})], LOGISTIC), TRAIN, NAMES), ["linear"], ROWS, False),
    "clipped": (
        save_sklearn(_after([("MinMaxScaler", {"clip": True})], LOGISTIC), TRAIN, BINARY, predict="predict_proba"),
        ["linear"],
        ROWS,
        False,
    ),
    "imputed": (
        save_sklearn(
            _after([("SimpleImputer", {"strategy": "median"}), ("MaxAbsScaler", {})], _linear("Ridge")), TRAIN, SCORE
        ),
        ["linear"],
        GAPS,
        False,
    ),
    "tensor": (save_sklearn(LOGISTIC, TRAIN.to_numpy(), BINARY), ["linear"], ROWS.to_numpy(), False),
    "columns": (save_sklearn(_columns(LOGISTIC), MIXED, LABEL), ["linear"], MIXED_ROWS, False),
    "columns_dropped": (
        save_sklearn(_columns(LOGISTIC, drop="first"), MIXED, LABEL, predict="predict_proba"),
        ["linear"],
        MIXED_ROWS,
        False,
    ),
    "columns_forest": (
        save_sklearn(_columns(_random_forest), MIXED, LABEL, predict="predict_proba"),
        ["forest"],
        MIXED_ROWS,
        True,
    ),
    "columns_lightgbm": (save_sklearn(_columns(_lightgbm), MIXED, LABEL), ["lightgbm"], MIXED_ROWS, True),
    "strict": (save_sklearn(_columns(LOGISTIC, handle_unknown="error"), MIXED, LABEL), ["linear"], MIXED, False),
}


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    return export_all(tmp_path_factory.mktemp("linear"), {name: case[0] for name, case in CASES.items()})


@pytest.mark.parametrize("name", CASES)
def test_predictions_are_the_models_own(exported, name):
    _, runtimes, rows, exact = CASES[name]
    model = exported[name]
    assert model.names() == set(runtimes)
    its = np.asarray(model.reference(rows))
    for kind in runtimes:
        runtime = model.runtime(kind)
        rtol = 1e-5 if its.dtype == np.float32 else 1e-9
        assert_same(runtime.predict(inputs_of(rows)), its, exact=exact, rtol=rtol)
        singles = np.concatenate([runtime.predict(inputs_of(rows[place : place + 1])) for place in range(100)])
        assert_same(singles, its[:100], exact=exact, rtol=rtol)
        runtime.close()
        runtime.close()


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("name", ["logistic", "scaled", "clipped", "tensor"])
def test_what_scikit_learn_refuses_is_the_clients_fault(exported, name, wrong):
    rows = CASES[name][2][:3].copy()
    if isinstance(rows, np.ndarray):
        rows[1, 2] = wrong
    else:
        rows.iloc[1, 2] = wrong
    with pytest.raises(ValueError, match="Input"):
        exported[name].reference(rows)
    with pytest.raises(BadRequest, match=r"NaN|infinity"):
        exported[name].runtime("linear").predict(inputs_of(rows))


def test_a_refused_number_is_named_by_its_column(exported):
    rows = ROWS[:2].copy()
    rows.iloc[1, 3] = np.nan
    with pytest.raises(BadRequest, match="column 'd'"):
        exported["logistic"].runtime("linear").predict(inputs_of(rows))


def test_an_unknown_category_is_refused_without_echoing_it(exported):
    rows = MIXED.head(2).assign(city=["Rome", "Atlantis"])
    with pytest.raises(BadRequest, match="'city'") as caught:
        exported["strict"].runtime("linear").predict(inputs_of(rows))
    assert "Atlantis" not in caught.value.message


def test_columns_are_found_by_name_and_a_missing_one_is_named(exported):
    runtime = exported["logistic_chances"].runtime("linear")
    expected = runtime.predict(inputs_of(ROWS))
    np.testing.assert_array_equal(runtime.predict(inputs_of(ROWS[["d", "b", "a", "c"]])), expected)
    np.testing.assert_array_equal(runtime.predict(inputs_of(ROWS.assign(e=1.0))), expected)
    with pytest.raises(BadRequest, match="column 'c'") as caught:
        runtime.predict(inputs_of(ROWS[["a", "b", "d"]]))
    assert caught.value.param == "c"


def test_text_in_a_number_column_is_refused(exported):
    rows = ROWS[:2].assign(b=["x", "y"])
    with pytest.raises(BadRequest, match="'b'"):
        exported["logistic"].runtime("linear").predict(inputs_of(rows))


def test_integers_and_mixed_numbers_are_taken(exported):
    runtime = exported["least_squares"].runtime("linear")
    rows = ROWS.round().astype("int64")
    its = exported["least_squares"].reference(rows.astype(float))
    assert_same(runtime.predict(inputs_of(rows)), its, exact=False)
    assert_same(
        runtime.predict(inputs_of(rows.astype({"a": float, "c": bool, "d": "float32"}))),
        exported["least_squares"].reference(rows.astype({"c": bool}).astype(float)),
        exact=False,
    )


def test_no_rows_give_no_answers(exported):
    assert exported["logistic"].runtime("linear").predict(inputs_of(ROWS[:0])).shape == (0,)
