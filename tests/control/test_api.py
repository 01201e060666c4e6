"""The API's shapes, states and refusals over real HTTP and a real store."""

import time

import httpx
import pytest

from support.live_api import LiveApi

BASE = "/api/2.0/serving-endpoints"


@pytest.fixture
def api(tmp_path):
    with LiveApi(tmp_path) as live:
        yield live


@pytest.fixture
def http(api):
    with httpx.Client(base_url=api.url, headers={"x-steelyard-principal": "ada"}) as client:
        yield client


def entity(name: str = "m", uri: str = "models:/iris/1", **more) -> dict:
    return {"name": name, "entity_name": uri, **more}


def body(name: str = "iris", **config) -> dict:
    return {"name": name, "config": {"served_entities": [entity()]} | config}


def test_created_endpoint_has_the_documented_shape(http):
    made = http.post(BASE, json=body() | {"tags": [{"key": "k", "value": "v"}], "description": "d"}).json()
    assert made["state"] == {"ready": "NOT_READY", "config_update": "IN_PROGRESS"}
    assert (made["creator"], made["tags"], made["permission_level"]) == (
        "ada",
        [{"key": "k", "value": "v"}],
        "CAN_MANAGE",
    )
    pending = made["pending_config"]
    assert pending["config_version"] == 1
    assert pending["served_entities"][0]["state"]["deployment"] == "DEPLOYMENT_CREATING"
    assert pending["traffic_config"]["routes"] == [
        {"served_entity_name": "m", "served_model_name": "m", "traffic_percentage": 100}
    ]
    assert made["config"]["config_version"] == 0
    assert made["endpoint_url"].endswith("/serving-endpoints/iris/invocations")
    assert http.get(f"{BASE}/iris").json() == made


def test_list_answers_with_and_without_trailing_slash(http):
    assert http.get(BASE).json() == http.get(f"{BASE}/").json() == {"endpoints": []}
    http.post(f"{BASE}/", json=body())
    assert [item["name"] for item in http.get(f"{BASE}/").json()["endpoints"]] == ["iris"]


def test_promoted_then_failed_update_shows_both_configurations(api, http):
    http.post(BASE, json=body())
    api.promote("iris")
    http.put(f"{BASE}/iris/config", json={"served_entities": [entity("n"), entity("o")],
             "traffic_config": {"routes": [{"served_entity_name": "n", "traffic_percentage": 100}]}})  # fmt: skip
    api.fail("iris", "n: no weights")
    shown = http.get(f"{BASE}/iris").json()
    assert shown["state"]["config_update"] == "UPDATE_FAILED"
    assert shown["config"]["served_entities"][0]["name"] == "m"
    states = {item["name"]: item["state"] for item in shown["pending_config"]["served_entities"]}
    assert states["n"] == {"deployment": "DEPLOYMENT_FAILED", "deployment_state_message": "no weights"}
    assert states["o"]["deployment"] == "DEPLOYMENT_ABORTED"


def test_deprecated_served_models_and_route_names_are_understood(http):
    config = {
        "served_models": [{"model_name": "iris", "model_version": "3", "workload_size": "Small"}],
        "traffic_config": {"routes": [{"served_model_name": "iris-3", "traffic_percentage": 100}]},
    }
    made = http.post(BASE, json={"name": "iris", "config": config}).json()
    (served,) = made["pending_config"]["served_entities"]
    assert (served["name"], served["entity_name"], served["entity_version"]) == ("iris-3", "iris", "3")
    assert made["pending_config"]["served_models"][0]["model_name"] == "iris"


def test_update_of_traffic_alone_keeps_the_entities(api, http):
    split = [
        {"served_entity_name": "m", "traffic_percentage": 90},
        {"served_entity_name": "n", "traffic_percentage": 10},
    ]
    http.post(BASE, json=body(served_entities=[entity(), entity("n")], traffic_config={"routes": split}))
    api.promote("iris")
    split[0]["traffic_percentage"], split[1]["traffic_percentage"] = 50, 50
    updated = http.put(f"{BASE}/iris/config", json={"traffic_config": {"routes": split}}).json()
    assert [item["name"] for item in updated["pending_config"]["served_entities"]] == ["m", "n"]


