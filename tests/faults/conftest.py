from collections.abc import Iterator

import httpx
import pytest

from support.models import SavedModel, save_iris_classifier, save_python_model
from support.platform import Platform
from support.waiting import wait_until

SLOW_MODEL = """class Model(PythonModel):
    def predict(self, context, model_input, params=None):
        time.sleep(0.05)
        return [os.getpid()]"""


@pytest.fixture(scope="session")
def iris_model(tmp_path_factory) -> SavedModel:
    return save_iris_classifier(tmp_path_factory.mktemp("models") / "iris")


@pytest.fixture(scope="session")
def slow_model(tmp_path_factory) -> str:
    """Answers after 50 ms with the pid of the replica that served."""
    return save_python_model(tmp_path_factory.mktemp("models") / "slow", SLOW_MODEL)


@pytest.fixture
def own_platform(tmp_path) -> Iterator[Platform]:
    """A platform of this test's own, to be killed at will."""
    platform = Platform()
    platform.start(home=tmp_path / "home")
    yield platform
    platform.stop()


class Admin:
    """The few control calls that the fault tests need."""

    def __init__(self, platform: Platform) -> None:
        headers = {"authorization": f"Bearer {platform.token}"}
        self.http = httpx.Client(base_url=platform.url, headers=headers, timeout=30)

    def deploy(self, name: str, uri: str, **entity) -> None:
        body = {"name": name, "config": {"served_entities": [{"name": "model", "entity_name": uri, **entity}]}}
        self.http.post("/api/2.0/serving-endpoints", json=body).raise_for_status()

    def update(self, name: str, uri: str, **entity) -> None:
        body = {"served_entities": [{"name": "model", "entity_name": uri, **entity}]}
        self.http.put(f"/api/2.0/serving-endpoints/{name}/config", json=body).raise_for_status()

    def get(self, name: str) -> dict:
        reply = self.http.get(f"/api/2.0/serving-endpoints/{name}")
        reply.raise_for_status()
        return reply.json()

    def wait_ready(self, name: str, timeout_s: float = 90) -> None:
        wait_until(lambda: self.get(name)["state"] == {"ready": "READY", "config_update": "NOT_UPDATING"}, timeout_s)


@pytest.fixture
def admin(own_platform) -> Iterator[Admin]:
    admin = Admin(own_platform)
    yield admin
    admin.http.close()
