"""Starts contenders, checks their answers and measures them in turns, one model after the other.

Called by `classic.py`. A server whose answers differ from the model's own predictions is not timed; a round with an
error does not count and is tried again.
"""

from __future__ import annotations

import json
import sys
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from rig.contenders import Contender, Model, Target
from rig.dialects import http_request, same
from rig.loadgen import ClosedLoop, Exchange, ask
from rig.processes import cpu_s, pss_bytes
from rig.train import BATCHED

FIRST_ANSWER_S = 300.0  # a loaded machine is slow, and no figure depends on it
WARM_S = 0.5
SPARE_TURNS = 2  # for servers whose rounds had errors


@dataclass(frozen=True, slots=True)
class Round:
    """One window of load on one server."""

    requests: int
    cpu_us: float  # of all its processes, per request
    rps_per_core: float  # requests per CPU second
    rps: float
    busy: float  # share of its core that it used
    p50_ms: float
    p99_ms: float


@dataclass(slots=True)
class Measured:
    """One server on one workload."""

    workload: str
    server: str
    kind: str
    note: str = ""
    first_start_s: float = 0.0  # alone, the first time that this server sees the model
    cold_start_s: float = 0.0  # once more, beside the others
    pss_bytes: int = 0  # alone, after its answers were checked
    rounds: list[Round] = field(default_factory=list)
    discarded: list[str] = field(default_factory=list)


class WrongAnswer(Exception):
    """A server does not predict what the model predicts."""


@dataclass(frozen=True, slots=True)
class Plan:
    rounds: int
    seconds: float
    connections: int


@dataclass(frozen=True, slots=True)
class Trial:
    """One model, the folder in which each contender has its own, and what is asked by name."""

    model: Model
    folder: Path
    workloads: dict[str, dict[str, Any]]

    def home(self, contender: Contender) -> Path:
        """The same for every start on this model, so that a server may remember what it found out."""
        home = self.folder / contender.name.replace(" ", "-")
        home.mkdir(exist_ok=True)
        return home


def measure_model(model: Model, chosen: list[Contender], plan: Plan) -> list[Measured]:
    """Every contender alone, then those that are quiet while idle together, then each other one by itself."""
    results: dict[tuple[str, str], Measured] = {}
    able = []
    with TemporaryDirectory(prefix="b-") as folder:  # short, since the paths of sockets are
        trial = Trial(model, Path(folder), _workloads(model))
        for contender in chosen:
            try:
                _start_alone(contender, trial, results)
                able.append(contender)
            except (WrongAnswer, SystemExit, OSError, ValueError) as error:
                _say(f"{model.name}: {contender.name} takes no part: {error}")
        for group in ([c for c in able if not c.apart], *([c] for c in able if c.apart)):
            if group:
                _measure_group(group, trial, plan, results)
    return list(results.values())


def _workloads(model: Model) -> dict[str, dict[str, Any]]:
    saved = json.loads((model.folder / "rows.json").read_text())
    kinds = {"": saved["single"]} | ({" x1000": saved["batch"]} if model.name in BATCHED else {})
    return {
        f"{model.name}{suffix}": {
            "columns": saved["columns"],
            # A batch is one request; single rows go out each on its own.
            "requests": [values["rows"]] if suffix else [[row] for row in values["rows"]],
            "predictions": [values["predictions"]] if suffix else [[value] for value in values["predictions"]],
        }
        for suffix, values in kinds.items()
    }


def _start_alone(contender: Contender, trial: Trial, results: dict[tuple[str, str], Measured]) -> None:
    with ExitStack() as stack:
        targets, seconds = _start(contender, trial, stack)
        for target in targets:
            for name, workload in trial.workloads.items():
                _checked(contender, target, workload)
                results[name, target.name] = Measured(name, target.name, contender.kind, target.note)
            held_bytes, ready_s = pss_bytes(target.pids()), target.ready_s or seconds
            for name in trial.workloads:
                results[name, target.name].first_start_s = ready_s
                results[name, target.name].pss_bytes = held_bytes
            _say(f"{trial.model.name}: {target.name} answers rightly after {ready_s:.1f} s")