@pytest.mark.parametrize(
    ("config", "field"),
    [
        ({"served_entities": []}, "config.served_entities"),
        ({"served_entities": [{"name": "m"}]}, "config.served_entities[0].entity_name"),
        ({"served_entities": [entity("bad name")]}, "config.served_entities[0].name"),
        ({"served_entities": [entity(), entity()]}, "config.served_entities"),
        ({"served_entities": [entity(uri="iris")]}, "config.served_entities[0].entity_version"),
        ({"served_entities": [entity(workload_size="Huge")]}, "config.served_entities[0].workload_size"),
        ({"served_entities": [entity(environment_vars={"A B": "c"})]}, "config.served_entities[0].environment_vars"),
        ({"served_entities": [entity(environment_vars={"A": "x\0"})]}, "config.served_entities[0].environment_vars.A"),
        ({"served_entities": [entity(external_model={"name": "x"})]}, "config.served_entities[0].external_model"),
        ({"served_entities": [entity(min_provisioned_concurrency=-1)]},
         "config.served_entities[0].min_provisioned_concurrency"),
        ({"traffic_config": {"routes": [{"served_entity_name": "m", "traffic_percentage": 99}]}},
         "config.traffic_config.routes"),
        ({"traffic_config": {"routes": [{"served_entity_name": "x", "traffic_percentage": 100}]}},
         "config.traffic_config.routes"),
        ({"traffic_config": {"routes": [{"traffic_percentage": 100}]}}, "config.traffic_config.routes[0]"),
        ({"traffic_config": {"routes": [{"served_entity_name": "m", "traffic_percentage": 101}]}},
         "config.traffic_config.routes[0].traffic_percentage"),
        ({"served_entities": [entity(), entity("n")]}, "config.traffic_config.routes"),
    ],
)  # fmt: skip
def test_wrong_configuration_is_refused_and_the_field_named(http, config, field):
    reply = http.post(BASE, json=body(**config))
    assert reply.status_code == 400, reply.text
    fault = reply.json()
    assert fault["error_code"] == "INVALID_PARAMETER_VALUE"
    assert fault["message"].startswith(field), fault
    assert fault["param"] == field
    assert http.get(BASE).json() == {"endpoints": []}


@pytest.mark.parametrize("name", ["", "a b", "a/b", "ü", "x" * 64])
def test_wrong_names_are_refused(http, name):
    reply = http.post(BASE, json=body(name))
    assert (reply.status_code, reply.json()["param"]) == (400, "name")


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"null", b'"text"', b"\xff", b'{"name": "a"}'])
def test_bodies_that_are_no_request_are_refused(http, content):
    reply = http.post(BASE, content=content, headers={"content-type": "application/json"})
    assert reply.status_code == 400, reply.text
    assert reply.json()["message"].endswith(".")


def test_a_name_is_given_once(http):
    http.post(BASE, json=body())
    reply = http.post(BASE, json=body())
    assert (reply.status_code, reply.json()["error_code"]) == (400, "RESOURCE_ALREADY_EXISTS")


def test_unknown_endpoints_paths_and_methods_have_our_error_body(http):
    for method, path, status, code in [
        ("GET", f"{BASE}/no", 404, "RESOURCE_DOES_NOT_EXIST"),
        ("DELETE", f"{BASE}/no", 404, "RESOURCE_DOES_NOT_EXIST"),
        ("GET", f"{BASE}/no/served-models/m/logs", 404, "RESOURCE_DOES_NOT_EXIST"),
        ("GET", "/nothing", 404, "RESOURCE_DOES_NOT_EXIST"),
        ("PATCH", BASE, 405, "METHOD_NOT_ALLOWED"),
    ]:
        reply = http.request(method, path)
        assert (reply.status_code, reply.json()["error_code"]) == (status, code), path


