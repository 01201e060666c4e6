"""What a user meets when something is wrong: one line, a hint, the right exit status, never a traceback."""

import json
import os
import subprocess
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread

import pytest

from support.platform import free_port


@pytest.fixture
def steelyard(tmp_path):
    """Runs the real command with a home of its own and returns (exit status, stdout, stderr)."""

    def run(*args: str, env: dict[str, str] | None = None, stdin: str = "") -> tuple[int, str, str]:
        clean = {name: value for name, value in os.environ.items() if not name.startswith("STEELYARD_")}
        done = subprocess.run(
            [sys.executable, "-m", "steelyard.cli.main", *args],
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
            env={**clean, "STEELYARD_HOME": str(tmp_path / "home"), **(env or {})},
        )
        return done.returncode, done.stdout, done.stderr

    return run


def assert_one_line_and_hint(result: tuple[int, str, str], status: int, *words: str) -> None:
    code, _, stderr = result
    lines = stderr.splitlines()
    assert code == status, stderr
    assert len(lines) == 2, stderr
    assert lines[0].startswith("error: ")
    assert lines[1].startswith("hint: ")
    for word in words:
        assert word in stderr


def test_nobody_at_the_url(steelyard):
    url = f"http://127.0.0.1:{free_port()}"
    for command in (["endpoints"], ["query", "x", "{}"], ["logs", "x"], ["events", "x"], ["delete", "x", "--yes"]):
        assert_one_line_and_hint(steelyard(*command, "--url", url), 1, url, "steelyard up")


def test_a_stranger_at_the_url(steelyard):
    class Page(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(404)
            self.end_headers()
            self.wfile.write(b"<html>not here</html>")

        def log_message(self, *_):
            pass

    with HTTPServer(("127.0.0.1", 0), Page) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        result = steelyard("endpoints", "--url", f"http://127.0.0.1:{server.server_port}")
        server.shutdown()
    assert_one_line_and_hint(result, 1, "does not answer like Steelyard", "404")


@pytest.mark.parametrize("url", ["ftp://127.0.0.1", "http://", "http://127.0.0.1:port", "://"])
def test_an_url_that_is_none(steelyard, url):
    assert_one_line_and_hint(steelyard("endpoints", "--url", url), 2, "is not a URL")


def test_a_model_path_that_does_not_exist(steelyard, tmp_path):
    assert_one_line_and_hint(steelyard("deploy", "x", str(tmp_path / "nothing")), 1, "There is no model at")


@pytest.mark.parametrize(
    "arguments",
    [
        ["nonsense"],
        ["deploy", "only-a-name"],
        ["deploy", "x", ".", "--env", "NOEQUALS"],
        ["deploy", "x", ".", "--min-concurrency", "-1"],
        ["query", "x", "{not json"],
        ["query", "x"],
        ["query", "x", "{}", "--chat", "both"],
        ["query", "x", "[1]", "--stream"],
        ["query", "x", "{}", "--temperature", "0"],
        ["up", "--port", "99999"],
        ["up", "--no-auth", "--host", "0.0.0.0"],
    ],
)
def test_a_wrongly_written_command_exits_with_2(steelyard, arguments):
    assert_one_line_and_hint(steelyard(*arguments), 2)


def test_a_body_file_that_does_not_exist(steelyard):
    code, _, stderr = steelyard("query", "x", "@/no/such/file")
    assert (code, stderr) == (1, "error: /no/such/file cannot be read: No such file or directory.\n")


def test_a_bad_environment_variable_is_named(steelyard):
    result = steelyard("endpoints", env={"STEELYARD_PORT": "many"})
    assert_one_line_and_hint(result, 2, "STEELYARD_PORT", "many")


def test_a_port_that_is_taken_is_told_before_anything_starts(steelyard, tmp_path):
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        result = steelyard("up", "--port", str(taken.getsockname()[1]))
    assert_one_line_and_hint(result, 1, "cannot be listened on", "--port")
    assert not (tmp_path / "home").exists()


def test_a_second_start_on_a_home_says_that_a_platform_runs_there(steelyard, tmp_path):
    import fcntl
    import socket

    (tmp_path / "home").mkdir()
    with socket.socket() as taken, (tmp_path / "home" / "supervisor.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        lock.write("4711\n")
        lock.flush()
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        result = steelyard("up", "--port", str(taken.getsockname()[1]))
    assert_one_line_and_hint(result, 1, "runs on", "already (process 4711)", "--home")


def test_a_damaged_client_file_is_named(steelyard, tmp_path):
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "client.json").write_text("{")
    assert_one_line_and_hint(steelyard("endpoints"), 1, "client.json")


def test_the_saved_token_is_not_sent_to_another_url(steelyard, tmp_path):
    seen = []

    class Recorder(BaseHTTPRequestHandler):
        def do_GET(self):
            seen.append(self.headers.get("authorization"))
            body = json.dumps({"endpoints": []}).encode()
            self.send_response(200)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    (tmp_path / "home").mkdir()
    with HTTPServer(("127.0.0.1", 0), Recorder) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}"
        for saved_url in ("http://127.0.0.1:1", url):
            (tmp_path / "home" / "client.json").write_text(json.dumps({"url": saved_url, "token": "secret"}))
            assert steelyard("endpoints", "--url", url)[0] == 0
        server.shutdown()
    assert seen == [None, "Bearer secret"]


def test_help_and_version(steelyard):
    code, stdout, stderr = steelyard("--help")
    assert code == 0
    assert not stderr
    for command in ["up", "deploy", "endpoints", "query", "logs", "events", "stop", "start", "delete", "doctor"]:
        assert f"\n  {command} " in stdout
    assert steelyard()[1] == stdout
    assert steelyard("--version")[1].startswith("steelyard 0.")


def test_help_imports_no_heavy_library():
    code = (
        "import sys; from steelyard.cli.main import run; run(['--help']);"
        "heavy = {'httpx', 'rich', 'mlflow', 'torch', 'numpy', 'fastapi', 'sqlalchemy', 'asyncio'} & set(sys.modules);"
        "assert not heavy, heavy"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr


def test_doctor_reports_this_machine(steelyard):
    code, stdout, _ = steelyard("doctor", "--url", f"http://127.0.0.1:{free_port()}")
    assert code in {0, 1}  # a machine may really lack something
    for name in ["python", "kernel", "processors", "memory", "disk", "sockets", "mlflow", "torch", "platform"]:
        assert f"  {name} " in stdout
