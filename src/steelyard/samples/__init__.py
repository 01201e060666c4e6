"""Three sample models that need no download service, so that a first start has something real to serve.

`steelyard up --samples` and the tests ask for them. This face imports nothing heavy: training runs in a process of
its own (`python -m steelyard.samples`), and the language model is found in an installed package without importing it.
"""

from steelyard.samples.catalog import BREAST_CANCER, IRIS, SAMPLES, SMOLLM2, Sample
from steelyard.samples.prepare import Missing, Prepared, ensure

__all__ = ["BREAST_CANCER", "IRIS", "SAMPLES", "SMOLLM2", "Missing", "Prepared", "Sample", "ensure"]
