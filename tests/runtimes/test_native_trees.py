"""Tree models in their native runtimes beside MLflow's own predict: equal to the last bit."""

import numpy as np
import pandas as pd
import pytest

from steelyard.errors import BadRequest, ModelFailed
from support.native_models import assert_same, assert_threads_agree, export_all, grown_kib, inputs_of, save_sklearn

pytestmark = pytest.mark.slow

COLUMNS = ["a", "b", "c", "d", "e", "f"]
_RNG = np.random.default_rng(3)
TRAIN = pd.DataFrame(_RNG.normal(size=(400, 6)) * [1, 10, 0.1, 1, 100, 1], columns=COLUMNS)
SCORE = TRAIN["a"] + TRAIN["b"] / 10 - TRAIN["d"] * TRAIN["f"]
BINARY = (SCORE > 0).astype(int)
THREE = pd.cut(SCORE, 3, labels=False)
ROWS = pd.DataFrame(_RNG.normal(size=(500, 6)) * [1, 10, 0.1, 1, 100, 1], columns=COLUMNS)
GAPS = ROWS.mask(_RNG.random(ROWS.shape) < 0.15)
ON_THE_EDGE = pd.concat([ROWS, TRAIN.head(100), TRAIN.astype(np.float32).astype(float).head(100)], ignore_index=True)


def _gaps(frame):
    return frame.mask(np.random.default_rng(1).random(frame.shape) < 0.1)


def flavor_saver(flavor, make, target, *, train=TRAIN):
    def save(folder):
        import importlib

        from mlflow.models import infer_signature

        module = importlib.import_module(f"mlflow.{flavor}")
        module.save_model(make(train, target), folder, signature=infer_signature(train), pip_requirements=[])

    return save


def _forest(kind, **settings):
    def make():
        from sklearn import ensemble, tree

        owner = ensemble if hasattr(ensemble, kind) else tree
        return getattr(owner, kind)(random_state=0, **settings)

    return make


def _lgbm(kind, **settings):
    def make(train, target):
        import lightgbm

        return getattr(lightgbm, kind)(n_estimators=30, n_jobs=1, verbose=-1, **settings).fit(train, target)

    return make


def _lgbm_booster(**settings):
    def make(train, target):
        import lightgbm

        return lightgbm.train({"verbose": -1, "num_threads": 1, **settings}, lightgbm.Dataset(train, target), 30)

    return make


def _lgbm_early(train, target):
    import lightgbm

    model = lightgbm.LGBMRegressor(n_estimators=200, learning_rate=0.5, n_jobs=1, verbose=-1)
    half = len(train) // 2
    return model.fit(
        train[:half],
        target[:half],
        eval_set=[(train[half:], target[half:])],
        callbacks=[lightgbm.early_stopping(3, verbose=False)],
    )


def _xgb(kind, **settings):
    def make(train, target):
        import xgboost

        return getattr(xgboost, kind)(n_estimators=30, max_depth=4, n_jobs=1, **settings).fit(train, target)

    return make


def _xgb_early(train, target):
    import xgboost

    model = xgboost.XGBRegressor(n_estimators=200, learning_rate=0.7, n_jobs=1, early_stopping_rounds=3)
    half = len(train) // 2
    return model.fit(train[:half], target[:half], eval_set=[(train[half:], target[half:])], verbose=False)


def _xgb_booster(**settings):
    def make(train, target):
        import xgboost

        return xgboost.train({**settings, "nthread": 1}, xgboost.DMatrix(train, target), 30)

    return make


def _cat(kind, **settings):
    def make(train, target):
        import catboost

        settings_of_all = {"iterations": 30, "verbose": False, "thread_count": 1, "allow_writing_files": False}
        return getattr(catboost, kind)(**settings_of_all, **settings).fit(train, target)

    return make