def _start(contender: Contender, trial: Trial, stack: ExitStack) -> tuple[list[Target], float]:
    """The targets and the seconds from the start to the first whole answer with status 200."""
    begin_s = time.monotonic()
    targets = contender.start(trial.model, trial.home(contender), stack)
    whole = targets[0]
    workload = next(iter(trial.workloads.values()))
    request = _request(whole, workload["columns"], workload["requests"][0])
    while True:
        try:
            if ask(whole.address, request).status == 200:
                return targets, time.monotonic() - begin_s
        except OSError:
            pass
        if time.monotonic() - begin_s > FIRST_ANSWER_S or whole.servers[0].process.poll() is not None:
            raise WrongAnswer(f"no answer after {time.monotonic() - begin_s:.0f} s\n{whole.servers[0].tail()}")
        time.sleep(0.01)


def _request(target: Target, columns: list[str], rows: list[list[float]]) -> bytes:
    return http_request(target.path, target.dialect.encode(columns, rows), target.token)


def _checked(contender: Contender, target: Target, workload: dict[str, Any]) -> list[Exchange]:
    """The requests with their answers, after comparing each with the model's own. Raises WrongAnswer."""
    exchanges = []
    for rows, wanted in zip(workload["requests"], workload["predictions"], strict=True):
        request = _request(target, workload["columns"], rows)
        reply, again = ask(target.address, request), ask(target.address, request)
        if reply.status != 200:
            raise WrongAnswer(f"status {reply.status}: {reply.body[:300]!r}")
        if contender.kind != "floor":
            got = target.dialect.predictions(json.loads(reply.body))
            if not same(got, wanted):
                raise WrongAnswer(f"it predicts {str(got)[:200]}, the model {str(wanted)[:200]}")
        exchanges.append(Exchange(request, reply.body if reply.body == again.body else None))
    return exchanges


def _measure_group(group: list[Contender], trial: Trial, plan: Plan, results: dict[tuple[str, str], Measured]) -> None:
    with ExitStack() as stack:
        doors: list[tuple[Target, dict[str, list[Exchange]]]] = []
        for contender in group:
            targets, seconds = _start(contender, trial, stack)
            for target in targets:
                for server in target.servers:
                    server.pin_again()
                doors.append((target, {name: _checked(contender, target, w) for name, w in trial.workloads.items()}))
                for name in trial.workloads:
                    results[name, target.name].cold_start_s = target.ready_s or seconds
        for name in trial.workloads:
            _in_turns([(results[name, door.name], door, exchanges[name]) for door, exchanges in doors], plan)


def _in_turns(doors: list[tuple[Measured, Target, list[Exchange]]], plan: Plan) -> None:
    """Rounds alternate between the servers, each time beginning with another one."""
    for turn in range(plan.rounds + SPARE_TURNS):
        shift = turn % len(doors)
        for measured, target, exchanges in doors[shift:] + doors[:shift]:
            if len(measured.rounds) < plan.rounds:
                _one_round(measured, target, exchanges, plan)


def _one_round(measured: Measured, target: Target, exchanges: list[Exchange], plan: Plan) -> None:
    try:
        loop = ClosedLoop(target.address, exchanges, plan.connections)
        load = loop.run(WARM_S, plan.seconds, lambda: cpu_s(target.pids()))
    except OSError as error:  # TimeoutError too
        measured.discarded.append(str(error))
        return
    if load.errors or not load.answered or not load.server_cpu_s:
        measured.discarded.append(f"{load.errors} errors, {load.answered} answers: {load.first_error}")
        return
    measured.rounds.append(
        Round(
            requests=load.answered,
            cpu_us=load.server_cpu_s / load.answered * 1e6,
            rps_per_core=load.answered / load.server_cpu_s,
            rps=load.answered / load.elapsed_s,
            busy=load.server_cpu_s / load.elapsed_s,
            p50_ms=load.p50_ms,
            p99_ms=load.p99_ms,
        )
    )


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