def test_update_during_an_update_conflicts(http):
    http.post(BASE, json=body())
    reply = http.put(f"{BASE}/iris/config", json={"served_entities": [entity("n")]})
    assert (reply.status_code, reply.json()["error_code"]) == (409, "RESOURCE_CONFLICT")


@pytest.mark.parametrize("method", ["PUT", "POST"])
def test_stop_and_start(api, http, method):
    http.post(BASE, json=body())
    api.promote("iris")
    stopped = http.request(method, f"{BASE}/iris/config/stop").json()
    assert (stopped["stopped"], stopped["state"]["ready"]) == (True, "NOT_READY")
    assert http.request(method, f"{BASE}/iris/config/stop").json()["error_code"] == "INVALID_STATE"
    assert http.request(method, f"{BASE}/iris/config/start").json()["pending_config"]["config_version"] == 2


def test_tags_logs_and_events(http):
    http.post(BASE, json=body())
    changed = http.patch(f"{BASE}/iris/tags", json={"add_tags": [{"key": "a"}, {"key": "b", "value": "c"}]})
    assert changed.json() == {"tags": [{"key": "a", "value": ""}, {"key": "b", "value": "c"}]}
    assert http.patch(f"{BASE}/iris/tags", json={"delete_tags": ["a"]}).json() == {"tags": [{"key": "b", "value": "c"}]}
    assert http.get(f"{BASE}/iris/served-models/m/logs").json() == {"logs": ""}
    assert http.get(f"{BASE}/iris/served-models/x/logs").status_code == 404
    (event,) = http.get(f"{BASE}/iris/events").json()["events"]
    assert (event["kind"], event["message"]) == ("endpoint_created", "Created by ada.")


def test_tokens_belong_to_their_maker(http):
    made = http.post("/api/2.0/token/create", json={"comment": "c", "lifetime_seconds": 60}).json()
    assert made["token_value"].startswith("sy-")
    info = made["token_info"]
    assert info["expiry_time"] == info["creation_time"] + 60_000
    assert http.get("/api/2.0/token/list").json() == {"token_infos": [info]}
    eve = {"x-steelyard-principal": "eve"}
    assert http.get("/api/2.0/token/list", headers=eve).json() == {"token_infos": []}
    deletion = {"token_id": info["token_id"]}
    assert http.post("/api/2.0/token/delete", json=deletion, headers=eve).status_code == 404
    assert http.post("/api/2.0/token/delete", json=deletion).json()["error_code"] == "INVALID_STATE"
    http.post("/api/2.0/token/create", json={})
    assert http.post("/api/2.0/token/delete", json=deletion).json() == {}


def test_tokens_for_others_are_made_listed_and_revoked(http):
    base = "/api/2.0/token-management"
    given = {"application_id": "team-a", "groups": ["research", "research"], "comment": "c"}
    made = http.post(f"{base}/on-behalf-of/tokens", json=given).json()
    assert made["token_value"].startswith("sy-")
    assert http.get("/api/2.0/token/list").json() == {"token_infos": []}  # it is not the maker's
    shown = {**made["token_info"], "created_by_username": "team-a", "groups": ["research"]}
    assert http.get(f"{base}/tokens").json() == {"token_infos": [shown]}
    theirs = {"x-steelyard-principal": "team-a"}
    assert http.get("/api/2.0/token/list", headers=theirs).json() == {"token_infos": [made["token_info"]]}
    http.post("/api/2.0/token/create", json={})
    assert http.delete(f"{base}/tokens/{made['token_info']['token_id']}").json() == {}
    for wrong in ({"application_id": "two words"}, {"application_id": "a", "groups": ["x\ny"]}):
        assert http.post(f"{base}/on-behalf-of/tokens", json=wrong).json()["error_code"] == "INVALID_PARAMETER_VALUE"


