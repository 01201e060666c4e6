"""Tree models in their native runtimes beside MLflow's own predict: equal to the last bit."""

import numpy as np
import pandas as pd
import pytest

from support.native_models import assert_same, export_all, inputs_of

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


def sklearn_saver(make, target, *, train=TRAIN, predict="predict", signature_rows=None):
    def save(folder):
        import mlflow.sklearn
        from mlflow.models import infer_signature

        model = make().fit(train, target) if target is not None else make().fit(train)
        example = train if signature_rows is None else signature_rows
        mlflow.sklearn.save_model(
            model,
            folder,
            signature=infer_signature(example),
            pip_requirements=[],
            pyfunc_predict_fn=predict,
            serialization_format="cloudpickle",
        )

    return save


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

        return getattr(lightgbm, kind)(n_estimators=30, verbose=-1, **settings).fit(train, target)

    return make


def _lgbm_booster(**settings):
    def make(train, target):
        import lightgbm

        return lightgbm.train({"verbose": -1, **settings}, lightgbm.Dataset(train, target), 30)

    return make


def _lgbm_early(train, target):
    import lightgbm

    model = lightgbm.LGBMRegressor(n_estimators=200, learning_rate=0.5, verbose=-1)
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

        return getattr(xgboost, kind)(n_estimators=30, max_depth=4, **settings).fit(train, target)

    return make


def _xgb_early(train, target):
    import xgboost

    model = xgboost.XGBRegressor(n_estimators=200, learning_rate=0.7, early_stopping_rounds=3)
    half = len(train) // 2
    return model.fit(train[:half], target[:half], eval_set=[(train[half:], target[half:])], verbose=False)


def _xgb_booster(**settings):
    def make(train, target):
        import xgboost

        return xgboost.train(settings, xgboost.DMatrix(train, target), 30)

    return make


def _cat(kind, **settings):
    def make(train, target):
        import catboost

        return getattr(catboost, kind)(iterations=30, verbose=False, allow_writing_files=False, **settings).fit(
            train, target
        )

    return make


NAMES = np.array(["low", "middle", "high"])[THREE]
CASES = {
    # name: (saver, runtimes, rows, exact)
    "random_forest": (sklearn_saver(_forest("RandomForestClassifier", n_estimators=20), THREE), ["forest"], ROWS, True),
    "random_forest_gaps": (
        sklearn_saver(_forest("RandomForestClassifier", n_estimators=20), NAMES, train=_gaps(TRAIN)),
        ["forest"],
        GAPS,
        True,
    ),
    "forest_proba": (
        sklearn_saver(_forest("RandomForestClassifier", n_estimators=20), BINARY, predict="predict_proba"),
        ["forest"],
        GAPS,
        True,
    ),
    "forest_regressor": (
        sklearn_saver(_forest("RandomForestRegressor", n_estimators=20), SCORE),
        ["forest"],
        ROWS,
        True,
    ),
    "forest_two_targets": (
        sklearn_saver(_forest("ExtraTreesRegressor", n_estimators=10), np.stack([SCORE, -SCORE * 2], 1)),
        ["forest"],
        ROWS,
        True,
    ),
    "forest_two_labels": (
        sklearn_saver(_forest("RandomForestClassifier", n_estimators=10), np.stack([BINARY, THREE], 1)),
        ["forest"],
        ROWS,
        True,
    ),
    "extra_trees": (sklearn_saver(_forest("ExtraTreesClassifier", n_estimators=20), BINARY), ["forest"], ROWS, True),
    "one_tree": (sklearn_saver(_forest("DecisionTreeClassifier"), NAMES), ["forest"], ROWS, True),
    "one_tree_regressor": (sklearn_saver(_forest("DecisionTreeRegressor"), SCORE), ["forest"], ROWS, True),
    "boosted": (sklearn_saver(_forest("GradientBoostingClassifier", n_estimators=20), BINARY), ["forest"], ROWS, True),
    "boosted_three": (
        sklearn_saver(_forest("GradientBoostingClassifier", n_estimators=15), THREE, predict="predict_proba"),
        ["forest"],
        ROWS,
        False,
    ),
    "boosted_regressor": (
        sklearn_saver(_forest("GradientBoostingRegressor", n_estimators=20), SCORE),
        ["forest"],
        ROWS,
        True,
    ),
    "binned": (
        sklearn_saver(_forest("HistGradientBoostingClassifier", max_iter=15), THREE, train=_gaps(TRAIN)),
        ["forest"],
        GAPS,
        True,
    ),
    "binned_regressor": (
        sklearn_saver(_forest("HistGradientBoostingRegressor", max_iter=15), SCORE, train=_gaps(TRAIN)),
        ["forest"],
        GAPS,
        True,
    ),
    "binned_poisson": (
        sklearn_saver(_forest("HistGradientBoostingRegressor", max_iter=15, loss="poisson"), np.abs(SCORE)),
        ["forest"],
        GAPS,
        False,
    ),
    "isolation": (
        sklearn_saver(_forest("IsolationForest", n_estimators=30, contamination=0.1, max_features=0.7), None),
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
    its = np.asarray(model.reference(rows))
    for kind in runtimes:
        runtime = model.runtime(kind)
        floats_by_numpy = kind == "forest" and its.dtype == np.float32 and name in ("xgb_booster",)
        assert_same(
            runtime.predict(inputs_of(rows)),
            its,
            exact=exact and not floats_by_numpy,
            rtol=1e-6 if floats_by_numpy else 1e-9,
        )
        singles = np.concatenate([runtime.predict(inputs_of(rows[place : place + 1])) for place in range(100)])
        assert_same(singles, its[:100], exact=exact and not floats_by_numpy, rtol=1e-6 if floats_by_numpy else 1e-9)
        runtime.close()
        runtime.close()
