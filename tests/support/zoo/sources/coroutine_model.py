"""A model whose predict is a coroutine."""

import asyncio

from mlflow.models import set_model
from mlflow.pyfunc import PythonModel


class Later(PythonModel):
    async def predict(self, context, model_input, params=None):
        await asyncio.sleep(0.001)
        return [
            f"{text}: {weight:.1f}" for text, weight in zip(model_input["text"], model_input["weight"], strict=True)
        ]


set_model(Later())