def test_rate_limits_are_set_read_and_replaced(http):
    first = {"key": "user", "calls": 10, "renewal_period": "minute"}
    made = http.post(BASE, json=body() | {"ai_gateway": {"rate_limits": [first]}}).json()
    assert made["ai_gateway"] == {"rate_limits": [first]}
    limits = [
        {"calls": 600, "model_units": 90_000},
        {"key": "user_group", "principal": "research", "tokens": 5, "input_tokens": 4, "output_tokens": 3},
        {"key": "service_principal", "principal": "team-a", "calls": 1},
    ]
    whole = {"usage_tracking_config": {"enabled": True}, "guardrails": {"input": {"safety": False}}}
    put = http.put(f"{BASE}/iris/ai-gateway", json={"rate_limits": limits} | whole)
    shown = {"rate_limits": [{"key": "endpoint", **limit, "renewal_period": "minute"} for limit in limits]}
    assert (put.status_code, put.json()) == (200, shown)
    assert http.get(f"{BASE}/iris/ai-gateway").json() == shown
    assert http.get(f"{BASE}/iris").json()["ai_gateway"] == shown
    assert "ada set 3 rate limits." in [event["message"] for event in http.get(f"{BASE}/iris/events").json()["events"]]
    assert http.put(f"{BASE}/iris/ai-gateway", json={}).json() == {"rate_limits": []}
    assert "ai_gateway" not in http.get(f"{BASE}/iris").json()
    assert http.put(f"{BASE}/no/ai-gateway", json={}).status_code == 404


@pytest.mark.parametrize(
    ("gateway", "field"),
    [
        ({"rate_limits": [{"key": "planet", "calls": 1}]}, "rate_limits[0].key"),
        ({"rate_limits": [{"calls": 1}, {"key": "user"}]}, "rate_limits[1]"),
        ({"rate_limits": [{"calls": 0}]}, "rate_limits[0].calls"),
        ({"rate_limits": [{"calls": 1.5}]}, "rate_limits[0].calls"),
        ({"rate_limits": [{"calls": 1, "renewal_period": "hour"}]}, "rate_limits[0].renewal_period"),
        ({"rate_limits": [{"calls": 1, "principal": "a"}]}, "rate_limits[0].principal"),
        ({"rate_limits": [{"key": "user_group", "calls": 1}]}, "rate_limits[0].principal"),
        ({"rate_limits": [{"key": "user", "principal": "a b", "calls": 1}]}, "rate_limits[0].principal"),
        ({"rate_limits": [{"key": "user", "calls": 1}, {"key": "user", "calls": 2, "tokens": 3}]}, "rate_limits[1]"),
        ({"rate_limits": [{"calls": 1}] * 101}, "rate_limits"),
        ({"guardrails": {"input": {"safety": True}}}, "guardrails"),
        ({"guardrails": {"input": {"pii": {"behavior": "NONE"}}, "output": {"invalid_keywords": ["x"]}}}, "guardrails"),
        ({"fallback_config": {"enabled": True}}, "fallback_config"),
        ({"usage_tracking_config": {"enabled": False}}, "usage_tracking_config"),
    ],
)
def test_wrong_limits_are_refused_and_the_field_named(http, gateway, field):
    http.post(BASE, json=body())
    for reply, prefix in (
        (http.put(f"{BASE}/iris/ai-gateway", json=gateway), ""),
        (http.post(BASE, json=body("other") | {"ai_gateway": gateway}), "ai_gateway."),
    ):
        told = reply.json()
        assert (reply.status_code, told["error_code"]) == (400, "INVALID_PARAMETER_VALUE")
        assert told["param"] == prefix + field
        assert told["message"].startswith(prefix + field)
        assert told["message"].count(". ") == 0
    assert http.get(f"{BASE}/iris/ai-gateway").json() == {"rate_limits": []}


def test_first_token_is_told_unless_the_known_one_is_valid(http):
    from hashlib import sha256

    token = http.post("/internal/first-token").json()["token"]
    known = {"known": sha256(token.encode()).hexdigest()}
    assert http.post("/internal/first-token", params=known).json() == {"token": None}
    assert http.post("/internal/first-token", params={"known": "other"}).json()["token"] not in (None, token)


