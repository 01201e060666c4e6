"""The walk in C beside LightGBM's own library: the same bits for every text, and a refusal for what is no text."""

import threading

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from steelyard.errors import ModelFailed, ModelLoadError
from steelyard.runtimes.evaluator import boosted_trees
from steelyard.runtimes.leaf_sums import OwnSums, VectorSums, _by_library, sums_of
from steelyard.runtimes.lightgbm_library import NORMAL, RAW, Trees
from steelyard.runtimes.native import _platform_lightgbm
from steelyard.runtimes.tree_walk import walker
from steelyard.runtimes.tree_walk.model_text import NotUnderstood, read_model_text
from steelyard.worker.export.tree_text import Tree, constant, model_text
from support.model_texts import OBJECTIVES, random_text, rows_for

pytestmark = pytest.mark.skipif(walker.Trees is None, reason="the extension was not built: there was no C compiler")

ROWS = (0, 1, 3, 4, 9, 256, 1100)  # one by one, one group, one batch, several
_FOLDER_STAYS = [HealthCheck.function_scoped_fixture]


@pytest.fixture(scope="module")
def library():
    return _platform_lightgbm()


@pytest.fixture
def text_file(tmp_path):
    def write(text):
        file = tmp_path / "model.txt"
        file.write_text(text)
        return file

    return write


def assert_same_bits(ours, theirs):
    assert ours.shape == theirs.shape
    assert ours.dtype == theirs.dtype
    same = (ours == theirs) & (np.signbit(ours) == np.signbit(theirs)) | np.isnan(ours) & np.isnan(theirs)
    assert same.all()


def thresholds_of(file):
    return read_model_text(file).threshold


@given(seed=st.integers(0, 2**32), data=st.data())
@settings(max_examples=120, deadline=None, suppress_health_check=_FOLDER_STAYS)
def test_any_text_gives_the_librarys_bits(library, text_file, seed, data):
    rng = np.random.default_rng(seed)
    scores = data.draw(st.sampled_from([1, 3]))
    objective = data.draw(st.sampled_from(OBJECTIVES[scores]))
    trees, leaves = scores * data.draw(st.integers(1, 12)), data.draw(st.sampled_from([1, 2, 8, 40, 300]))
    averages, raw = data.draw(st.booleans()), data.draw(st.booleans())
    file = text_file(
        random_text(rng, trees=trees, leaves=leaves, scores=scores, objective=objective, averages=averages)
    )
    ours, theirs = walker.boosted(file, raw=raw), Trees(library, file, RAW if raw else NORMAL)
    for count in ROWS:
        rows = rows_for(rng, thresholds_of(file), 4, count)
        assert_same_bits(ours.predict(rows), theirs.predict(rows))
    theirs.close()


def test_trees_larger_than_a_cache_give_the_librarys_bits(library, text_file):
    rng = np.random.default_rng(12)
    file = text_file(random_text(rng, trees=4, leaves=6000))
    assert read_model_text(file).leaves.mean() > 1000
    rows = rows_for(rng, thresholds_of(file), 4, 2500)
    theirs = Trees(library, file, NORMAL)
    assert_same_bits(walker.boosted(file, raw=False).predict(rows), theirs.predict(rows))
    theirs.close()


TRAINED = {
    "regression": {},
    "square_root": {"objective": "regression", "reg_sqrt": True},
    "poisson": {"objective": "poisson"},
    "quantile": {"objective": "quantile"},
    "binary": {"objective": "binary", "sigmoid": 0.7},
    "three": {"objective": "multiclass", "num_class": 3},
    "three_apart": {"objective": "multiclassova", "num_class": 3},
    "zero_is_missing": {"zero_as_missing": True},
    "nothing_is_missing": {"use_missing": False},
    "categories": {"objective": "binary", "categories": [2, 3], "max_cat_to_onehot": 1},
    "dropped": {"boosting": "dart"},
    "averaged": {"boosting": "rf", "bagging_freq": 1, "bagging_fraction": 0.7, "objective": "binary"},
    "stumps": {"num_leaves": 2},
    "constant": {"min_data_in_leaf": 5000},
    "deep": {"num_leaves": 500, "min_data_in_leaf": 1, "max_bin": 1000},
}


