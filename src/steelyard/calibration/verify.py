"""Whether a calibration predicts mixes that nobody has seen: fresh random ones, run on the live replica.

Benchmarks call it after a calibration. It fits nothing.
"""

from __future__ import annotations

from random import Random

from steelyard.calibration.contention import Contention
from steelyard.calibration.lanes import Lanes
from steelyard.calibration.measure import measure
from steelyard.calibration.progress import Progress
from steelyard.calibration.runner import window_of
from steelyard.calibration.subject import get_to_know
from steelyard.contracts.cost import Calibration, CalibrationSpec, MixMeasured
from steelyard.policy.calibration_grid import Measured, Purpose, Run
from steelyard.policy.calibration_shapes import Sizes, random_mixes
from steelyard.policy.cost_fit import Observation
from steelyard.policy.units import LinearCost, Term
from steelyard.wire.client import Pool


async def verify(
    spec: CalibrationSpec, calibration: Calibration, *, mixes: int, window_s: float, seed: int
) -> list[MixMeasured]:
    """One window of each mix. Raises SteelyardError when nothing can be asked of the replica."""
    pool = Pool(spec.address)
    try:
        subject = await get_to_know(pool, spec)
    finally:
        pool.close()
    coefficients = {Term(name): value for name, value in calibration.coefficients.items()}
    cost, sizes = LinearCost(coefficients), _sizes(calibration, coefficients)
    progress, contention = Progress(), Contention(spec.pid)
    lanes = Lanes(spec.address, subject.bodies, progress, seed)
    found: list[MixMeasured] = []
    try:
        for mix in random_mixes(subject.limits, sizes, mixes, Random(seed)):
            run = Run(Purpose.HELD_OUT, mix, calibration.concurrency, 0.35 * window_s, window_s, 2, 1.5 * window_s)
            result = await measure(run, lanes, progress, contention, generates=subject.limits.generates)
            observation = Observation(mix.name, result.totals, result.seconds)
            found.append(window_of(Measured(observation, run.concurrency, True), cost, held_out=True))
    finally:
        lanes.close()
    return found


def _sizes(calibration: Calibration, coefficients: dict[Term, float]) -> Sizes:
    """As large as was calibrated; how parts weigh in a mix is by their cost."""
    largest = calibration.largest
    return Sizes(
        input_tokens=largest.get("input_tokens", 0),
        output_tokens=largest.get("output_tokens", 0),
        rows=largest.get("rows", 0),
        input_token_s=coefficients.get(Term.INPUT, 0.0) / 1000,
        output_token_s=coefficients.get(Term.OUTPUT, 0.0) / 1000,
        row_s=coefficients.get(Term.ROW, 0.0) / 1000,
        request_s=coefficients.get(Term.REQUEST, 0.0) / 1000,
    )
