"""The parts of the benchmarks on which their figures depend: the load, the reading of replies, the arithmetic."""

import os
import socket
import sys
import threading
from contextlib import contextmanager

import pytest

from rig.dialects import MLFLOW, PLAIN, V2, http_request, same
from rig.loadgen import ClosedLoop, Exchange, ask
from rig.measure import Measured, Round
from rig.mix import cases
from rig.processes import Pinned, cpu_s, pss_bytes, usage
from rig.replies import whole_reply
from rig.report import figures
from support.waiting import wait_until

REQUEST = http_request("/", {"data": [[1.0]]})
OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"


@contextmanager
def serving(folder, *replies: bytes):
    """A server on a Unix socket that answers the n-th request of each connection with the n-th reply, then the last."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(folder / "s"))
    listener.listen(64)

    def answer(connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as stream:
            for turn in range(10**9):
                if not stream.read(len(REQUEST)):
                    return
                reply = replies[min(turn, len(replies) - 1)]
                if not reply:
                    return
                connection.sendall(reply)

    def accept() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=answer, args=(connection,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    yield f"unix:{folder / 's'}"
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()


def load(address: str, answer: bytes | None):
    return ClosedLoop(address, [Exchange(REQUEST, answer)], 4).run(0, 0.1, lambda: 0.0)


def test_the_load_counts_answers_and_no_error(tmp_path):
    with serving(tmp_path, OK) as address:
        assert ask(address, REQUEST).body == b"ok"
        found = load(address, b"ok")
    assert found.answered > 10
    assert found.errors == 0
    assert 0 < found.p50_ms <= found.p99_ms


@pytest.mark.parametrize(
    ("replies", "answer", "said"),
    [
        ([OK.replace(b"200", b"503")], b"ok", "status 503"),
        ([OK], b"no", "another answer"),
        ([OK, b""], b"ok", "closed"),
        ([b"nonsense\r\n\r\n"], None, "no HTTP/1.1 reply"),
    ],
)
def test_the_load_tells_what_went_wrong(tmp_path, replies, answer, said):
    with serving(tmp_path, *replies) as address:
        found = load(address, answer)
    assert found.errors > 0
    assert said in found.first_error


def test_any_answer_will_do_when_none_is_expected(tmp_path):
    with serving(tmp_path, OK) as address:
        assert load(address, None).errors == 0


@pytest.mark.parametrize(
    ("data", "body"),
    [
        (OK, b"ok"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n1;x=y\r\nc\r\n0\r\n\r\n", b"abc"),
        (b"HTTP/1.1 204 No Content\r\n\r\n", b""),
    ],
)
def test_a_reply_is_whole_at_its_last_byte_and_no_earlier(data, body):
    assert whole_reply(data).body == body
    assert all(whole_reply(data[:length]) is None for length in range(len(data)))


def test_every_dialect_carries_the_rows():
    rows = [[1.5, 2.0], [3.0, 4.0]]
    assert MLFLOW.encode(["a", "b"], rows) == {"dataframe_split": {"columns": ["a", "b"], "data": rows}}
    assert PLAIN.encode(["a", "b"], rows) == {"data": rows}
    assert V2.encode(["a", "b"], rows)["inputs"][0]["data"] == [1.5, 2.0, 3.0, 4.0]
    assert V2.predictions({"outputs": [{"data": [1, 2]}]}) == [1, 2]


def test_predictions_are_the_same_up_to_nine_digits_and_labels_exactly():
    assert same([0.1 + 0.2, 1], [0.3, 1])
    assert not same([0.3001], [0.3])
    assert not same([1], [2])
    assert not same([1], [1, 1])
    assert not same(["a"], [0.5])


def test_a_ratio_is_the_median_of_the_rounds_and_the_lesser_of_the_models():
    def measured(workload: str, server: str, kind: str, *costs_us: float) -> Measured:
        rounds = [Round(100, cost_us, 1e6 / cost_us, 1.0, 1.0, 1.0, 1.0) for cost_us in costs_us]
        return Measured(workload, server, kind, rounds=rounds)

    results = [
        measured("linear", "steelyard", "ours", 50, 60, 50),
        measured("linear", "steelyard replica", "ours", 30, 36, 31),
        measured("linear", "mlflow", "mlflow", 5000, 9000, 4000),
        measured("linear", "litserve", "peer", 1500, 1800, 1500),
        measured("linear", "mlserver native", "peer", 1000, 1200, 1000),
        measured("lightgbm", "steelyard", "ours", 100, 100, 100),
        measured("lightgbm", "mlflow", "mlflow", 12000, 12000, 12000),
        measured("lightgbm", "litserve", "peer"),
    ]
    found = figures(results)
    assert found["ratio_vs_mlflow_linear"] == 100
    assert found["ratio_vs_mlflow"] == 100
    assert found["ratio_vs_best_peer_linear"] == 20
    assert found["ratio_vs_best_peer"] is None, "one of the two models has no peer"
    assert found["best_peer"] == {"linear": "mlserver native"}
    assert found["replica_linear_us"] == 31
    assert found["replica_lightgbm_us"] is None
    assert found["ratio_500_columns_vs_mlflow"] is None


def test_the_mix_adds_up_to_a_thousand_and_frames_its_requests():
    mix = cases("fast", ["a", "b", "c", "d"], "python", ["a", "b", "c", "d"], "token")
    assert sum(case.weight for case in mix) == 1000
    for case in mix:
        head, _, body = case.request.partition(b"\r\n\r\n")
        length = int(head.lower().rpartition(b"content-length: ")[2])
        assert (length == len(body)) == (case.name not in ("oversized", "cut in the middle"))
        assert (case.manner == "ask") == bool(case.statuses)


def test_a_server_is_counted_with_its_children_even_when_they_leave_it(tmp_path):
    child = "import time; end = time.process_time() + 0.2\nwhile time.process_time() < end: pass\ntime.sleep(60)"
    parent = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {child!r}], start_new_session=True)"
    with Pinned([sys.executable, "-c", parent], tmp_path / "log") as server:
        server.process.wait(30)  # the child is nobody's now
        orphan = wait_until(lambda: [pid for pid in server.pids() if pid != server.process.pid], timeout_s=10)
        wait_until(lambda: cpu_s(server.pids()) >= 0.2, timeout_s=30)
        assert os.sched_getaffinity(orphan[0]) == {0}
        assert pss_bytes(orphan) > 100_000
        assert usage(orphan[0]).threads == 1
    wait_until(lambda: usage(orphan[0]) is None or usage(orphan[0]).rss_bytes == 0, timeout_s=10)
