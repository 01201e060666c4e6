"""A model of one's own with an artifact, a package of its own and params, saved as code."""

import json

from mlflow.models import set_model
from mlflow.pyfunc import PythonModel


class Tariff(PythonModel):
    def load_context(self, context):
        with open(context.artifacts["rates"]) as file:
            self.rates = json.load(file)

    def predict(self, context, model_input, params=None):
        from pricing.tariff import charge

        floor = params["floor"] + sum(params["steps"])
        rows = zip(model_input["amount"], model_input["region"], model_input["express"], strict=True)
        prices = [
            charge(amount, self.rates.get(region, 1.0) * (1 + express), floor) for amount, region, express in rows
        ]
        return [{"price": price, "currency": params["currency"]} for price in prices]


set_model(Tariff())
