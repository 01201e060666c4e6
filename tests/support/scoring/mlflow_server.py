"""MLflow's own scoring server in this process, asked through its ASGI app."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx

from support.scoring.case import Case


class MlflowServer:
    """One loaded model. `outcome` says what it answers, in the table's words."""

    def __init__(self, model: Path) -> None:
        import mlflow.pyfunc
        from mlflow.pyfunc import scoring_server

        loaded = mlflow.pyfunc.load_model(str(model))
        app = httpx.ASGITransport(scoring_server.init(loaded), raise_app_exceptions=False)
        self._client = httpx.AsyncClient(transport=app, base_url="http://mlflow")
        self._loop = asyncio.new_event_loop()

    def outcome(self, case: Case) -> str:
        headers = {} if case.media is None else {"content-type": case.media}
        asking = self._client.post("/invocations", content=case.content, headers=headers)
        reply = self._loop.run_until_complete(asking)
        return told(reply.status_code, reply.content)

    def close(self) -> None:
        self._loop.run_until_complete(self._loop.shutdown_default_executor())
        self._loop.close()


def told(status: int, body: bytes) -> str:
    """A reply in the table's words."""
    try:
        value: Any = json.loads(body)
    except ValueError:
        return str(status)
    if status != 200:
        return f"{status} {value.get('error_code') or ''}".strip()
    value = value["predictions"] if isinstance(value, dict) and list(value) == ["predictions"] else value
    return f"200 {value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)}"
