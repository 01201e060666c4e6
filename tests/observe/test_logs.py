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
