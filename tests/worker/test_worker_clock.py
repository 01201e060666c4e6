"""What a slot's clock takes for computing and what for waiting."""

import threading
import time

from steelyard.worker.clock import ThreadClock


def spent(work) -> tuple[float, float]:
    clock = ThreadClock()
    before = clock.read()
    work()
    after = clock.read()
    clock.close()
    return after[0] - before[0], after[1] - before[1]


def test_sleeping_is_waiting():
    computed_s, wall_s = spent(lambda: time.sleep(0.2))
    assert wall_s >= 0.2
    assert computed_s < 0.1


def test_a_loop_is_computing_even_on_a_busy_machine():
    computed_s, wall_s = spent(lambda: sum(range(5_000_000)))
    assert computed_s > 0.8 * wall_s


def test_another_threads_work_is_not_counted():
    def wait():
        thread = threading.Thread(target=sum, args=(range(3_000_000),))
        thread.start()
        thread.join()

    computed_s, wall_s = spent(wait)
    assert computed_s < 0.5 * wall_s
