"""The official databricks-sdk, `WorkspaceClient(host, token).serving_endpoints`, unchanged."""

from datetime import timedelta

import pytest
from databricks.sdk import WorkspaceClient
from databricks.sdk.errors import BadRequest, NotFound, ResourceAlreadyExists
from databricks.sdk.service.serving import (
    ChatMessage,
    ChatMessageRole,
    DataframeSplitInput,
    EndpointCoreConfigInput,
    EndpointStateReady,
    Route,
    ServedEntityInput,
    TrafficConfig,
)

from support.waiting import wait_until

WAIT = timedelta(seconds=120)


@pytest.fixture(scope="module")
def endpoints(platform):
    return WorkspaceClient(host=platform.url, token=platform.token, auth_type="pat").serving_endpoints


@pytest.fixture(scope="module")
def life(endpoints, iris_model):
    """An endpoint that two entities share half and half."""
    endpoint = endpoints.create_and_wait(
        name="sdk-life",
        config=EndpointCoreConfigInput(
            name="sdk-life",
            served_entities=[
                ServedEntityInput(
                    name=name, entity_name=iris_model.uri, workload_size="Small", scale_to_zero_enabled=True
                )
                for name in ("left", "right")
            ],
            traffic_config=TrafficConfig(
                routes=[
                    Route(served_model_name="left", served_entity_name="left", traffic_percentage=50),
                    Route(served_model_name="right", served_entity_name="right", traffic_percentage=50),
                ]
            ),
        ),
        timeout=WAIT,
    )
    yield endpoint
    endpoints.delete(endpoint.name)
    wait_until(lambda: endpoint.name not in [e.name for e in endpoints.list()], timeout_s=30)
    with pytest.raises(NotFound):
        endpoints.get(endpoint.name)


def test_create_and_wait_returns_a_ready_endpoint(life, endpoints):
    assert life.state.ready == EndpointStateReady.READY
    assert {e.name for e in life.config.served_entities} == {"left", "right"}
    assert endpoints.get(life.name).id == life.id
    assert life.name in [endpoint.name for endpoint in endpoints.list()]


def test_query_answers_with_the_models_own_predictions(life, endpoints, iris_model):
    split = DataframeSplitInput(columns=iris_model.split["columns"], data=iris_model.split["data"])
    reply = endpoints.query(life.name, dataframe_split=split)
    assert reply.predictions == iris_model.predictions
    served = {endpoints.query(life.name, dataframe_split=split).served_model_name for _ in range(24)}
    assert served == {"left", "right"}


def test_query_chats_with_the_llm(endpoints):
    reply = endpoints.query(
        "smollm2",
        messages=[ChatMessage(role=ChatMessageRole.USER, content="What is the capital of France?")],
        max_tokens=12,
        temperature=0.0,
    )
    assert "Paris" in reply.choices[0].message.content
    assert reply.usage.completion_tokens > 0


def test_update_waits_and_moves_the_version(life, endpoints, iris_model):
    updated = endpoints.update_config_and_wait(
        life.name,
        served_entities=[entity(iris_model)],
        traffic_config=TrafficConfig(
            routes=[Route(served_model_name="only", served_entity_name="only", traffic_percentage=100)]
        ),
        timeout=WAIT,
    )
    assert [e.name for e in updated.config.served_entities] == ["only"]
    assert updated.config.config_version > 1


def entity(model) -> ServedEntityInput:
    return ServedEntityInput(name="only", entity_name=model.uri, scale_to_zero_enabled=True)


def test_logs_metrics_and_errors(life, endpoints, iris_model):
    names = [entity.name for entity in endpoints.get(life.name).config.served_entities]
    assert isinstance(endpoints.logs(life.name, names[0]).logs, str)
    assert isinstance(endpoints.build_logs(life.name, names[0]).logs, str)
    assert b"steelyard_" in endpoints.export_metrics(life.name).contents.read()
    with pytest.raises(NotFound, match="no-such-endpoint"):
        endpoints.get("no-such-endpoint")
    with pytest.raises(ResourceAlreadyExists):
        endpoints.create(
            name=life.name, config=EndpointCoreConfigInput(name=life.name, served_entities=[entity(iris_model)])
        )
    with pytest.raises(BadRequest, match="name"):
        endpoints.create(
            name="not a name!", config=EndpointCoreConfigInput(name="x", served_entities=[entity(iris_model)])
        )
