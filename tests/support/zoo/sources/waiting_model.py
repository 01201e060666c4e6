"""A model that waits for many things at once on an event loop of its own, as agents do."""

import asyncio

from mlflow.models import set_model
from mlflow.pyfunc import PythonModel


async def _look_up(text):
    await asyncio.sleep(0.001 * (len(text) % 3))
    return f"{len(text)}:{text.upper()}"


async def _look_up_all(texts):
    return await asyncio.gather(*map(_look_up, texts))


class Waiting(PythonModel):
    def predict(self, model_input: list[str]) -> list[str]:
        return asyncio.run(_look_up_all(model_input))


set_model(Waiting())
