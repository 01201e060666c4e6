"""What a routing decision costs: `ExpectedWait` beside round robin, at 1 to 1,000 replicas, prompts of 64 blocks.

Sessions by key share a system prompt (half of their blocks); 4 requests are in flight per replica, so that each
decision comes with a settled attempt before it, as in a router; settling is timed apart. Times are of the
processor, since other processes may take turns. `--json` ends with one line.

    python benchmarks/routing_decision.py [--replicas 100,1000] [--decisions 4000] [--json]
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections import deque
from random import Random

from steelyard.policy import expected_wait, units
from steelyard.policy.ledger import Ledger
from steelyard.policy.routing import Ask, Candidate, RoundRobin

BLOCKS = 64
BLOCK_TOKENS = 32.0
IN_FLIGHT = 4


def sessions(rng: Random, count: int) -> list[Ask]:
    systems = [tuple(rng.getrandbits(64) for _ in range(BLOCKS // 2)) for _ in range(20)]
    asks = []
    for _ in range(count):
        blocks = rng.choice(systems) + tuple(rng.getrandbits(64) for _ in range(BLOCKS // 2))
        features = units.Features(input_tokens=BLOCKS * BLOCK_TOKENS, output_tokens=rng.expovariate(1 / 200))
        asks.append(Ask(features, units.GUESS, blocks, BLOCK_TOKENS, rng.getrandbits(64)))
    return asks


def measure(policy: str, replicas: int, decisions: int) -> dict[str, float]:
    rng = Random(1)
    ledger = Ledger()
    candidates = [Candidate(ledger.account(f"m-1-{index}"), 64) for index in range(replicas)]
    chooser = expected_wait.ExpectedWait(ledger, rng) if policy == "expected_wait" else RoundRobin(ledger)
    asks = sessions(rng, 3 * replicas + 100)
    running = deque()
    chosen_us, settled_us = [], []
    warm_up = IN_FLIGHT * replicas
    for turn in range(warm_up + decisions):
        ask = rng.choice(asks)
        now_s = turn / 1000
        if len(running) >= warm_up:
            decision, earlier = running.popleft()
            decision.entry.settle(decision.entry.charged_mmu)
            start = time.thread_time()
            chooser.settled(decision, earlier, now_s, decision.cached_tokens)
            settled_us.append(1e6 * (time.thread_time() - start))
        start = time.thread_time()
        decision = chooser.choose(candidates, now_s, ask)
        if turn >= warm_up:
            chosen_us.append(1e6 * (time.thread_time() - start))
        running.append((decision, ask))
    return {
        "mean_us": statistics.fmean(chosen_us),
        "median_us": statistics.median(chosen_us),
        "p99_us": statistics.quantiles(chosen_us, n=100)[98],
        "settle_mean_us": statistics.fmean(settled_us),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--replicas", default="1,4,16,100,1000")
    parser.add_argument("--decisions", type=int, default=4000)
    parser.add_argument("--json", action="store_true", help="end with one line of JSON")
    options = parser.parse_args()
    compiled = not expected_wait.__file__.endswith(".py")
    print(f"{'compiled' if compiled else 'interpreted'}, prompts of {BLOCKS} blocks, microseconds")
    print(f"{'replicas':>8} {'mean':>8} {'median':>8} {'p99':>8} {'settling':>9} {'round robin':>12} {'ratio':>7}")
    results = []
    for replicas in [int(count) for count in options.replicas.split(",")]:
        ours = measure("expected_wait", replicas, options.decisions)
        baseline = measure("round_robin", replicas, options.decisions)
        ratio = ours["mean_us"] / baseline["mean_us"]
        results.append({"replicas": replicas, **ours, "round_robin_us": baseline["mean_us"], "ratio": ratio})
        print(
            f"{replicas:8} {ours['mean_us']:8.1f} {ours['median_us']:8.1f} {ours['p99_us']:8.1f} "
            f"{ours['settle_mean_us']:9.1f} {baseline['mean_us']:12.2f} {ratio:7.1f}"
        )
    if options.json:
        print(json.dumps({"benchmark": "routing_decision", "compiled": compiled, "blocks": BLOCKS, "results": results}))


if __name__ == "__main__":
    main()
