"""Random requests made from the API's own schema: no server error, only documented statuses and shapes."""

import itertools
from typing import cast

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from steelyard.control.api.app import build_app
from steelyard.control.api.parts import Parts
from support.live_api import LiveApi

CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
KNOWN = ["ready", "updating", "failed", "stopped"]
names = itertools.cycle(KNOWN)
BASE = "/api/2.0/serving-endpoints"


@pytest.fixture(scope="module")
def live(tmp_path_factory):
    with LiveApi(tmp_path_factory.mktemp("api")) as api:
        with httpx.Client(base_url=api.url) as http:
            for name in KNOWN:
                entity = {"name": "m", "entity_name": "models:/iris/1"}
                http.post(BASE, json={"name": name, "config": {"served_entities": [entity]}}).raise_for_status()
        api.promote("ready")
        api.promote("stopped")
        api.fail("failed", "m: broken")
        httpx.put(f"{api.url}{BASE}/stopped/config/stop").raise_for_status()
        yield api


schema = schemathesis.openapi.from_dict(build_app(cast(Parts, None)).openapi())


@schema.parametrize()
@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
def test_api_keeps_to_its_schema(case, live):
    case.call_and_validate(base_url=live.url, checks=CHECKS)


@schema.include(path_regex=r"\{name\}").parametrize()
@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
def test_api_keeps_to_its_schema_for_endpoints_that_exist(case, live):
    if case.method.upper() == "DELETE":
        return  # they are needed by the others
    case.path_parameters["name"] = next(names)
    case.call_and_validate(base_url=live.url, checks=CHECKS)
