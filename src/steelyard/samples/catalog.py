"""What the samples are: a name, what it shows, and a request that works. Read by `prepare`, the CLI and tests.

Plain data; importing it costs nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal


@dataclass(frozen=True, slots=True)
class Sample:
    """One sample model; `name` is its endpoint's name, `request` a body for its `/invocations`."""

    name: str
    title: str
    source: Literal["trained", "package"]
    request: dict[str, Any]


IRIS = Sample(
    name="iris",
    title="scikit-learn logistic regression: the species of an iris (0, 1, 2) from four measurements",
    source="trained",
    request={
        "dataframe_split": {
            "columns": ["sepal length (cm)", "sepal width (cm)", "petal length (cm)", "petal width (cm)"],
            "data": [[5.1, 3.5, 1.4, 0.2], [6.7, 3.0, 5.2, 2.3]],
        }
    },
)

BREAST_CANCER = Sample(
    name="breast-cancer",
    title="LightGBM: the probability that a tumour is malignant from five measurements",
    source="trained",
    request={
        "dataframe_records": [
            {
                "mean radius": 17.99,
                "mean texture": 10.38,
                "mean smoothness": 0.1184,
                "mean concavity": 0.3001,
                "mean symmetry": 0.2419,
            }
        ]
    },
)

SMOLLM2 = Sample(
    name="smollm2",
    title="SmolLM2-135M-Instruct (GGUF): a small chat model",
    source="package",
    request={"messages": [{"role": "user", "content": "Name three fruits."}], "max_tokens": 32},
)

SAMPLES: tuple[Sample, ...] = (IRIS, BREAST_CANCER, SMOLLM2)
