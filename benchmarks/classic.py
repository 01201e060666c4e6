"""Classic models through MLflow's server, through Steelyard, and with --peers through LitServe, BentoML, MLServer and
Ray Serve: the same models, the same load, every server pinned to core 0 with all of its processes.

Prints per model and server the CPU per request, requests per CPU second, latency, start and memory, then the figures
against their targets. The load is a closed loop of 16 keep-alive connections on the last core (`rig/loadgen.py`, for
all servers alike). Servers are up together and measured in turns; one that works while idle is up by itself. Answers
are compared with the model's own predictions before anything is timed.

    python benchmarks/classic.py [--peers] [--rounds 3] [--seconds 3] [--models linear,lightgbm,forest,wide] [--json]
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from peers.install import ENVIRONMENTS
from rig import report
from rig.contenders import Model, contenders
from rig.measure import Measured, Plan, measure_model
from rig.processes import LOAD_CORE, SERVER_CORE
from rig.train import TRAINERS, train

CONNECTIONS = 16


def main() -> None:
    arguments = _arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the servers end with us
    chosen, missing = contenders(arguments.peers)
    if arguments.servers:
        chosen = [contender for contender in chosen if contender.name in arguments.servers.split(",")]
    for sentence in missing:
        print(sentence, file=sys.stderr)
    if LOAD_CORE == SERVER_CORE:
        print("There is one core only: the load takes time from the servers.", file=sys.stderr)
    plan = Plan(arguments.rounds, arguments.seconds, CONNECTIONS)
    results: list[Measured] = []
    with TemporaryDirectory(prefix="bench-") as folder:
        train(Path(folder), arguments.models)
        os.sched_setaffinity(0, {LOAD_CORE})
        for name in arguments.models:
            results += measure_model(Model(name, Path(folder) / name), chosen, plan)
    found = report.figures(results)
    print(report.table(results))
    print(f"\n{report.verdicts(found)}")
    if arguments.json:
        print(json.dumps(report.as_json(results, found, plan, ENVIRONMENTS)))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", action="store_true", help="also those that benchmarks/peers/install.py installed")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=3.0, help="length of each measurement")
    parser.add_argument("--models", type=_names, default=list(TRAINERS), help=f"of {','.join(TRAINERS)}")
    parser.add_argument("--servers", default="", help="only these, by their names in the table, with commas")
    parser.add_argument("--json", action="store_true", help="end with one line of JSON")
    return parser.parse_args()


def _names(text: str) -> list[str]:
    names = text.split(",")
    if unknown := set(names) - set(TRAINERS):
        raise argparse.ArgumentTypeError(f"no model is called {', '.join(unknown)}")
    return names


if __name__ == "__main__":
    main()