def test_metrics_are_openmetrics(http):
    reply = http.get("/metrics")
    assert reply.headers["content-type"].startswith("application/openmetrics-text")
    assert reply.text.endswith("# EOF\n")
    assert "steelyard_control_replica_starts_total" in reply.text
    http.post(BASE, json=body())
    assert http.get(f"{BASE}/iris/metrics").text == "# EOF\n"


def test_unexpected_errors_tell_no_details(http):
    reply = http.get("/boom", headers={"x-request-id": "r-1"})
    assert reply.status_code == 500
    assert "secret" not in reply.text
    assert reply.headers["x-request-id"] == "r-1"
    assert "r-1" in reply.json()["message"]


def test_internal_routes_are_not_in_the_schema(http):
    schema = http.get("/openapi.json").json()
    assert not [path for path in schema["paths"] if path.startswith("/internal") or path == "/boom"]
    assert "422" not in str(schema["paths"])


def test_routers_that_share_limits_are_told_what_each_may_take(http):
    key = ["iris", 0, "endpoint", "", 100]

    def report(router, number, *uses, joined=True):
        told = {"router": router, "began": 1, "number": number, "joined": joined, "whole": not joined, "uses": uses}
        return http.post("/internal/leases", json=told).json()

    assert report(0, 1, joined=False)["whole"]  # the other may have more than its part
    assert report(1, 1, joined=False)["joined"]
    assert report(0, 2, joined=False) == {"joined": True, "whole": False, "grants": []}
    assert report(0, 3, [key, 0, 50, 50, 50, 5000.0, 1])["grants"] == [[key, 0, 50, 50]]
    ((_, number, share, _),) = report(1, 2)["grants"]
    assert share == 1
    assert report(1, 3, [key, number, share, 0, 0, 0.0, 0])["joined"]
    ((_, number, share, _),) = report(0, 4, [key, 0, 50, 50, 50, 5000.0, 1])["grants"]
    assert (number, share) == (1, 99)
    refused = http.post("/internal/leases", content=b'{"router": "x"}')
    assert (refused.status_code, refused.json()["error_code"]) == (400, "BAD_REQUEST")


def test_usage_is_told_by_the_hour_and_in_total_also_of_a_deleted_endpoint(http):
    hour_ms = int(time.time() * 1000) // 3_600_000 * 3_600_000
    rows = [
        [hour_ms, "iris", "m", "ada", 2, 3, 10, 4, 5, 0, 2500],
        [hour_ms - 3_600_000, "iris", "m", "ada", 1, 0, 0, 0, 0, 0, 1],
    ]
    for _ in range(2):  # sent again
        assert http.post("/internal/usage", json={"source": "s", "number": 1, "rows": rows}).status_code == 200
    window = {"start_time": hour_ms - 3_600_000, "end_time": hour_ms + 1}
    told = http.get(f"{BASE}/iris/usage", params=window).json()
    assert told["endpoint_name"] == "iris"
    assert [(item["start_time"], item["requests"]) for item in told["usage"]] == [
        (hour_ms - 3_600_000, 1),
        (hour_ms, 2),
    ]
    (item,) = http.get(f"{BASE}/iris/usage", params=window | {"by": "total", "principal": "ada"}).json()["usage"]
    assert item == {
        "served_entity_name": "m", "principal": "ada", "requests": 3, "rows": 3, "input_tokens": 10,
        "cached_tokens": 4, "output_tokens": 5, "image_tokens": 0, "model_units": 2.501,
    }  # fmt: skip
    assert http.get(f"{BASE}/iris/usage").json()["usage"]
    http.post(BASE, json=body("new"))
    assert http.get(f"{BASE}/new/usage").json()["usage"] == []
    assert http.get(f"{BASE}/none/usage").status_code == 404
    for wrong in ({"start_time": 5, "end_time": 4}, {"by": "minute"}, {"end_time": -1}):
        assert http.get(f"{BASE}/iris/usage", params=wrong).status_code == 400
    assert http.post("/internal/usage", json={"source": 1}).status_code == 400
