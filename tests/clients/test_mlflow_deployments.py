"""MLflow's own Databricks deployments client, pointed at us by its environment variables alone."""

import pytest

from support.waiting import wait_until


@pytest.fixture
def client(platform, monkeypatch):
    monkeypatch.setenv("DATABRICKS_HOST", platform.url)
    monkeypatch.setenv("DATABRICKS_TOKEN", platform.token)
    from mlflow.deployments import get_deploy_client

    return get_deploy_client("databricks")


def entity(uri: str, **more) -> dict:
    return {"name": "model", "entity_name": uri, **more}


def ready(client, name: str) -> bool:
    state = client.get_endpoint(name)["state"]
    assert state["config_update"] != "UPDATE_FAILED", client.get_endpoint(name)
    return state == {"ready": "READY", "config_update": "NOT_UPDATING"}


def test_an_endpoints_whole_life(client, iris_model):
    name = "mlflow-life"
    created = client.create_endpoint(
        name=name, config={"name": name, "config": {"served_entities": [entity(iris_model.uri)]}}
    )
    assert created["name"] == name
    try:
        wait_until(lambda: ready(client, name), timeout_s=90)
        assert name in [endpoint["name"] for endpoint in client.list_endpoints()]
        answer = client.predict(endpoint=name, inputs={"dataframe_split": iris_model.split})
        assert answer["predictions"] == iris_model.predictions
        before = client.get_endpoint(name)["config"]["config_version"]
        client.update_endpoint_config(name, {"served_entities": [entity(iris_model.uri, environment_vars={"A": "1"})]})
        wait_until(lambda: ready(client, name), timeout_s=90)
        assert client.get_endpoint(name)["config"]["config_version"] > before
        answer = client.predict(endpoint=name, inputs={"dataframe_records": iris_model.records})
        assert answer["predictions"] == iris_model.predictions
    finally:
        client.delete_endpoint(name)
    wait_until(lambda: name not in [endpoint["name"] for endpoint in client.list_endpoints()], timeout_s=30)


def test_predict_and_predict_stream_of_the_llm_agree(client):
    inputs = {
        "messages": [{"role": "user", "content": "What is the capital of France?"}],
        "max_tokens": 12,
        "temperature": 0,
    }
    whole = client.predict(endpoint="smollm2", inputs=inputs)
    text = "".join(
        chunk["choices"][0]["delta"].get("content") or ""
        for chunk in client.predict_stream(endpoint="smollm2", inputs=inputs)
        if chunk["choices"]
    )
    assert "Paris" in text
    assert text == whole["choices"][0]["message"]["content"]


def test_an_unknown_endpoint_is_404_with_its_name(client):
    import requests

    with pytest.raises(requests.HTTPError, match="no-such-endpoint") as caught:
        client.get_endpoint("no-such-endpoint")
    assert caught.value.response.status_code == 404
