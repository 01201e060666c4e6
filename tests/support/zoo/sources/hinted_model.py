"""A model whose inputs are pydantic models by its type hints."""

import pydantic
from mlflow.models import set_model
from mlflow.pyfunc import PythonModel


class Line(pydantic.BaseModel):
    article: str
    amount: int
    price: float = 1.5
    tags: list[str] = []


class Totals(PythonModel):
    def predict(self, model_input: list[Line]) -> list[float]:
        return [line.amount * line.price - 0.1 * len(line.tags) for line in model_input]


set_model(Totals())
