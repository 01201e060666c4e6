"""BentoML with one worker: `bentoml serve bentoml_service:Classic`, the model's folder in MODEL_FOLDER.

The method is async, so that a prediction of microseconds runs on the loop instead of changing threads twice.
"""

import os

import bentoml
import numpy
from native_model import load_predict


@bentoml.service(workers=1, logging={"access": {"enabled": False}}, traffic={"timeout": 60})
class Classic:
    def __init__(self) -> None:
        self.model = load_predict(os.environ["MODEL_FOLDER"])

    @bentoml.api
    async def predict(self, data: list[list[float]]) -> dict[str, list[float]]:
        return {"predictions": self.model(numpy.asarray(data, dtype=numpy.float64)).tolist()}
