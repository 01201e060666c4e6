"""The command line against the running platform, as a user types it."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from steelyard.samples import BREAST_CANCER, IRIS, SMOLLM2
from support.models import save_iris_classifier, save_python_model
from support.platform import Platform
from support.waiting import wait_until


@pytest.fixture(scope="module")
def steelyard(platform):
    """Runs the real command with the platform's home, from which it knows URL and token."""

    def run(*args: str, stdin: str = "", timeout_s: float = 120) -> tuple[int, str, str]:
        clean = {name: value for name, value in os.environ.items() if not name.startswith("STEELYARD_")}
        done = subprocess.run(
            [sys.executable, "-m", "steelyard.cli.main", *args],
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
            timeout=timeout_s,
            env={**clean, "STEELYARD_HOME": str(platform.home)},
        )
        return done.returncode, done.stdout, done.stderr

    return run


@pytest.fixture(scope="module")
def iris_model(tmp_path_factory):
    return save_iris_classifier(tmp_path_factory.mktemp("cli-models") / "iris")


def complaint(result: tuple[int, str, str]) -> str:
    code, _, stderr = result
    assert code == 1, result
    assert [line.split(":")[0] for line in stderr.splitlines()] == ["error", "hint"], stderr
    return stderr


def test_usage_tells_who_asked_for_how_much(steelyard):
    def rows() -> int:
        code, out, err = steelyard("usage", "iris", "--json")
        assert code == 0, err
        return sum(item["rows"] for item in map(json.loads, out.splitlines()) if item["principal"] == "admin")

    before = rows()
    assert steelyard("query", IRIS.name, json.dumps(IRIS.request))[0] == 0
    wait_until(lambda: rows() > before, 60)
    code, out, _ = steelyard("usage", "--by-hour")
    assert code == 0
    assert re.search(r"^iris +\S+ +admin +\d{4}-\d\d-\d\d \d\d:00 +\d+ +\d+ ", out, re.MULTILINE), out


def test_calibrate_measures_what_requests_cost_and_keeps_it(steelyard, platform, tmp_path):
    picture = tmp_path / "map.png"
    code, out, err = steelyard("calibrate", "iris", "--budget", "6", "--png", str(picture))
    assert code == 0, err
    assert re.search(r"1,000 rows +[\d.]+ +[\d.]+ (ms|µs)", out), out
    assert "held out" in out
    assert picture.read_bytes().startswith(b"\x89PNG")
    code, out, _ = steelyard("calibrate", "iris", "--show", "--json")
    result = json.loads(out)
    assert (code, result["endpoint"], result["runtime"]) == (0, "iris", "linear")
    assert result["coefficients"]["row"] > 0
    assert len(list((platform.home / "calibrations").glob("iris.*.json"))) == 1


def test_calibrate_says_what_is_wrong(steelyard):
    assert "nothing-here" in complaint(steelyard("calibrate", "nothing-here"))
    assert "no served entity" in complaint(steelyard("calibrate", "iris", "--entity", "other"))
    assert "has been calibrated" in complaint(steelyard("calibrate", "breast-cancer", "--show"))


