"""Every classic family on the running platform: the endpoint's answers are the model's own, row for row.

Each model is asked about its 500 rows in one batch in every form, and about twenty of them one by one, which is where
a batcher or a conversion would show. Which runtime served each is printed after the run.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from support.zoo.bodies import forms
from support.zoo.case import ROWS
from support.zoo.catalog import FAMILY_OF
from support.zoo.compare import differences

pytestmark = pytest.mark.slow

SINGLE_ROWS = range(0, ROWS, ROWS // 20)


@pytest.fixture
def served(fleet, model, served_by):
    """The ready endpoint's case; the endpoint is gone when the test is over."""
    case = fleet.ask_for(model)
    yield case
    served_by[model] = fleet.served(model)
    fleet.release(model)


@pytest.mark.parametrize("model", FAMILY_OF)
def test_the_endpoint_answers_what_the_model_itself_answers(fleet, model, served):
    ways = forms(served)
    found = []
    if served.layout == "messages":
        with ThreadPoolExecutor(4) as pool:
            answers = list(pool.map(lambda body: fleet.ask(model, ways[0], served, [body])[0], served.rows))
        found += differences(served, served.expected, answers)
        for number, chunks in enumerate(served.streams):
            found += differences(served, chunks, fleet.stream(model, served.rows[number]))
    else:
        for form in ways:
            answers = fleet.ask(model, form, served, served.rows)
            found += [f"{form.name}, {text}" for text in differences(served, served.expected, answers)]
        for number in SINGLE_ROWS:
            form = ways[number // SINGLE_ROWS.step % len(ways)]
            answers = fleet.ask(model, form, served, [served.rows[number]])
            alone = differences(served, [served.expected[number]], answers)
            found += [f"{form.name}, row {number} alone, {text}" for text in alone]
    assert not found, "\n".join(found)


def test_the_matrix_has_every_family_of_the_promise():
    promised = (
        "sklearn",
        "xgboost",
        "lightgbm",
        "catboost",
        "torch",
        "onnx",
        "embeddings",
        "statsmodels",
        "python",
        "agent",
    )
    for family in promised:
        assert any(family in name for name in FAMILY_OF), family
