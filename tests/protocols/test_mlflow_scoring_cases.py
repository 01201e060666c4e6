"""Each request of the table goes to MLflow's own scoring server and to ours, and each answers what the table says.

The table is `support/scoring/cases`; `docs/mlflow-compatibility.md` is made from it.
"""

from functools import cache

import pytest

from support.scoring import document, models
from support.scoring.cases import THEMES
from support.scoring.mlflow_server import MlflowServer
from support.scoring.our_worker import OurWorker

ALL = [
    pytest.param(case, id=f"{theme.__name__.rpartition('.')[2]}: {case.id}") for theme in THEMES for case in theme.CASES
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("scoring")


@pytest.fixture(scope="module")
def mlflow_server(folder):
    servers: dict[str, MlflowServer] = {}

    def server(model: str) -> MlflowServer:
        if model not in servers:
            servers[model] = MlflowServer(models.save(model, folder))
        return servers[model]

    yield server
    for started in servers.values():
        started.close()


@pytest.fixture(scope="module")
def our_worker(folder):
    return cache(lambda model: OurWorker(models.save(model, folder)))


@pytest.mark.parametrize("case", ALL)
def test_mlflow_answers_as_the_table_says(case, mlflow_server):
    assert mlflow_server(case.model).outcome(case) == case.mlflow


@pytest.mark.parametrize("case", ALL)
def test_we_answer_as_the_table_says(case, our_worker):
    assert our_worker(case.model).outcome(case) == case.ours


def test_each_difference_has_a_reason_and_nothing_else_has():
    for theme in THEMES:
        for case in theme.CASES:
            mlflow, ours = case.mlflow, case.ours
            alike = mlflow == ours or (mlflow[0] == ours[0] and not ours.startswith("200"))
            assert bool(case.why) != alike, case.id


def test_a_clients_mistake_is_never_our_failure():
    for theme in THEMES:
        if theme.__name__.endswith("answers"):
            continue
        for case in theme.CASES:
            assert case.ours[0] in "24", case.id


def test_no_case_stands_twice():
    for theme in THEMES:
        names = [case.id for case in theme.CASES]
        assert len(set(names)) == len(names), theme.__name__


def test_the_document_is_in_step_with_the_table():
    assert document.PATH.read_text() == document.write(), "run: PYTHONPATH=tests python -m support.scoring.document"
