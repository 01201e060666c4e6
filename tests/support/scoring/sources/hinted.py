"""A model whose input is described by type hints."""

import pydantic
from mlflow.models import set_model
from mlflow.pyfunc import PythonModel


class Person(pydantic.BaseModel):
    name: str
    age: int
    note: str | None = None


class Hinted(PythonModel):
    def predict(self, model_input: list[Person]) -> list[str]:
        return [f"{person.name} {person.age!r} {person.note!r}" for person in model_input]


set_model(Hinted())
