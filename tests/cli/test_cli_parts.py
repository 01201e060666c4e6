"""The pure parts of the command line."""

import stat

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.cli.client import _events
from steelyard.cli.connection import Connection, is_loopback, load, save
from steelyard.cli.deploy import absolute
from steelyard.cli.failures import CliError
from steelyard.cli.logs import new_part
from steelyard.cli.query import chat_text, streamed_text
from steelyard.cli.view import doing_of, endpoints_table, failure_of, outcome_of


def endpoint(ready: str, update: str, **more) -> dict:
    return {"name": "x", "state": {"ready": ready, "config_update": update}, **more}


@pytest.mark.parametrize(
    ("ready", "update", "outcome"),
    [
        ("READY", "NOT_UPDATING", "ready"),
        ("READY", "IN_PROGRESS", "working"),
        ("NOT_READY", "NOT_UPDATING", "working"),
        ("NOT_READY", "UPDATE_FAILED", "failed"),
        ("READY", "UPDATE_FAILED", "failed"),
    ],
)
def test_outcome_of_a_deployment(ready, update, outcome):
    assert outcome_of(endpoint(ready, update)) == outcome


def test_the_reason_of_a_failure_is_the_platforms_own():
    entity = {"name": "m", "state": {"deployment": "DEPLOYMENT_FAILED", "deployment_state_message": "no such file"}}
    assert (
        failure_of(endpoint("NOT_READY", "UPDATE_FAILED", pending_config={"served_entities": [entity]}))
        == "no such file"
    )
    assert failure_of(endpoint("NOT_READY", "UPDATE_FAILED")) == "it gave no reason"


def test_a_deployment_never_seems_to_start_again():
    def told(deployment: str, message: str = "") -> str:
        state = {"deployment": f"DEPLOYMENT_{deployment}", "deployment_state_message": message}
        return doing_of(endpoint("NOT_READY", "IN_PROGRESS", pending_config={"served_entities": [{"state": state}]}))

    assert told("CREATING", "Starting.") == "starting"
    assert told("CREATING", "loading weights") == "loading weights"
    assert told("READY") == "ready, going live", "its routers have still to take it up"
    assert told("READY", "1 of 3 replicas are ready.") == "1 of 3 replicas are ready"


def test_an_endpoint_of_an_unknown_shape_still_has_a_row():
    assert endpoints_table([{"name": "x"}, endpoint("READY", "NOT_UPDATING", config={})]).row_count == 2


def test_paths_are_made_absolute_and_schemes_are_left_alone(tmp_path, monkeypatch):
    (tmp_path / "model").mkdir()
    monkeypatch.chdir(tmp_path)
    assert absolute("model", must_exist=True) == str(tmp_path / "model")
    assert absolute(f"file://{tmp_path}/model", must_exist=True) == str(tmp_path / "model")
    assert absolute("models:/iris/3", must_exist=True) == "models:/iris/3"
    assert absolute("runs:/abc/model", must_exist=True) == "runs:/abc/model"
    assert absolute("elsewhere", must_exist=False) == str(tmp_path / "elsewhere")
    with pytest.raises(CliError):
        absolute("elsewhere", must_exist=True)


def test_the_client_file_is_private_and_read_back(tmp_path):
    path = tmp_path / "home" / "client.json"
    save(Connection("http://127.0.0.1:1", "secret"), path)
    save(Connection("http://127.0.0.1:2", "secret"), path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert load(path) == Connection("http://127.0.0.1:2", "secret")
    assert [entry.name for entry in path.parent.iterdir()] == ["client.json"]
    assert load(tmp_path / "none") is None


def test_loopback_is_told_from_the_rest():
    assert all(map(is_loopback, ["127.0.0.1", "127.1.2.3", "localhost", "::1"]))
    assert not any(map(is_loopback, ["0.0.0.0", "::", "10.0.0.1", "example.org", ""]))


@given(
    st.lists(st.text(alphabet="ab", max_size=3), max_size=8),
    st.integers(0, 8),
    st.lists(st.text(max_size=3), max_size=4),
)
def test_following_a_log_shows_each_new_line_once(before, cut, added):
    numbered = [f"{index} {line}\n" for index, line in enumerate(before)]
    fresh = [f"new {index} {line!r}\n" for index, line in enumerate(added)]
    old, new = "".join(numbered), "".join([*numbered[cut:], *fresh])
    assert new_part(old, new) == "".join(fresh)


def test_a_stream_that_ends_without_done_or_with_an_error_is_an_error():
    assert list(_events(iter(["data: {}", "", "data: [DONE]", "data: never"]))) == ["{}"]
    with pytest.raises(CliError, match="broke off"):
        list(_events(iter(["data: {}"])))
    with pytest.raises(CliError, match="the replica died"):
        list(_events(iter(['data: {"error_code": "REPLICA_FAILED", "message": "the replica died"}'])))


def test_the_text_of_answers_is_found_in_every_form():
    assert chat_text({"choices": [{"message": {"content": "hi"}}]}) == "hi"
    assert chat_text({"predictions": [1]}) is None
    assert streamed_text('{"choices": [{"delta": {"content": "a"}}]}') == "a"
    assert streamed_text('{"choices": [{"text": "b"}]}') == "b"
    assert streamed_text('{"choices": []}') == ""
    assert streamed_text("other") == "other\n"