NAMES = np.array(["low", "middle", "high"])[THREE]
CASES = {
    # name: (saver, runtimes, rows, exact)
    "random_forest": (
        save_sklearn(_forest("RandomForestClassifier", n_estimators=20), TRAIN, THREE),
        ["forest"],
        ROWS,
        True,
    ),
    "random_forest_gaps": (
        save_sklearn(_forest("RandomForestClassifier", n_estimators=20), _gaps(TRAIN), NAMES),
        ["forest"],
        GAPS,
        True,
    ),
    "forest_proba": (
        save_sklearn(_forest("RandomForestClassifier", n_estimators=20), TRAIN, BINARY, predict="predict_proba"),
        ["forest"],
        GAPS,
        True,
    ),
    "forest_regressor": (
        save_sklearn(_forest("RandomForestRegressor", n_estimators=20), TRAIN, SCORE),
        ["forest"],
        ROWS,
        True,
    ),
    "forest_two_targets": (
        save_sklearn(_forest("ExtraTreesRegressor", n_estimators=10), TRAIN, np.stack([SCORE, -SCORE * 2], 1)),
        ["forest"],
        ROWS,
        True,
    ),
    "forest_two_labels": (
        save_sklearn(_forest("RandomForestClassifier", n_estimators=10), TRAIN, np.stack([BINARY, THREE], 1)),
        ["forest"],
        ROWS,
        True,
    ),
    "extra_trees": (
        save_sklearn(_forest("ExtraTreesClassifier", n_estimators=20), TRAIN, BINARY),
        ["forest"],
        ROWS,
        True,
    ),
    "one_tree": (save_sklearn(_forest("DecisionTreeClassifier"), TRAIN, NAMES), ["forest"], ROWS, True),
    "one_tree_regressor": (save_sklearn(_forest("DecisionTreeRegressor"), TRAIN, SCORE), ["forest"], ROWS, True),
    "boosted": (
        save_sklearn(_forest("GradientBoostingClassifier", n_estimators=20), TRAIN, BINARY),
        ["forest"],
        ROWS,
        True,
    ),
    "boosted_three": (
        save_sklearn(_forest("GradientBoostingClassifier", n_estimators=15), TRAIN, THREE, predict="predict_proba"),
        ["forest"],
        ROWS,
        False,
    ),
    "boosted_regressor": (
        save_sklearn(_forest("GradientBoostingRegressor", n_estimators=20), TRAIN, SCORE),
        ["forest"],
        ROWS,
        True,
    ),
    "binned": (
        save_sklearn(_forest("HistGradientBoostingClassifier", max_iter=15), _gaps(TRAIN), THREE),
        ["forest"],
        GAPS,
        True,
    ),
    "binned_regressor": (
        save_sklearn(_forest("HistGradientBoostingRegressor", max_iter=15), _gaps(TRAIN), SCORE),
        ["forest"],
        GAPS,
        True,
    ),
    "binned_poisson": (
        save_sklearn(_forest("HistGradientBoostingRegressor", max_iter=15, loss="poisson"), TRAIN, np.abs(SCORE)),
        ["forest"],
        GAPS,
        False,
    ),
    "isolation": (
        save_sklearn(_forest("IsolationForest", n_estimators=30, contamination=0.1, max_features=0.7), TRAIN, None),
        ["forest"],
        ON_THE_EDGE,
        True,
    ),
    "lgbm": (flavor_saver("lightgbm", _lgbm("LGBMClassifier"), NAMES), ["lightgbm"], GAPS, True),
    "lgbm_binary": (flavor_saver("lightgbm", _lgbm("LGBMClassifier"), BINARY), ["lightgbm"], GAPS, True),
    "lgbm_regressor": (flavor_saver("lightgbm", _lgbm("LGBMRegressor"), SCORE), ["lightgbm"], GAPS, True),
    "lgbm_early": (flavor_saver("lightgbm", _lgbm_early, SCORE), ["lightgbm"], GAPS, True),
    "lgbm_booster": (
        flavor_saver("lightgbm", _lgbm_booster(objective="binary"), BINARY),
        ["lightgbm"],
        GAPS,
        True,
    ),
    "lgbm_booster_three": (
        flavor_saver("lightgbm", _lgbm_booster(objective="multiclass", num_class=3), THREE),
        ["lightgbm"],
        GAPS,
        True,
    ),
    "xgb": (flavor_saver("xgboost", _xgb("XGBClassifier"), BINARY), ["xgboost", "forest"], GAPS, True),
    "xgb_three": (flavor_saver("xgboost", _xgb("XGBClassifier"), THREE), ["xgboost", "forest"], GAPS, True),
    "xgb_regressor": (flavor_saver("xgboost", _xgb("XGBRegressor"), SCORE), ["xgboost", "forest"], GAPS, True),
    "xgb_early": (flavor_saver("xgboost", _xgb_early, SCORE), ["xgboost", "forest"], GAPS, True),
    "xgb_missing": (
        flavor_saver("xgboost", _xgb("XGBRegressor", missing=-1.0), SCORE, train=TRAIN.round()),
        ["xgboost", "forest"],
        ROWS.round(),
        True,
    ),
    "xgb_booster": (
        flavor_saver("xgboost", _xgb_booster(objective="binary:logistic"), BINARY),
        ["xgboost", "forest"],
        GAPS,
        True,
    ),
    "xgb_softmax": (
        flavor_saver("xgboost", _xgb_booster(objective="multi:softmax", num_class=3), THREE),
        ["xgboost"],
        GAPS,
        True,
    ),
    "xgb_dart": (flavor_saver("xgboost", _xgb("XGBRegressor", booster="dart"), SCORE), ["xgboost"], GAPS, True),
    "xgb_two_targets": (
        flavor_saver("xgboost", _xgb("XGBRegressor"), np.stack([SCORE, -SCORE], 1)),
        ["xgboost", "forest"],
        GAPS,
        True,
    ),
    "cat": (flavor_saver("catboost", _cat("CatBoostClassifier"), NAMES), ["forest"], ROWS, True),
    "cat_binary": (flavor_saver("catboost", _cat("CatBoostClassifier"), BINARY), ["forest"], ROWS, True),
    "cat_regressor": (
        flavor_saver("catboost", _cat("CatBoostRegressor"), SCORE, train=_gaps(TRAIN)),
        ["forest"],
        GAPS,
        False,
    ),
}


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    return export_all(tmp_path_factory.mktemp("trees"), {name: case[0] for name, case in CASES.items()})


