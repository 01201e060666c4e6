"""A model that needs other libraries than the platform deploys by itself; an impossible requirement harms nothing."""

import pytest
import yaml

from support.environments import old_environment, save_old_sklearn_model
from support.load import Load
from support.waiting import wait_until

pytestmark = pytest.mark.slow


def test_an_older_generation_deploys_is_reused_and_survives_an_impossible_pin(own_platform, admin, tmp_path):
    saved = save_old_sklearn_model(tmp_path / "old", old_environment().python)
    admin.deploy("old", saved.uri)
    admin.wait_ready("old", timeout_s=300)
    assert _predictions(admin, "old", saved) == saved.predictions
    assert "scikit-learn==1.4.2" in _build_logs(admin, "old")
    environments = own_platform.home / "environments"
    built = _built(environments)
    assert len(built) == 1

    again = save_old_sklearn_model(tmp_path / "again", old_environment().python)
    admin.deploy("again", again.uri)
    admin.wait_ready("again", timeout_s=120)
    assert _predictions(admin, "again", again) == again.predictions
    assert "built before and used again" in _build_logs(admin, "again")
    assert _built(environments) == built

    impossible = tmp_path / "impossible"
    save_old_sklearn_model(impossible, old_environment().python)
    _require(impossible, "scikit-learn==99.0")
    path = "/serving-endpoints/old/invocations"
    with Load(own_platform.url, own_platform.token, path, {"dataframe_split": saved.split}, 2) as load:
        admin.update("old", str(impossible))
        wait_until(lambda: admin.get("old")["state"]["config_update"] == "UPDATE_FAILED", timeout_s=120)
    assert set(load.outcomes) == {200}, load.outcomes
    assert "scikit-learn==99.0" in _build_logs(admin, "old")
    assert _predictions(admin, "old", saved) == saved.predictions
    assert _built(environments) == built


def _predictions(admin, name: str, saved) -> list:
    reply = admin.http.post(f"/serving-endpoints/{name}/invocations", json={"dataframe_split": saved.split})
    assert reply.status_code == 200, reply.text
    return reply.json()["predictions"]


def _build_logs(admin, name: str) -> str:
    reply = admin.http.get(f"/api/2.0/serving-endpoints/{name}/served-models/model/build-logs")
    return str(reply.json()["logs"])


def _built(environments) -> set[str]:
    return {folder.name for folder in environments.iterdir() if folder.is_dir() and not folder.name.startswith(".")}


def _require(model, requirement: str) -> None:
    """Put one requirement in the place of what the model needs of that package."""
    name = requirement.partition("==")[0]
    for file in (model / "requirements.txt", model / "conda.yaml"):
        text = file.read_text()
        lines = [line for line in text.splitlines() if name in line]
        assert lines
        for line in lines:
            text = text.replace(line, line.partition(name)[0] + requirement)
        file.write_text(text)
    yaml.safe_load((model / "conda.yaml").read_text())
