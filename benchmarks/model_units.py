"""How well calibration predicts what requests cost: the sample models on this machine, each calibrated unattended and
then tried on fresh random mixes that it has not seen.

For each model a real replica is started alone, calibrated as `steelyard calibrate` does it (the same process), and
loaded with mixes drawn from another seed. The error is that of the predicted replica time of each mix. Prints a table
and the figures against their targets; mind that nothing else should run on the machine.

    python benchmarks/model_units.py [--models iris,breast-cancer,smollm2] [--seed 1] [--json]
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
import uvloop

from rig.ours import settings_in, start_replica
from steelyard.calibration.verify import verify
from steelyard.contracts.cost import Calibration, CalibrationEnd, CalibrationLine, CalibrationSpec, MixMeasured
from steelyard.samples.catalog import SAMPLES, Sample
from steelyard.samples.prepare import Missing, ensure

TARGETS = {"smollm2": (0.10, 0.20, 600.0)}  # median, p95, seconds
CLASSIC_TARGET = (0.15, None, 60.0)
MIXES = {"smollm2": 10}
CLASSIC_MIXES = 20
WINDOW_S = {"smollm2": 14.0}
CLASSIC_WINDOW_S = 1.0
FRESH = 7919  # added to the seed: no mix of the calibration's own


def main() -> None:
    arguments = _arguments()
    found: dict[str, Any] = {}
    for sample in SAMPLES:
        if sample.name not in arguments.models:
            continue
        with TemporaryDirectory(prefix="mu-") as folder, ExitStack() as stack:
            outcome = _measure(sample, Path(folder), stack, arguments.seed)
        if isinstance(outcome, str):
            print(f"{sample.name}: {outcome}", file=sys.stderr)
            continue
        found[sample.name] = outcome
        print(_line(sample.name, outcome), flush=True)
    if arguments.json:
        print(json.dumps(found))
    if not found or not all(model["met"] for model in found.values()):
        sys.exit(1)


def _measure(sample: Sample, folder: Path, stack: ExitStack, seed: int) -> dict[str, Any] | str:
    """The figures of one model, or why there are none."""
    settings = settings_in(folder / "home", stack)
    prepared = ensure(sample, folder / "samples")
    if isinstance(prepared, Missing):
        return prepared.reason
    replica = start_replica(settings, stack, sample.name, Path(prepared.uri), core=None)
    spec = CalibrationSpec(
        endpoint=sample.name,
        served_entity=f"{sample.name}-1",
        address=replica.view.address,
        pid=replica.server.process.pid,
        model_uri=prepared.uri,
        seed=seed,
    )
    began_s = time.monotonic()
    end = _calibrate(spec)
    took_s = time.monotonic() - began_s
    if end.result is None:
        return end.failure or "no result"
    mixes = MIXES.get(sample.name, CLASSIC_MIXES)
    window_s = WINDOW_S.get(sample.name, CLASSIC_WINDOW_S)
    windows = uvloop.run(_verify(spec, end.result, mixes, window_s, seed + FRESH))
    return _figures(sample.name, end.result, windows, took_s)


def _calibrate(spec: CalibrationSpec) -> CalibrationEnd:
    """As control runs it."""
    command = [sys.executable, "-m", "steelyard.calibration", msgspec.json.encode(spec).decode()]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        for line in process.stdout:
            said = msgspec.json.decode(line, type=CalibrationLine)
            if isinstance(said, CalibrationEnd):
                print(f"\r{'':100}\r", end="", file=sys.stderr)
                return said
            print(f"\r{spec.endpoint}: {said.done}/{said.done + said.left} {said.detail:40}", end="", file=sys.stderr)
    return CalibrationEnd(failure="The calibration ended without a result.")


async def _verify(
    spec: CalibrationSpec, result: Calibration, mixes: int, window_s: float, seed: int
) -> list[MixMeasured]:
    return await verify(spec, result, mixes=mixes, window_s=window_s, seed=seed)


def _figures(name: str, result: Calibration, windows: list[MixMeasured], took_s: float) -> dict[str, Any]:
    errors = sorted(abs(window.predicted_s / window.seconds - 1) for window in windows)
    median, p95 = statistics.median(errors), _quantile(errors, 0.95)
    most_median, most_p95, most_s = TARGETS.get(name, CLASSIC_TARGET)
    met = median <= most_median and (most_p95 is None or p95 <= most_p95) and took_s <= most_s
    return {
        "median_heldout_error": median,
        "p95_heldout_error": p95,
        "own_median_heldout_error": result.held_out_median_error,
        "calibration_s": took_s,
        "concurrency": result.concurrency,
        "coefficients": result.coefficients,
        "notes": result.notes,
        "mixes": [{"mix": w.mix, "measured_s": w.seconds, "predicted_s": w.predicted_s} for w in windows],
        "met": met,
    }


def _quantile(ordered: list[float], share: float) -> float:
    place = share * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (place - low) * (ordered[high] - ordered[low])


def _line(name: str, outcome: dict[str, Any]) -> str:
    most_median, most_p95, _ = TARGETS.get(name, CLASSIC_TARGET)
    bound = f"≤ {most_median:.0%}" + ("" if most_p95 is None else f", ≤ {most_p95:.0%}")
    costs = ", ".join(f"{term} {value:.4g}" for term, value in outcome["coefficients"].items())
    return (
        f"{name}: fresh mixes within {outcome['median_heldout_error']:.1%} (median), "
        f"{outcome['p95_heldout_error']:.1%} (p95); target {bound}: {'met' if outcome['met'] else 'MISSED'}. "
        f"Calibrated in {outcome['calibration_s']:.0f} s, {outcome['concurrency']} at once; MU: {costs}."
    )


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=lambda text: text.split(","), default=[sample.name for sample in SAMPLES])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true", help="end with one line of JSON")
    return parser.parse_args()


if __name__ == "__main__":
    main()