@pytest.mark.parametrize("name", CASES)
def test_predictions_are_the_models_own(exported, name):
    _, runtimes, rows, exact = CASES[name]
    model = exported[name]
    assert model.names() == set(runtimes)
    its = np.asarray(model.reference(rows))
    for kind in runtimes:
        runtime = model.runtime(kind)
        assert_same(runtime.predict(inputs_of(rows)), its, exact=exact)
        singles = np.concatenate([runtime.predict(inputs_of(rows[place : place + 1])) for place in range(100)])
        assert_same(singles, its[:100], exact=exact)
        runtime.close()
        runtime.close()


def test_infinity_goes_where_the_model_sends_it(exported):
    rows = pd.concat([ROWS[:6], ROWS[:6]], ignore_index=True)
    for place, column in enumerate(COLUMNS):
        rows.loc[place, column] = np.inf
        rows.loc[place + 6, column] = -np.inf
    for name, kind in (("binned", "forest"), ("binned_regressor", "forest"), ("lgbm", "lightgbm"), ("cat", "forest")):
        assert_same(exported[name].runtime(kind).predict(inputs_of(rows)), exported[name].reference(rows), exact=True)


@pytest.mark.parametrize("wrong", [np.inf, 1e39])
def test_what_does_not_fit_the_models_floats_is_refused_where_the_model_refuses_it(exported, wrong):
    rows = ROWS[:3].copy()
    rows.iloc[1, 4] = wrong
    with pytest.raises(ValueError, match="float32"):
        exported["random_forest"].reference(rows)
    with pytest.raises(BadRequest, match="column 'e'"):
        exported["random_forest"].runtime("forest").predict(inputs_of(rows))


def test_text_and_missing_columns_are_refused_by_name(exported):
    for name, kind in (("random_forest", "forest"), ("lgbm", "lightgbm"), ("xgb", "xgboost")):
        runtime = exported[name].runtime(kind)
        with pytest.raises(BadRequest, match="column 'c'"):
            runtime.predict(inputs_of(ROWS[["a", "b", "d", "e", "f"]]))
        with pytest.raises(BadRequest, match="column 'b'"):
            runtime.predict(inputs_of(ROWS[:2].astype({"b": object}).assign(b=["x", "y"])))


def test_every_real_dtype_is_taken(exported):
    whole = ROWS.round().astype("int64")
    for name, kind in (("forest_regressor", "forest"), ("lgbm_regressor", "lightgbm"), ("xgb_regressor", "forest")):
        its = exported[name].reference(whole.astype(float))
        runtime = exported[name].runtime(kind)
        for rows in (whole, whole.astype("float32"), whole.astype({"a": float, "c": "int32", "e": "float32"})):
            assert_same(runtime.predict(inputs_of(rows)), its, exact=True)


def test_no_rows_give_no_answers(exported):
    for name, kind in (("forest_proba", "forest"), ("lgbm", "lightgbm"), ("xgb_three", "forest")):
        assert len(exported[name].runtime(kind).predict(inputs_of(ROWS[:0]))) == 0


@pytest.mark.parametrize(
    ("name", "kind"),
    [("forest_proba", "forest"), ("lgbm_early", "lightgbm"), ("xgb_three", "xgboost"), ("xgb", "forest")],
)
class TestLongLife:
    def test_threads_get_their_own_answers(self, exported, name, kind):
        assert_threads_agree(exported[name].runtime(kind), GAPS)

    def test_memory_does_not_grow(self, exported, name, kind):
        runtime = exported[name].runtime(kind)
        assert grown_kib(runtime, ROWS, calls=10_000) < 3_000

    def test_a_closed_model_says_so(self, exported, name, kind):
        runtime = exported[name].runtime(kind)
        runtime.predict(inputs_of(ROWS[:1]))
        runtime.close()
        with pytest.raises(ModelFailed, match="closed"):
            runtime.predict(inputs_of(ROWS[:1]))
