"""Arbitrary JSON to every dialect of the running platform: documented statuses only, nothing leaks, nothing stays."""

import json

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from support.ledger import at_rest
from support.waiting import wait_until

DOCUMENTED = {200, 400, 401, 404, 405, 408, 413, 415, 429, 503, 504}
# The whole phrase: a language model may well answer with the word, but not with all of this in three tokens.
TRACE = "Traceback (most recent call last)"

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(-5, 40)
    | st.floats(allow_nan=True)
    | st.text(max_size=20)
    | st.sampled_from(["smollm2", "iris", "user", "system", "<|im_end|>", "\x00", "é\u2028"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


ABSENT = object()


def _mutate(whole: dict, name: str | None, value: object) -> dict:
    if name is None:
        return whole
    return {key: item for key, item in (whole | {name: value}).items() if item is not ABSENT}


def likely(**fields) -> st.SearchStrategy:
    """Objects with the dialect's own fields, all sane but at most one, which is absent or arbitrary."""
    names = st.none() | st.sampled_from(sorted(fields))
    return st.builds(_mutate, st.fixed_dictionaries(fields), names, st.just(ABSENT) | JSON)


SAMPLING = {
    "max_tokens": st.integers(1, 3),
    "temperature": st.floats(0, 2),
    "top_p": st.floats(0.1, 1),
    "n": st.integers(1, 2),
    "stream": st.just(True),
    "stop": st.text(min_size=1, max_size=3) | st.lists(st.text(min_size=1, max_size=3), min_size=1, max_size=3),
    "seed": st.integers(0, 2**31),
    "logit_bias": st.dictionaries(st.integers(0, 49000).map(str), st.floats(-100, 100), max_size=3),
    "stream_options": st.fixed_dictionaries({"include_usage": st.booleans()}),
}
ROLE = st.sampled_from(["user", "system", "assistant"])
MESSAGE = st.fixed_dictionaries({"role": ROLE, "content": st.text(max_size=20)})
ODD_MESSAGE = likely(role=ROLE, content=st.text(max_size=20))
CHAT = likely(model=st.just("smollm2"), messages=st.lists(MESSAGE, min_size=1, max_size=3), **SAMPLING) | likely(
    model=st.just("smollm2"), messages=st.lists(ODD_MESSAGE, min_size=1, max_size=3)
)
COMPLETION = likely(model=st.just("smollm2"), prompt=st.text(max_size=20), **SAMPLING)
ROW = st.lists(st.floats(-10, 10), min_size=4, max_size=4)
COLUMNS = ["sepal length (cm)", "sepal width (cm)", "petal length (cm)", "petal width (cm)"]
SPLIT = likely(columns=st.just(COLUMNS), data=st.lists(ROW, max_size=2))
INVOCATION = st.one_of(
    likely(dataframe_split=SPLIT),
    likely(dataframe_records=st.lists(st.fixed_dictionaries({c: st.floats(-9, 9) for c in COLUMNS}), max_size=2)),
    likely(inputs=st.lists(ROW, max_size=2)),
    likely(instances=st.lists(ROW, max_size=2), params=st.just({})),
    likely(inputs=st.fixed_dictionaries({c: st.lists(st.floats(-9, 9), min_size=2, max_size=2) for c in COLUMNS})),
)
ENDPOINT = likely(
    name=st.just("fuzzed"),
    config=likely(
        served_entities=st.tuples(likely(name=st.just("m"), entity_name=st.just("/no/such/path"))),
        traffic_config=likely(
            routes=st.tuples(likely(served_model_name=st.just("m"), traffic_percentage=st.sampled_from([100, 100, 7])))
        ),
    ),
)

SANE = {
    "/serving-endpoints/iris/invocations": INVOCATION,
    "/serving-endpoints/smollm2/invocations": CHAT | COMPLETION,
    "/v1/chat/completions": CHAT,
    "/v1/completions": COMPLETION,
    "/serving-endpoints/chat/completions": CHAT,
    "/api/2.0/serving-endpoints": ENDPOINT,
}
DIALECTS = [*SANE, "/v1/embeddings", "/serving-endpoints/breast-cancer/invocations"]


@pytest.fixture(scope="module")
def http(platform):
    headers = {"authorization": f"Bearer {platform.token}", "content-type": "application/json"}
    headers["x-request-timeout-ms"] = "2000"  # no limit of tokens is a legal wish, which would take minutes
    with httpx.Client(base_url=platform.url, headers=headers, timeout=120) as client:
        yield client
        client.delete("/api/2.0/serving-endpoints/fuzzed")


def check_replies(http: httpx.Client, path: str, values: st.SearchStrategy) -> set[int]:
    """Send 60 values; return the statuses that came back."""
    statuses = set()

    @settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
    @given(values)
    def check(value):
        if isinstance(value, dict) and path != "/api/2.0/serving-endpoints":
            value.setdefault("max_tokens", 2)
        reply = http.post(path, content=json.dumps(value).encode())
        assert reply.status_code in DOCUMENTED, (value, reply.text)
        assert TRACE not in reply.text
        assert reply.headers["x-request-id"]
        if reply.status_code != 200:
            assert 'File "' not in reply.text
            error = reply.json()
            assert error["message"]
            assert error["error_code"]
        statuses.add(reply.status_code)

    check()
    return statuses


@pytest.mark.parametrize("path", DIALECTS)
def test_arbitrary_json_gets_a_documented_status_and_one_sentence(platform, http, path):
    check_replies(http, path, JSON)
    wait_until(lambda: at_rest(platform), timeout_s=10)


@pytest.mark.parametrize("path", SANE)
def test_nearly_right_json_gets_an_answer_or_one_sentence(platform, http, path):
    statuses = check_replies(http, path, SANE[path])
    assert {200, 400} <= statuses, "the inputs no longer reach the code behind the checks"
    wait_until(lambda: at_rest(platform), timeout_s=10)


@pytest.mark.parametrize("path", sorted(DIALECTS))
@pytest.mark.parametrize(
    "body", [b"", b"{", b"\xff\xfe", b"[" * 20_000, b'{"a": ' + b"9" * 5000 + b"}", b'{"inputs": [NaN]}', b"null"]
)
def test_broken_json_is_the_clients_fault_everywhere(http, path, body):
    reply = http.post(path, content=body)
    assert reply.status_code in {400, 415}, reply.text
    assert TRACE not in reply.text
