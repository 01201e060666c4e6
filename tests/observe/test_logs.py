import json
import subprocess
import sys

import pytest

from steelyard.observe.logs import configure_logs


def test_a_log_line_is_json_with_the_process_and_what_was_bound():
    code = (
        "from steelyard.observe.logs import configure_logs, get_logger\n"
        "configure_logs('router-0')\n"
        "get_logger(endpoint='iris').info('replica_ready', replica='iris-1')\n"
        "get_logger().debug('hidden')\n"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    (line,) = run.stderr.splitlines()
    record = json.loads(line)
    assert record["event"] == "replica_ready"
    assert (record["process"], record["endpoint"], record["replica"]) == ("router-0", "iris", "iris-1")


def test_an_unknown_level_is_refused_by_name():
    with pytest.raises(ValueError, match="loud"):
        configure_logs("router-0", "loud")


def test_a_logged_exception_tells_where_and_not_what_the_variables_held():
    code = (
        "from steelyard.observe.logs import configure_logs, get_logger\n"
        "configure_logs('router-0')\n"
        "def check(token):\n"
        "    raise KeyError('no such thing')\n"
        "try:\n"
        "    check('hush' * 2)\n"
        "except KeyError:\n"
        "    get_logger().exception('check_failed')\n"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    (line,) = run.stderr.splitlines()
    (fault,) = json.loads(line)["exception"]
    assert (fault["exc_type"], fault["frames"][-1]["name"]) == ("KeyError", "check")
    assert "hushhush" not in line
