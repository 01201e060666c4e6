"""A model that says of every cell what it got: each of MLflow's column types, one of them optional."""

import base64

import numpy as np
from mlflow.models import set_model
from mlflow.pyfunc import PythonModel


class Descriptions(PythonModel):
    def predict(self, context, model_input, params=None):
        described = model_input.copy()
        described["datetime"] = model_input["datetime"].astype("datetime64[ns]").astype("int64")
        described["binary"] = [base64.b16encode(cell).decode() for cell in model_input["binary"]]
        described["float"] = model_input["float"].astype(np.float64)
        described["types"] = " ".join(dtype.kind for dtype in model_input.drop(columns="string").dtypes)
        return described


set_model(Descriptions())
