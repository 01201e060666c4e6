"""What it brings that requests of a model in a worker share calls: the same replica with sharing and without.

Two models whose code runs in a worker process: a torch network on tensors (`native`) and a scikit-learn pipeline over
a table with text, behind a `PythonModel` (`pyfunc`). Sixteen keep-alive connections ask each replica directly over its
Unix socket, one row at a time, every connection with a row of its own. The two replicas of a model stay up together and
take turns; every reply must have status 200, and the first answers of both are compared.

    python benchmarks/worker_batching.py [--rounds 3] [--seconds 2] [--models torch,pipeline] [--json]
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
from contextlib import ExitStack
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas as pd

from rig.dialects import http_request
from rig.loadgen import ClosedLoop, Exchange, Load, ask
from rig.ours import RunningReplica, settings_in, start_replica

CONNECTIONS = 16
WARM_S = 1.0
ONE_BY_ONE = (
    "import sys; from steelyard.runtimes.workers import WorkerRuntime; "
    "WorkerRuntime.share_calls = lambda self, cost: None; "
    "from steelyard.replica.main import run; sys.exit(run(sys.argv[1]))"
)
PROGRAMS = {"shared": ("-m", "steelyard.replica"), "one by one": ("-c", ONE_BY_ONE)}
PIPELINE_CODE = """
import cloudpickle
from mlflow.models import set_model
from mlflow.pyfunc import PythonModel


class Model(PythonModel):
    def load_context(self, context):
        with open(context.artifacts["pipeline"], "rb") as file:
            self.pipeline = cloudpickle.load(file)

    def predict(self, context, model_input, params=None):
        return self.pipeline.predict_proba(model_input)[:, 1]


set_model(Model())
"""


def main() -> None:
    arguments = _arguments()
    figures: dict[str, Any] = {}
    print(f"{'':12}{'runtime':>9}{'shared /s':>11}{'alone /s':>10}{'ratio':>8}{'p50 ms':>9}{'alone':>8}")
    with TemporaryDirectory(prefix="bench-") as folder:
        for name in arguments.models:
            figures[name] = found = _measure(name, Path(folder), arguments)
            print(
                f"{name:12}{found['runtime']:>9}{found['shared_per_s']:11.0f}{found['one_by_one_per_s']:10.0f}"
                f"{found['ratio']:7.2f}×{found['shared_p50_ms']:9.2f}{found['one_by_one_p50_ms']:8.2f}",
                flush=True,
            )
    if arguments.json:
        versions = {package: version(package) for package in ("mlflow", "numpy", "pandas", "scikit-learn", "torch")}
        print(
            json.dumps({"figures": figures, "cores": os.cpu_count(), "python": platform.python_version(), **versions})
        )


def _measure(name: str, folder: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    model = folder / name
    requests = MODELS[name](model)
    loads: dict[str, list[Load]] = {kind: [] for kind in PROGRAMS}
    with ExitStack() as stack:
        settings = settings_in(folder / f"home-{name}", stack)
        replicas = {
            kind: start_replica(settings, stack, f"{name}-{place}", model, None, program)
            for place, (kind, program) in enumerate(PROGRAMS.items())
        }
        _compare(replicas, requests)
        for _ in range(arguments.rounds):
            for kind, replica in replicas.items():
                exchanges = [Exchange(request, None) for request in requests]
                loop = ClosedLoop(replica.view.address, exchanges, CONNECTIONS)
                load = loop.run(WARM_S, arguments.seconds, lambda: 0.0)
                if load.errors:
                    raise SystemExit(f"{name}, {kind}: {load.errors} errors, the first: {load.first_error}")
                loads[kind].append(load)
    rates = {kind: [load.answered / load.elapsed_s for load in found] for kind, found in loads.items()}
    ratios = [one / other for one, other in zip(rates["shared"], rates["one by one"], strict=True)]
    median = statistics.median
    return {
        "runtime": replicas["shared"].runtime,
        "shared_per_s": median(rates["shared"]),
        "one_by_one_per_s": median(rates["one by one"]),
        "ratio": median(ratios),
        "shared_p50_ms": median(load.p50_ms for load in loads["shared"]),
        "one_by_one_p50_ms": median(load.p50_ms for load in loads["one by one"]),
        "ratios": ratios,
    }


def _compare(replicas: dict[str, RunningReplica], requests: list[bytes]) -> None:
    for request in requests:
        answers = [json.loads(ask(replica.view.address, request).body) for replica in replicas.values()]
        np.testing.assert_allclose(answers[0]["predictions"], answers[1]["predictions"], rtol=1e-6)


def _torch(folder: Path) -> list[bytes]:
    import mlflow.pytorch
    import torch
    from mlflow.models import infer_signature

    torch.manual_seed(0)
    layers = torch.nn.Linear(64, 512), torch.nn.ReLU(), torch.nn.Linear(512, 512), torch.nn.ReLU()
    model = torch.nn.Sequential(*layers, torch.nn.Linear(512, 10)).eval()
    rows = np.random.default_rng(0).normal(size=(CONNECTIONS, 64)).astype(np.float32)
    signature = infer_signature(rows, model(torch.from_numpy(rows)).detach().numpy())
    mlflow.pytorch.save_model(model, folder, signature=signature, serialization_format="pickle", pip_requirements=[])
    return [http_request("/invocations", {"inputs": [row]}) for row in rows.tolist()]


def _pipeline(folder: Path) -> list[bytes]:
    import cloudpickle
    import mlflow.pyfunc
    from mlflow.models import infer_signature
    from sklearn.compose import make_column_transformer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    rng = np.random.default_rng(0)
    names = [f"x{place}" for place in range(8)]
    frame = pd.DataFrame(rng.normal(size=(500, 8)), columns=names)
    frame["city"] = rng.choice(["Basel", "Bern", "Zug"], 500)
    columns = make_column_transformer((StandardScaler(), names), (OneHotEncoder(handle_unknown="ignore"), ["city"]))
    pipeline = make_pipeline(columns, LogisticRegression()).fit(frame, frame["x0"] + frame["x1"] > 0)
    kept, code = folder.parent / "pipeline.pkl", folder.parent / "pipeline_code.py"
    kept.write_bytes(cloudpickle.dumps(pipeline))
    code.write_text(PIPELINE_CODE)
    values = {"signature": infer_signature(frame, pipeline.predict_proba(frame)[:, 1]), "pip_requirements": []}
    mlflow.pyfunc.save_model(
        folder, python_model=str(code), artifacts={"pipeline": str(kept)}, input_example=frame.head(8), **values
    )
    split = frame.head(CONNECTIONS).to_dict(orient="split")
    bodies = [{"dataframe_split": {"columns": split["columns"], "data": [row]}} for row in split["data"]]
    return [http_request("/invocations", body) for body in bodies]


MODELS = {"torch": _torch, "pipeline": _pipeline}


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=2.0, help="of each round on each replica")
    parser.add_argument("--models", type=lambda text: text.split(","), default=list(MODELS))
    parser.add_argument("--json", action="store_true", help="print one line of JSON at the end")
    return parser.parse_args()


if __name__ == "__main__":
    main()
