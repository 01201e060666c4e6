"""A real replica of real MLflow models: answers, errors, deadlines, departures, streams."""

import contextlib
import json
import socket
import threading
import time

import pytest

from steelyard.settings import HttpLimits
from support.waiting import wait_until


def prompt(text: str, **more) -> dict:
    return {"prompt": text, **more}


def send_raw(replica, body: dict) -> socket.socket:
    data = json.dumps(body).encode()
    raw = socket.socket(socket.AF_UNIX)
    raw.settimeout(20)
    raw.connect(str(replica.socket))
    raw.sendall(b"POST /invocations HTTP/1.1\r\nhost: r\r\ncontent-length: %d\r\n\r\n%b" % (len(data), data))
    return raw


def at_rest(replica) -> bool:
    load = replica.load()
    return load["in_flight"] == 0 and load["queue_depth"] == 0


def test_predictions_equal_the_models_own(iris_replica, iris_model):
    for body in ({"dataframe_split": iris_model.split}, {"dataframe_records": iris_model.records}):
        reply = iris_replica.http.post("/invocations", json=body, headers={"x-request-id": "r-1"})
        assert reply.status_code == 200
        assert reply.json() == {"predictions": iris_model.predictions}
        assert reply.headers["served-model-name"] == "small-1"
        assert reply.headers["x-request-id"] == "r-1"
        assert reply.headers["endpoint-load-metrics"].startswith("JSON {")
        assert json.loads(reply.headers["endpoint-load-metrics"][5:])["named_metrics"]["queue_depth"] == 0


def test_csv_gives_the_same_predictions(iris_replica, iris_model):
    lines = [",".join(iris_model.split["columns"])] + [",".join(map(str, row)) for row in iris_model.split["data"]]
    reply = iris_replica.http.post("/invocations", content="\n".join(lines), headers={"content-type": "text/csv"})
    assert reply.json() == {"predictions": iris_model.predictions}


def test_a_body_too_large_to_parse_on_the_loop_is_answered_alike(iris_replica, iris_model):
    many = {**iris_model.split, "data": iris_model.split["data"] * 1000}
    reply = iris_replica.http.post("/invocations", json={"dataframe_split": many})
    assert reply.json() == {"predictions": iris_model.predictions * 1000}
    reply = iris_replica.http.post("/invocations", content=b"{" + b" " * 100_000)
    assert reply.status_code == 400


def test_the_router_learns_how_many_rows_a_request_had(iris_replica, iris_model, behaving):
    def rows(replica, **body) -> str | None:
        reply = replica.http.post("/invocations", **body)
        assert reply.status_code == 200
        return reply.headers.get("x-steelyard-usage")

    split = iris_model.split
    assert rows(iris_replica, json={"dataframe_split": split}) == f"rows={len(split['data'])}"
    assert rows(iris_replica, json={"dataframe_split": {**split, "data": split["data"][:1]}}) == "rows=1"
    many = {**split, "data": split["data"] * 1000}
    assert rows(iris_replica, json={"dataframe_split": many}) == f"rows={1000 * len(split['data'])}"
    assert rows(behaving, json=prompt("hello")) == "rows=1"


@pytest.mark.parametrize(
    ("content", "content_type", "status"),
    [
        (b"", "application/json", 400),
        (b"[1]", None, 400),
        (b'{"inputs": [NaN]}', "application/json", 400),
        (b'{"dataframe_records": [{"a": 1}]}', 'Application/JSON; charset="UTF-8"', 400),
        (b"a,b", None, 415),
        (b"{}", "application/json; charset=latin-1", 415),
        (b"{}", "image/png", 415),
    ],
)
def test_client_faults_have_one_sentence_and_their_status(iris_replica, content, content_type, status):
    headers = {"content-type": content_type} if content_type else {}
    reply = iris_replica.http.post("/invocations", content=content, headers=headers)
    assert reply.status_code == status
    assert reply.json()["message"].endswith(".")
    assert "error" not in reply.json()  # databricks-sdk would show it in place of the message


