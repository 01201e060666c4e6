"""The clock by which a proof's effort is bounded: what two processes compute, not how long a busy machine takes."""

import os
import subprocess
import sys
import time

from steelyard.runtimes.work_clock import WorkClock


def _passed_s(clock, act):
    before_ns, began_s = clock(), time.perf_counter()
    act()
    return (clock() - before_ns) / 1e9, time.perf_counter() - began_s


def _compute(cpu_s):
    until_s = time.process_time() + cpu_s
    while time.process_time() < until_s:
        pass


def test_waiting_counts_an_eighth():
    counted_s, wall_s = _passed_s(WorkClock(os.getppid()), lambda: time.sleep(0.4))
    assert 0.05 <= counted_s < 0.7 * wall_s


def test_computing_counts_what_was_computed_however_long_it_took():
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        counted_s, wall_s = _passed_s(WorkClock(other.pid), lambda: _compute(0.2))
        other.communicate(b"\n")
    assert min(0.2, wall_s) <= counted_s + 0.001
    assert counted_s <= max(0.6, wall_s / 8 + 0.01)


def test_the_other_process_counts_too():
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as other:
        counted_s, _ = _passed_s(WorkClock(other.pid), lambda: time.sleep(1.0))
        other.kill()
    assert counted_s >= 0.15


def test_without_that_process_it_is_the_walls_time():
    with subprocess.Popen([sys.executable, "-c", ""]) as gone:
        gone.wait()
    counted_s, wall_s = _passed_s(WorkClock(gone.pid), lambda: time.sleep(0.1))
    assert 0.1 <= counted_s <= wall_s