def test_up_prints_the_table_and_the_token(platform):
    for sample in (IRIS, BREAST_CANCER, SMOLLM2):
        assert re.search(rf"^{sample.name} +READY +NOT_UPDATING", platform.output, re.MULTILINE), platform.output
    assert f"token: {platform.token}" in platform.output
    assert (platform.home / "client.json").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("title", "answer"), [("curl", r'"predictions": ?\[0, ?2\]'), ("openai", r"\w{3}"), ("mlflow", r"0\.9\d")]
)
def test_each_printed_request_works_when_pasted(platform, title, answer):
    text = platform.output.split(f"\n# {title}\n", 1)[1].split("\n\n", 1)[0]
    done = subprocess.run(["bash", "-c", text], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    assert re.search(answer, done.stdout), done.stdout


def test_endpoints_lists_the_samples(steelyard):
    code, stdout, _ = steelyard("endpoints")
    assert code == 0
    assert stdout.splitlines()[0].split() == ["NAME", "READY", "UPDATE", "ENTITY", "RUNTIME", "REPLICAS", "TRAFFIC"]
    rows = {line.split()[0]: line for line in stdout.splitlines()[1:]}
    assert "linear" in rows[IRIS.name]
    assert "llm" in rows[SMOLLM2.name]
    assert "1/1" in rows[IRIS.name]


def test_query_takes_an_argument_a_file_and_a_pipe(steelyard, tmp_path):
    body = json.dumps(IRIS.request)
    (tmp_path / "body.json").write_text(body)
    for result in (
        steelyard("query", IRIS.name, body),
        steelyard("query", IRIS.name, f"@{tmp_path}/body.json"),
        steelyard("query", IRIS.name, "-", stdin=body),
    ):
        assert result[0] == 0, result
        assert json.loads(result[1])["predictions"] == [0, 2]


def test_chat_streams_the_text_that_it_gives_whole(steelyard):
    request = json.dumps({**SMOLLM2.request, "temperature": 0, "max_tokens": 16})
    whole = json.loads(steelyard("query", SMOLLM2.name, request)[1])["choices"][0]["message"]["content"]
    code, streamed, _ = steelyard("query", SMOLLM2.name, request, "--stream")
    assert code == 0
    assert streamed.rstrip("\n") == whole.rstrip("\n")
    assert steelyard("query", SMOLLM2.name, "--chat", "Say hi.", "--max-tokens", "8")[1].strip()


def test_the_whole_life_of_an_endpoint(steelyard, iris_model, tmp_path):
    code, stdout, stderr = steelyard("deploy", "cli-life", iris_model.uri, "--env", "COLOUR=blue")
    assert (code, stderr) == (0, ""), stdout
    assert stdout.splitlines()[-1] == "cli-life: ready"
    body = json.dumps({"dataframe_split": iris_model.split})
    assert json.loads(steelyard("query", "cli-life", body)[1])["predictions"] == iris_model.predictions

    broken = save_python_model(
        tmp_path / "broken",
        "class Model(PythonModel):\n    def load_context(self, context):\n"
        "        raise RuntimeError('the weights file is missing')\n"
        "    def predict(self, context, model_input, params=None):\n        return [0]",
    )
    failed = steelyard("deploy", "cli-life", broken)
    assert "the weights file is missing" in complaint(failed)
    assert "The version before still serves." in failed[2]
    assert "  | " in failed[1]
    assert json.loads(steelyard("query", "cli-life", body)[1])["predictions"] == iris_model.predictions

    assert steelyard("deploy", "cli-life", iris_model.uri)[0] == 0
    events = steelyard("events", "cli-life")[1]
    assert len(events.splitlines()) >= 3
    assert "the weights file is missing" in events
    assert steelyard("logs", "cli-life")[0] == 0

    assert steelyard("stop", "cli-life")[0] == 0
    assert "stopped" in complaint(steelyard("query", "cli-life", body))
    assert steelyard("start", "cli-life")[0] == 0
    assert json.loads(steelyard("query", "cli-life", body)[1])["predictions"] == iris_model.predictions

    assert steelyard("delete", "cli-life")[0] == 2, "nobody confirmed"
    assert steelyard("delete", "cli-life", "--yes")[0] == 0
    assert "cli-life" not in steelyard("endpoints")[1]


def test_unknown_endpoints_and_entities_are_named(steelyard):
    for command in (["query", "nobody", "{}"], ["logs", "nobody"], ["events", "nobody"], ["delete", "nobody", "--yes"]):
        assert "nobody" in complaint(steelyard(*command))
    assert "no served entity 'none'" in complaint(steelyard("logs", IRIS.name, "--entity", "none"))


def test_a_wrong_input_is_named_by_the_platform(steelyard):
    assert "dataframe_split" in complaint(steelyard("query", IRIS.name, "{}"))


def test_a_bad_token_is_refused_with_a_hint(steelyard):
    for command in (["endpoints"], ["query", IRIS.name, "{}"]):
        assert "STEELYARD_TOKEN" in complaint(steelyard(*command, "--token", "wrong"))


def test_doctor_finds_the_platform_and_tells_a_bad_token(steelyard, platform):
    code, stdout, _ = steelyard("doctor")
    assert code == 0, stdout
    assert f"answers at {platform.url}" in stdout
    assert "valid; " in stdout
    code, stdout, stderr = steelyard("doctor", "--token", "wrong")
    assert code == 1
    assert "fail  token" in stdout
    assert stderr == "error: 1 of 12 checks failed.\n"


def test_a_second_platform_on_the_same_home_is_refused(platform):
    with pytest.raises(AssertionError, match=r"error: .+"):
        Platform().start(platform.home, timeout_s=30)


@pytest.mark.slow
def test_endpoints_come_back_and_the_token_stays_after_a_restart(tmp_path, iris_model):
    home: Path = tmp_path / "home"
    with Platform().start(home) as first:
        token = first.token
        done = subprocess.run(
            [sys.executable, "-m", "steelyard.cli.main", "deploy", "back", iris_model.uri],
            env={**os.environ, "STEELYARD_HOME": str(home)},
            capture_output=True,
            check=False,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr
    with Platform().start(home) as second:
        assert second.token == token
        assert re.search(r"^back +READY", second.output, re.MULTILINE)


@pytest.mark.slow
def test_no_auth_on_loopback_needs_no_token(tmp_path):
    import httpx

    with Platform().start(tmp_path / "home", "--no-auth") as platform:
        assert platform.token == ""
        assert "token:" not in platform.output
        assert httpx.get(f"{platform.url}/api/2.0/serving-endpoints", trust_env=False).status_code == 200