@pytest.mark.parametrize("name", TRAINED)
def test_what_lightgbm_trains_gives_its_own_bits(library, text_file, name):
    import lightgbm

    rng = np.random.default_rng(7)
    values = rng.integers([-3, -3, 0, 0], [4, 4, 50, 9], size=(900, 4)) + rng.normal(size=(900, 4)) * [1, 0, 0, 0]
    values[rng.random(values.shape) < 0.1] = np.nan
    known = np.nan_to_num(values)
    score = known[:, 0] + known[:, 1] * np.sin(known[:, 2])
    three = np.digitize(score, [-1, 1])
    target = {"binary": score > 0, "multiclass": three, "multiclassova": three}
    asked = dict(TRAINED[name])
    categories = asked.pop("categories", "auto")
    data = lightgbm.Dataset(values, target.get(asked.get("objective"), np.abs(score)), categorical_feature=categories)
    booster = lightgbm.train({"verbose": -1, "num_threads": 1, "min_data_per_group": 5, **asked}, data, 12)
    file = text_file(booster.model_to_string())
    assert (read_model_text(file).words.size > 0) is (name == "categories")
    rows = np.concatenate([values, rows_for(rng, thresholds_of(file), 4, 700)])
    for raw in (False, True):
        ours = walker.boosted(file, raw=raw).predict(rows)
        theirs = Trees(library, file, RAW if raw else NORMAL)
        assert_same_bits(ours, theirs.predict(rows))
        theirs.close()


@given(seed=st.integers(0, 2**32), kind=st.sampled_from(["double", "vector", "float"]))
@settings(max_examples=60, deadline=None, suppress_health_check=_FOLDER_STAYS)
def test_converted_trees_add_up_as_by_the_library(library, text_file, seed, kind):
    rng = np.random.default_rng(seed)
    file = text_file(random_text(rng, trees=9, leaves=60, splits="plain"))
    text = read_model_text(file)
    leaves = int(text.leaves.sum())
    values = rng.normal(size=(leaves, 3)) if kind == "vector" else rng.normal(size=leaves).astype(np.float32)
    arrays = {"values": values, "first_leaf": text.first_leaf, "score": np.arange(9) % 2}
    theirs = _by_library(library, file, kind, arrays)
    ours = walker.converted(file, kind, arrays)
    for count in ROWS:
        rows = rows_for(rng, text.threshold, 4, count)
        rows[np.abs(rows) <= 1.1e-35] = 0.0  # see below
        assert_same_bits(ours.predict(rows), theirs.of(rows))
        with np.errstate(over="ignore"):
            narrow = rows.astype(np.float32)
        assert_same_bits(ours.predict(narrow), theirs.of(narrow))
    theirs.close()


def test_converted_trees_tell_the_smallest_numbers_from_zero(text_file):
    """Which LightGBM does not, and scikit-learn does."""
    inner = np.array([1, -1, -1]), np.array([2, -1, -1]), np.array([0, -1, -1]), np.array([1e-37, 0.0, 0.0])
    tree = Tree(*inner, np.zeros(3, dtype=bool), np.array([0.0, 1.0, 2.0]))
    trees = walker.converted(text_file(model_text([tree, constant(0.0)], 1)), "double", {})
    assert trees.predict(np.array([[1e-38], [1e-36], [5e-324], [-5e-324]])).ravel().tolist() == [1.0, 2.0, 1.0, 1.0]


