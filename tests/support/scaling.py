"""An autoscaler and a fleet on virtual time: the decisions, the replicas and what became of the requests."""

import itertools
from dataclasses import dataclass, field
from random import Random

from steelyard.policy.demand_window import Sample
from steelyard.policy.horizontal import DECIDE_EVERY_S, Decision, Horizontal
from steelyard.simulate.fleet import Fleet, ReplicaModel


def poisson(rng, mean):
    return max(0, round(rng.gauss(mean, mean**0.5))) if mean else 0


@dataclass
class Run:
    horizontal: Horizontal
    fleet: Fleet
    decisions: list[Decision] = field(default_factory=list)
    wanted: list[int] = field(default_factory=list)  # each second
    rejected: float = 0.0
    worst_wait_s: float = 0.0

    def turns(self, within_s=600.0):
        """The most changes of direction within any such time."""
        at, direction, found = 0, 0, []
        for second, (before, after) in enumerate(zip(self.wanted, self.wanted[1:], strict=False)):
            now = (after > before) - (after < before)
            if now and direction and now != direction:
                found.append(second)
            direction = now or direction
        most = 0
        for at in found:
            most = max(most, sum(1 for other in found if at <= other < at + within_s))
        return most

    def changes(self, since_s=0):
        wanted = self.wanted[since_s:]
        return sum(1 for before, after in itertools.pairwise(wanted) if before != after)


def run(
    rate,
    seconds,
    *,
    limits,
    replicas=1,
    concurrency=10.0,
    service_s=1.0,
    cold_s=10.0,
    noise=True,
    flow=True,
    seed=1,
    sample=lambda made, rng: made,
    between=None,
):
    """`rate(second)` requests a second. `sample` may change or swallow (None) what is reported."""
    rng = Random(seed)
    model = ReplicaModel(concurrency, ((1.0, service_s), (concurrency, service_s)), cold_s, 0.0)
    fleet = Fleet(model, replicas, Random(seed), queue_limit=1e9, deadline_s=1e9)
    this = Run(Horizontal(limits, replicas=replicas), fleet)
    for second in range(seconds):
        mean = rate(second)
        arrivals = poisson(rng, mean) if noise else mean
        done = fleet.step(arrivals)
        this.rejected += done.rejected
        this.worst_wait_s = max([this.worst_wait_s, *(wait for _, wait in done.waits)])
        made = Sample(
            at_s=fleet.now_s,
            demand=fleet.running + fleet.queued,
            ready=fleet.ready,
            starting=fleet.starting,
            queued=fleet.queued,
            arrived_per_s=float(arrivals) if flow else None,
            service_s=fleet.service_s if flow and done.served else None,
        )
        reported = sample(made, rng)
        if reported is not None:
            this.horizontal.observe(reported)
        if between is not None:
            between(this, second)
        if second % DECIDE_EVERY_S == DECIDE_EVERY_S - 1:
            decision = this.horizontal.decide(fleet.now_s, concurrency, cold_s)
            this.decisions.append(decision)
            fleet.order(decision.replicas)
        this.wanted.append(this.horizontal.replicas)
    return this