def test_the_platforms_own_paths(iris_replica):
    ready = iris_replica.http.get("/ready").json()
    assert (ready["state"], ready["runtime"], ready["task"]) == ("ready", "linear", None)
    assert iris_replica.http.get("/health").status_code == 200
    assert 'steelyard_replica_requests_total{endpoint="small",served_entity="small-1",status="200"}' in (
        iris_replica.http.get("/metrics").text
    )
    assert iris_replica.http.get("/nowhere").status_code == 404
    assert iris_replica.http.get("/invocations").status_code == 405
    assert iris_replica.load()["last_completion_age_s"] >= 0


def test_it_takes_more_headers_than_the_router_lets_through(iris_replica):
    most = {f"x-{number}": "v" for number in range(HttpLimits().max_headers)}
    assert iris_replica.http.get("/health", headers=most).status_code == 200


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("/v1/chat/completions", "/invocations"),
        ("/v1/completions", "/invocations"),
        ("/v1/embeddings", "/invocations"),
        ("/v1/responses", "not supported"),
    ],
)
def test_openai_paths_of_a_classifier_are_400_and_say_where_to_go(iris_replica, path, says):
    reply = iris_replica.http.post(path, json={"messages": [{"role": "user", "content": "hi"}]})
    assert reply.status_code == 400
    assert says in reply.json()["message"]


def test_unwrapped_bodies_are_answered_unwrapped(behaving):
    reply = behaving.http.post("/invocations", json=prompt("hello", extra=1))
    assert reply.json() == {"echo": {"prompt": "hello", "extra": 1}}
    assert behaving.http.post("/invocations", json=prompt("nan")).json() == [1.0, None]


@pytest.mark.parametrize("word", ["raise", "leave", "set"])
def test_the_models_faults_are_500_without_its_text_and_the_replica_lives(behaving, word):
    reply = behaving.http.post("/invocations", json=prompt(word), headers={"x-request-id": f"fault-{word}"})
    assert reply.status_code == 500
    assert reply.json()["error_code"] == "MODEL_ERROR"
    assert "secret" not in reply.text
    assert behaving.http.post("/invocations", json=prompt("hello")).status_code == 200


def test_the_models_trace_is_in_the_log_under_the_request_id(behaving):
    behaving.http.post("/invocations", json=prompt("raise"), headers={"x-request-id": "find-me"})
    lines = [json.loads(line) for line in behaving.log.read_text().splitlines() if line.startswith("{")]
    line = next(line for line in lines if line.get("request_id") == "find-me")
    assert "secret of the model" in line["trace"]
    assert (line["endpoint"], line["replica"]) == ("small", "r1")


def test_a_stream_sends_each_piece_and_done(behaving):
    with behaving.http.stream("POST", "/invocations", json=prompt("count 3", stream=True)) as reply:
        assert reply.headers["content-type"].startswith("text/event-stream")
        data = [line.removeprefix("data: ") for line in reply.iter_lines() if line]
    assert [json.loads(item) for item in data[:-1]] == [{"number": number} for number in range(3)]
    assert data[-1] == "[DONE]"


def test_a_stream_that_fails_before_its_first_piece_has_a_status(behaving):
    reply = behaving.http.post("/invocations", json=prompt("raise", stream=True))
    assert reply.status_code == 500
    assert reply.json()["error_code"] == "MODEL_ERROR"


def test_a_stream_that_breaks_ends_with_an_error_and_no_done(behaving):
    received = b""
    with send_raw(behaving, prompt("break 5", stream=True)) as raw:
        while chunk := raw.recv(65536):
            received += chunk
    assert b'"number":1' in received
    assert b'data: {"error":{' in received
    assert b'"error_code":"MODEL_ERROR"' in received
    assert b"[DONE]" not in received
    assert not received.endswith(b"0\r\n\r\n")


