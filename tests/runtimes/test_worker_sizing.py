"""Real models that compute or wait, and the workers and threads that they get by being observed."""

import os
import subprocess
import sys
import time

import pytest

from steelyard.observe.machine import usable_cores
from support.callers import Callers
from support.models import save_python_model
from support.waiting import wait_until
from support.workers import query, runtime_of

pytestmark = pytest.mark.slow

BUSY = "the machine is too busy to tell what a second process adds"
COMPUTES = """
class Model(PythonModel):
    def predict(self, context, model_input, params=None):
        total = 0
        for number in range(400_000):
            total += number
        return [total]
"""
SLEEPS = """
class Model(PythonModel):
    def predict(self, context, model_input, params=None):
        time.sleep(0.2)
        return [1]
"""


def two_cores_are_free() -> bool:
    """Whether two busy processes at once take about as long as one: else the machine has other things to do."""
    loop = [sys.executable, "-c", "sum(range(15_000_000))"]

    def seconds(count: int) -> float:
        began_s = time.monotonic()
        for process in [subprocess.Popen(loop) for _ in range(count)]:
            process.wait()
        return time.monotonic() - began_s

    return usable_cores() > 1 and seconds(2) < 1.25 * seconds(1)


def test_a_model_that_computes_in_python_gets_a_second_process_and_answers_more(tmp_path):
    runtime = runtime_of(save_python_model(tmp_path / "computes", COMPUTES))
    runtime.load()
    try:
        if not two_cores_are_free():
            pytest.skip(BUSY)
        with Callers(runtime, query({"inputs": [1]}), 8) as callers:
            wait_until(lambda: len(callers.finished_s) >= 40, timeout_s=30)
            one = 20 / (callers.finished_s[39] - callers.finished_s[19])
            ends_s = time.monotonic() + 30
            wait_until(lambda: len(runtime.worker_pids) == 2 or time.monotonic() > ends_s, timeout_s=60)
            before = len(callers.finished_s)
            wait_until(lambda: len(callers.finished_s) >= before + 200, timeout_s=60)
            two = 180 / (callers.finished_s[before + 199] - callers.finished_s[before + 19])
        assert callers.errors == []
        if not two_cores_are_free():
            pytest.skip(BUSY)
        assert len(runtime.worker_pids) == 2
        assert runtime.max_concurrency == usable_cores()
        assert two > 1.6 * one
    finally:
        runtime.close()


def test_a_model_that_sleeps_is_asked_sixteen_times_at_once_in_one_process(tmp_path):
    runtime = runtime_of(save_python_model(tmp_path / "sleeps", SLEEPS))
    runtime.load()
    try:
        began_s = time.monotonic()
        with Callers(runtime, query({"inputs": [1]}), 40) as callers:
            wait_until(lambda: callers.most >= 16, timeout_s=15)
        assert callers.errors == []
        assert time.monotonic() - began_s < 10
        assert len(runtime.worker_pids) == 1
    finally:
        runtime.close()


def test_the_users_bound_holds_and_a_bound_of_one_keeps_one(tmp_path):
    runtime = runtime_of(save_python_model(tmp_path / "sleeps", SLEEPS), max_concurrency=1)
    runtime.load()
    try:
        with Callers(runtime, query({"inputs": [1]}), 8) as callers:
            wait_until(lambda: len(callers.finished_s) >= 25, timeout_s=20)
        assert callers.most == 1
        assert runtime.max_concurrency == 1
        assert os.getpid() not in runtime.worker_pids
    finally:
        runtime.close()
