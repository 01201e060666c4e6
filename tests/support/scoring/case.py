"""One row of the table: a request to a model, what MLflow's scoring server answers, what we answer, and why.

Plain data, read by the test and by the writer of the document.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

JSON, CSV = "application/json", "text/csv"


@dataclass(frozen=True)
class Case:
    """`mlflow` and `ours` are outcomes as text: the status, then the prediction of a success, the error code of
    MLflow's refusals, the `param` or code of ours. `why` is empty where both agree. `shown` replaces a body too long to
    print.
    """

    id: str
    model: str
    body: Any
    mlflow: str = ""
    ours: str = ""
    why: str = ""
    media: str | None = JSON
    shown: str = ""

    @property
    def content(self) -> bytes:
        """The request's body: bytes as they are, text in UTF-8, everything else as JSON."""
        if isinstance(self.body, bytes):
            return self.body
        if isinstance(self.body, str):
            return self.body.encode()
        return json.dumps(self.body, ensure_ascii=False).encode()
