"""A new version that cannot serve never takes the old one down, and says why it failed."""

import pytest

from support.load import Load
from support.models import save_python_model
from support.waiting import wait_until

BROKEN = {
    "raises while loading": (
        "class Model(PythonModel):\n    def load_context(self, context):\n"
        "        raise RuntimeError('the weights file is missing')\n"
        "    def predict(self, context, model_input, params=None):\n        return [0]",
        "the weights file is missing",
    ),
    "exits while loading": (
        "class Model(PythonModel):\n    def load_context(self, context):\n"
        "        print('leaving now', flush=True)\n        os._exit(7)\n"
        "    def predict(self, context, model_input, params=None):\n        return [0]",
        "leaving now",
    ),
}


@pytest.mark.parametrize("kind", sorted(BROKEN))
def test_failed_update_names_the_reason_and_the_old_version_serves_on(own_platform, admin, slow_model, tmp_path, kind):
    body, reason = BROKEN[kind]
    admin.deploy("slow", slow_model)
    admin.wait_ready("slow")
    with Load(
        own_platform.url, own_platform.token, "/serving-endpoints/slow/invocations", {"instances": [1]}, 2
    ) as load:
        admin.update("slow", save_python_model(tmp_path / "broken", body))
        wait_until(lambda: admin.get("slow")["state"]["config_update"] == "UPDATE_FAILED", timeout_s=120)
    assert set(load.outcomes) == {200}, load.outcomes
    endpoint = admin.get("slow")
    assert endpoint["state"]["ready"] == "READY"
    assert endpoint["config"]["served_entities"][0]["entity_name"] == slow_model
    events = admin.http.get("/api/2.0/serving-endpoints/slow/events").json()["events"]
    assert any(reason in event["message"] for event in events), events
    logs = admin.http.get("/api/2.0/serving-endpoints/slow/served-models/model/build-logs").json()["logs"]
    assert reason in logs


def test_a_first_deployment_of_a_missing_path_fails_with_the_path(admin):
    admin.deploy("nowhere", "/no/such/model")
    endpoint = wait_until(
        lambda: (e := admin.get("nowhere"))["state"]["config_update"] == "UPDATE_FAILED" and e, timeout_s=60
    )
    assert endpoint["state"]["ready"] == "NOT_READY"
    assert "/no/such/model" in str(endpoint)
    reply = admin.http.post("/serving-endpoints/nowhere/invocations", json={"instances": [1]})
    assert reply.status_code == 503
    assert "traceback" not in reply.text.lower()
