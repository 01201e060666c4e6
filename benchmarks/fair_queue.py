"""What a fair queue costs: one join and one next, beside `collections.deque`, by length and number of tenants.

The queue holds so many requests, of so many tenants in turn; each step lets one more wait and takes the next. The deque
does the same with the bare items: it is the floor, first come first served, without bounds, classes or tenants. A
figure is the best of all rounds, in time of the processor. Also: one that leaves from the middle and comes again, and
one before which another must give way because the queue is full.

    python benchmarks/fair_queue.py [--rounds 5] [--steps 20000] [--json]
"""

from __future__ import annotations

import argparse
import json
import platform
import time
from collections import deque
from collections.abc import Callable

from steelyard.policy import fair_share
from steelyard.policy.fair_queue import FairQueue
from steelyard.policy.waiting import Bounds, Place, Priority

SHAPES = [(1, 1), (100, 1), (100, 10), (1000, 1), (1000, 100), (10_000, 1000)]  # waiting, tenants
ROOMY = Bounds(requests=10**9, mmu=10**15, body_bytes=10**15)
INTERACTIVE, BATCH = int(Priority.INTERACTIVE), int(Priority.BATCH)


def main() -> None:
    arguments = _arguments()
    figures: dict[str, dict[str, float]] = {}
    print(f"{'µs':28}{'join+next':>10}{'deque':>8}{'ratio':>8}{'leave':>8}{'give way':>10}")
    for waiting, tenants in SHAPES:
        ways = (_join_and_next, _deque, _leave, _give_way)
        best = [min(way(waiting, tenants, arguments.steps) for _ in range(arguments.rounds)) for way in ways]
        name = f"{waiting} waiting, {tenants} tenants"
        figures[name] = {
            "join_next_us": best[0],
            "deque_us": best[1],
            "ratio": best[0] / best[1],
            "leave_us": best[2],
            "give_way_us": best[3],
        }
        print(f"{name:28}{best[0]:10.2f}{best[1]:8.3f}{best[0] / best[1]:7.0f}×{best[2]:8.2f}{best[3]:10.2f}")
    if arguments.json:
        compiled = not fair_share.__file__.endswith(".py")
        print(json.dumps({"figures": figures, "compiled": compiled, "python": platform.python_version()}))


def _filled(bounds: Bounds, waiting: int, tenants: int, priority: int) -> tuple[FairQueue[int], list[Place[int]]]:
    queue: FairQueue[int] = FairQueue(bounds)
    places = [Place(number, f"tenant {number % tenants}", priority, 1000) for number in range(waiting)]
    for place in places:
        queue.join(place)
    return queue, places


def _timed(steps: int, act: Callable[[], None]) -> float:
    begin_s = time.process_time()
    act()
    return (time.process_time() - begin_s) / steps * 1e6


def _join_and_next(waiting: int, tenants: int, steps: int) -> float:
    queue, _ = _filled(ROOMY, waiting, tenants, INTERACTIVE)
    names = [f"tenant {number % tenants}" for number in range(steps)]

    def act() -> None:
        for number, name in enumerate(names):
            queue.offer(Place(number, name, INTERACTIVE, 1000))
            queue.settle(queue.next(), 1000)

    return _timed(steps, act)


def _deque(waiting: int, tenants: int, steps: int) -> float:
    queue = deque(range(waiting))
    names = [f"tenant {number % tenants}" for number in range(steps)]

    def act() -> None:
        for number, _ in enumerate(names):
            queue.append(number)
            queue.popleft()

    return _timed(steps, act)


def _leave(waiting: int, tenants: int, steps: int) -> float:
    """One from the middle leaves, and comes again at the end."""
    queue, places = _filled(ROOMY, waiting, tenants, INTERACTIVE)
    middle = len(places) // 2

    def act() -> None:
        for number in range(steps):
            place = places[(middle + number) % len(places)]
            queue.leave(place)
            queue.join(place)

    return _timed(steps, act)


def _give_way(waiting: int, tenants: int, steps: int) -> float:
    """The queue is full of batch requests: for each interactive one that comes one of them gives way, and the next
    to go makes room for another."""
    queue, _ = _filled(Bounds(waiting, 10**15, 10**15), waiting, tenants, BATCH)

    def act() -> None:
        for number in range(steps):
            queue.offer(Place(number, "one more", INTERACTIVE, 1000))
            queue.settle(queue.next(), 1000)
            queue.offer(Place(number, f"tenant {number % tenants}", BATCH, 1000))

    return _timed(steps, act)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    main()