def test_a_client_that_leaves_a_stream_ends_the_models_work(behaving):
    mark = behaving.folder / "mark"
    with behaving.http.stream("POST", "/invocations", json=prompt("slow 1000", stream=True)) as reply:
        next(reply.iter_lines())
    wait_until(mark.exists, timeout_s=10)
    wait_until(lambda: at_rest(behaving), timeout_s=10)


def run_in_background(replica, body, headers=None):
    replies = []

    def work():
        with replica.client() as client:
            replies.append(client.post("/invocations", json=body, headers=headers))

    thread = threading.Thread(target=work)
    thread.start()
    return thread, replies


def test_a_deadline_that_passes_in_the_queue_is_504_and_the_model_never_sees_it(behaving):
    first, second = behaving.folder / "first", behaving.folder / "second"
    thread, _ = run_in_background(behaving, prompt(f"sleep 1.5 {first}"))
    wait_until(first.exists, timeout_s=10)
    began_s = time.monotonic()
    reply = behaving.http.post(
        "/invocations", json=prompt(f"sleep 0 {second}"), headers={"x-steelyard-deadline-ms": "200"}
    )
    assert reply.status_code == 504
    assert time.monotonic() - began_s < 1
    thread.join()
    wait_until(lambda: at_rest(behaving), timeout_s=10)
    assert not second.exists()
    assert behaving.http.post("/invocations", json=prompt("hello")).status_code == 200


def test_a_deadline_that_passes_at_work_is_504_at_once(behaving):
    began_s = time.monotonic()
    reply = behaving.http.post("/invocations", json=prompt("sleep 1"), headers={"x-steelyard-deadline-ms": "150"})
    assert reply.status_code == 504
    assert time.monotonic() - began_s < 0.9
    wait_until(lambda: at_rest(behaving), timeout_s=10)


@pytest.mark.parametrize(("value", "status"), [("0", 504), ("-5", 504), ("soon", 400), ("nan", 400), ("60000", 200)])
def test_the_deadline_header_is_read(behaving, value, status):
    reply = behaving.http.post("/invocations", json=prompt("hello"), headers={"x-steelyard-deadline-ms": value})
    assert reply.status_code == status


def test_a_client_that_leaves_the_queue_is_never_served(behaving):
    first, second = behaving.folder / "third", behaving.folder / "fourth"
    thread, _ = run_in_background(behaving, prompt(f"sleep 1 {first}"))
    wait_until(first.exists, timeout_s=10)
    with send_raw(behaving, prompt(f"sleep 0 {second}")):
        wait_until(lambda: behaving.load()["queue_depth"] == 1, timeout_s=5)
    wait_until(lambda: behaving.load()["queue_depth"] == 0, timeout_s=0.9)
    thread.join()
    wait_until(lambda: at_rest(behaving), timeout_s=10)
    assert not second.exists()


def test_a_probe_does_not_wait_behind_users(behaving):
    mark = behaving.folder / "fifth"
    thread, _ = run_in_background(behaving, prompt(f"sleep 1.5 {mark}"))
    wait_until(mark.exists, timeout_s=10)
    began_s = time.monotonic()
    reply = behaving.http.post("/invocations", json=prompt("hello"), headers={"x-steelyard-priority": "probe"})
    assert reply.status_code == 200
    assert time.monotonic() - began_s < 1
    assert behaving.http.get("/health").status_code == 200
    thread.join()


def test_a_full_queue_is_429_with_retry_after(behaving):
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(send_raw(behaving, prompt("sleep 2")))]
        wait_until(lambda: behaving.load()["in_flight"] == 1, timeout_s=10)
        sockets += [stack.enter_context(send_raw(behaving, prompt("hello"))) for _ in range(16)]
        wait_until(lambda: behaving.load()["queue_depth"] == 16, timeout_s=5)
        reply = behaving.http.post("/invocations", json=prompt("hello"))
        assert reply.status_code == 429
        assert int(reply.headers["retry-after"]) >= 1
        for raw in sockets:
            assert raw.recv(100).startswith(b"HTTP/1.1 200")
