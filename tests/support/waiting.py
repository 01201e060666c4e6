"""Waiting for a condition with a deadline, so that no test sleeps and hopes."""

import time
from collections.abc import Callable
from typing import Any


def wait_until(condition: Callable[[], Any], timeout_s: float, every_s: float = 0.05) -> Any:
    """Call `condition` until it returns something true, and return that; fail after `timeout_s`."""
    deadline = time.monotonic() + timeout_s
    while True:
        result = condition()
        if result:
            return result
        assert time.monotonic() < deadline, f"still not true after {timeout_s} s: {condition}"
        time.sleep(every_s)