class TestWhatIsNoText:
    def test_a_text_that_ends_early_is_refused(self, text_file):
        text = random_text(np.random.default_rng(2), trees=3, leaves=9)
        for end in range(0, text.index("end of trees"), 7):
            with pytest.raises(ModelLoadError):
                walker.boosted(text_file(text[:end]), raw=False)

    @given(seed=st.integers(0, 2**32), number=st.sampled_from(["-1", "0", "1", "-99", "7", "2147483648", "x", "nan"]))
    @settings(max_examples=150, deadline=None, suppress_health_check=_FOLDER_STAYS)
    def test_a_text_with_one_number_changed_is_refused_or_walked_to_the_end(self, text_file, seed, number):
        rng = np.random.default_rng(seed)
        words = random_text(rng, trees=3, leaves=9).replace("=", "= ").split(" ")
        words[int(rng.integers(len(words)))] = number
        file = text_file(" ".join(words).replace("= ", "="))
        try:
            trees = walker.boosted(file, raw=True)
        except (ModelLoadError, NotUnderstood):
            return
        for count in (1, 40):
            assert trees.predict(rng.normal(size=(count, trees.features))).shape[0] == count

    @pytest.mark.parametrize(
        ("line", "instead"),
        [
            ("left_child=1 -2", "left_child=0 -2"),  # for ever
            ("left_child=1 -2", "left_child=1 1"),
            ("left_child=1 -2", "left_child=1 0"),
            ("left_child=1 -2", "left_child=1 9"),
            ("left_child=1 -2", "left_child=1 -9"),
            ("left_child=1 -2", "left_child=-1 -2"),  # the second node is nobody's
            ("split_feature=0 1", "split_feature=0 2"),
            ("split_feature=0 1", "split_feature=0 -1"),
            ("threshold=1.5 2.5", "threshold=1.5 nan"),
            ("num_leaves=3", "num_leaves=999999999999"),
            ("num_leaves=3", "num_leaves=-3"),
            ("num_leaves=3", "num_leaves=0"),
            ("max_feature_idx=1", "max_feature_idx=2000000000"),
            ("num_tree_per_iteration=1", "num_tree_per_iteration=0"),
            ("num_class=1", "num_class=7"),
            ("decision_type=2 2", "decision_type=1 2"),  # a set of categories that is not there
            ("decision_type=2 2", "decision_type=2 300"),
            ("num_cat=0", "num_cat=-1"),
            ("num_cat=0", "num_cat=9"),
        ],
    )
    def test_damage_is_a_load_error(self, text_file, line, instead):
        left, right, feature = np.array([1, 3, -1, -1, -1]), np.array([2, 4, -1, -1, -1]), np.array([0, 1, -1, -1, -1])
        tree = Tree(left, right, feature, np.array([1.5, 2.5, 0, 0, 0]), np.ones(5, dtype=bool), np.arange(5.0))
        text = model_text([tree], 2).replace("decision_type=10 10", "decision_type=2 2")
        assert text.count(line) == 1
        walker.boosted(text_file(text), raw=False)
        with pytest.raises(ModelLoadError):
            walker.boosted(text_file(text.replace(line, instead)), raw=False)

    def test_arrays_that_do_not_fit_are_refused(self, text_file):
        file = text_file(random_text(np.random.default_rng(4), trees=3))
        leaves = int(read_model_text(file).leaves.sum())
        first = read_model_text(file).first_leaf
        for values, starts, score in (
            (np.zeros(leaves - 1), first, [0, 0, 0]),
            (np.zeros(leaves + 1), first, [0, 0, 0]),
            (np.zeros(leaves), first + 1, [0, 0, 0]),
            (np.zeros(leaves), first, [0, -1, 0]),
            (np.zeros(leaves), first, [0, 0]),
        ):
            arrays = {"values": values, "first_leaf": starts, "score": np.array(score)}
            with pytest.raises(ModelLoadError):
                walker.converted(file, "float", arrays)


