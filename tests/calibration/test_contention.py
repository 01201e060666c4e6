"""How long a replica worked, from the counters of threads: other load on the machine is not its cost."""

import os
import subprocess
import sys
import time

import pytest

from steelyard.calibration.contention import Contention, Moment, worked_s


def window(replica, generator=(0.0, 0.0), length_s=10.0):
    """Threads as (process, seconds run, seconds waited); the generator's likewise."""
    spent = {
        (process, place): (int(ran * 1e9), int(waited * 1e9)) for place, (process, ran, waited) in enumerate(replica)
    }
    own = {(1, 1): (int(generator[0] * 1e9), int(generator[1] * 1e9))}
    return worked_s(Moment({}, {(1, 1): (0, 0)}), Moment(spent, own), length_s)


@pytest.mark.parametrize(
    ("replica", "generator", "worked"),
    [
        ([(7, 10, 0)], (0, 0), 10),  # nothing else ran
        ([(7, 6, 4)], (0, 0), 6),  # it had no core for four seconds
        ([(7, 4, 0)], (6, 4), 4),  # it slept while the generator was busy: for want of requests
        ([(7, 4, 0)], (1, 0), 9),  # else it slept while the generator did, too: it waits for something of its own
        ([(7, 5, 2), (7, 4, 5)], (0, 0), 5),  # two threads in step: not less than one of them ran
        ([(7, 2, 2), (7, 2, 2)], (0, 0), 6.4),  # else while neither waited
        ([(7, 8, 2), (7, 0.5, 5)], (0, 0), 8),  # a thread that hardly computes holds nothing up
        ([(7, 5, 0), (7, 4, 0)], (9, 1), 9),  # two threads in turns: one sleeps while the other works
        ([(7, 5, 0), (8, 4, 0)], (9, 1), 9),  # and so do processes
        ([(7, 8, 2), (8, 7, 5)], (0, 0), 8),  # nor does another process
        ([], (5, 5), 10),  # nothing is known
    ],
)
def test_time_without_a_core_or_without_requests_is_not_work(replica, generator, worked):
    assert window(replica, generator) == pytest.approx(worked)


def test_it_is_never_nothing_nor_more_than_the_window():
    assert 0 < window([(7, 0.1, 99)]) <= 10
    assert window([(7, 20, 0)]) <= 10


def test_the_counters_of_a_real_process_and_its_children_are_read():
    """A busy process that leads a session, as replicas do."""
    code = "import time; end = time.monotonic() + 60\nwhile time.monotonic() < end: pass"
    with subprocess.Popen([sys.executable, "-c", code], start_new_session=True) as process:
        try:
            contention, began_s = Contention(process.pid), time.monotonic()
            before = contention.now()
            time.sleep(0.5)
            after, length_s = contention.now(), time.monotonic() - began_s
            (ran, waited) = after.replica[process.pid, process.pid]
            (ran_before, waited_before) = before.replica[process.pid, process.pid]
            assert ran > ran_before
            assert (ran - ran_before + waited - waited_before) / 1e9 == pytest.approx(length_s, rel=0.3)
            assert worked_s(before, after, length_s) < length_s * 1.001
            assert (os.getpid(), os.getpid()) in after.generator
        finally:
            process.kill()
    assert worked_s(Contention(None).now(), Contention(None).now(), 3.0) == 3.0
