"""A model of Python code for the soak test: sums a row, and fails when `a` is negative. Saved by `train.py`."""

from mlflow.models import set_model
from mlflow.pyfunc import PythonModel


class Summing(PythonModel):
    def predict(self, context, model_input, params=None):
        if (model_input["a"] < 0).any():
            raise ValueError("a must not be negative")
        return model_input.sum(axis=1).tolist()


set_model(Summing())