class TestByTheLibraryInstead:
    def test_without_the_extension(self, library, text_file, monkeypatch):
        rng = np.random.default_rng(5)
        file = text_file(random_text(rng, trees=5, objective="binary sigmoid:1"))
        rows = rows_for(rng, thresholds_of(file), 4, 50)
        walked = boosted_trees("no library", file, raw=False).predict(rows)
        monkeypatch.setattr(walker, "Trees", None)
        with pytest.raises(ModelLoadError):
            boosted_trees("no library", file, raw=False)
        trees = boosted_trees(library, file, raw=False)
        assert isinstance(trees, Trees)
        assert_same_bits(walked, trees.predict(rows))
        trees.close()

    def test_sums_without_the_extension(self, library, text_file, monkeypatch):
        file = text_file(random_text(np.random.default_rng(6), trees=5, splits="plain"))
        text = read_model_text(file)
        arrays = {"values": np.ones((int(text.leaves.sum()), 2)), "first_leaf": text.first_leaf}
        assert isinstance(sums_of(pytest.fail, file, {"sum": "vector"}, arrays), OwnSums)
        monkeypatch.setattr(walker, "Trees", None)
        sums = sums_of(lambda: library, file, {"sum": "vector"}, arrays)
        assert isinstance(sums, VectorSums)
        assert (sums.of(np.zeros((2, 4))) == 5.0).all()
        sums.close()

    def test_for_leaves_that_are_linear_models(self, library, text_file):
        import lightgbm

        rng = np.random.default_rng(8)
        rows = rng.normal(size=(300, 4))
        booster = lightgbm.train(
            {"linear_tree": True, "verbose": -1, "num_threads": 1}, lightgbm.Dataset(rows, rows[:, 0] * rows[:, 1]), 3
        )
        file = text_file(booster.model_to_string())
        with pytest.raises(NotUnderstood, match="linear"):
            walker.boosted(file, raw=False)
        trees = boosted_trees(library, file, raw=False)
        assert_same_bits(trees.predict(rows).ravel(), booster.predict(rows))
        trees.close()

    def test_for_an_objective_that_is_not_known(self, text_file):
        with pytest.raises(NotUnderstood, match="objective"):
            walker.boosted(text_file(random_text(np.random.default_rng(9), objective="of_tomorrow")), raw=False)


class TestCalls:
    @pytest.fixture
    def trees(self, text_file):
        return walker.boosted(text_file(random_text(np.random.default_rng(1), trees=40)), raw=False)

    def test_every_real_dtype_and_layout_is_taken(self, trees):
        rows = np.random.default_rng(1).integers(-3, 4, size=(30, 4))
        expected = trees.predict(rows.astype(float))
        for other in (rows, rows.astype(np.float32), rows.astype(np.int8), np.asfortranarray(rows.astype(float))):
            assert_same_bits(trees.predict(other), expected)
        assert_same_bits(trees.predict(np.repeat(rows, 2, axis=0).astype(float)[::2]), expected)
        shifted = np.frombuffer(b"x" + rows.astype(float).tobytes(), dtype=np.uint8)[1:].view(np.float64)
        assert_same_bits(trees.predict(shifted.reshape(30, 4)), expected)

    def test_other_widths_and_closed_models_are_refused(self, trees):
        for width in (0, 3, 5):
            with pytest.raises(ModelFailed, match="columns"):
                trees.predict(np.zeros((2, width)))
        trees.close()
        trees.close()
        with pytest.raises(ModelFailed, match="closed"):
            trees.predict(np.zeros((2, 4)))

    def test_the_extension_checks_what_it_is_given(self, trees):
        good = np.zeros((2, 4)), np.zeros((2, 1))
        for rows, sums in (
            (np.zeros((2, 3)), good[1]),
            (np.zeros(4), good[1]),
            (np.zeros((2, 4), dtype=np.int64), good[1]),
            (np.zeros((2, 8))[:, ::2], good[1]),
            (good[0], np.zeros((3, 1))),
            (good[0], np.zeros((2, 2))),
            (good[0], np.zeros((2, 1), dtype=np.float32)),
        ):
            with pytest.raises(ValueError, match=r"needed|contiguous"):
                trees._walk(rows, sums)
        for arguments in ((), (good[0],), (1, 2), (good[0], None)):
            with pytest.raises(TypeError):
                trees._walk(*arguments)
        with pytest.raises(ValueError, match="read-only"):
            trees._walk(good[0], np.frombuffer(bytes(16)).reshape(2, 1))

    def test_threads_get_their_own_answers(self, trees):
        rows = [np.random.default_rng(place).normal(size=(200, 4)) for place in range(4)]
        expected = [trees.predict(part) for part in rows]
        wrong = []

        def ask(place):
            for _ in range(50):
                if not np.array_equal(trees.predict(rows[place]), expected[place]):
                    wrong.append(place)

        threads = [threading.Thread(target=ask, args=(place,)) for place in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not wrong
