"""MLflow's own scoring server in this process, asked through its ASGI app."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from support.scoring.case import Case


class MlflowServer:
    """One loaded model. `outcome` says what it answers, in the table's words."""

    def __init__(self, model: Path) -> None:
        import mlflow.pyfunc
        from mlflow.pyfunc import scoring_server
        from starlette.testclient import TestClient

        loaded = mlflow.pyfunc.load_model(str(model))
        self._client = TestClient(scoring_server.init(loaded), raise_server_exceptions=False)

    def outcome(self, case: Case) -> str:
        headers = {} if case.media is None else {"content-type": case.media}
        reply = self._client.post("/invocations", content=case.content, headers=headers)
        return told(reply.status_code, reply.content)


def told(status: int, body: bytes, fault: str = "error_code") -> str:
    """A reply in the table's words."""
    try:
        value: Any = json.loads(body)
    except ValueError:
        return str(status)
    if status != 200:
        return f"{status} {value.get(fault) or ''}".strip()
    value = value["predictions"] if isinstance(value, dict) and list(value) == ["predictions"] else value
    return f"200 {value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)}"
