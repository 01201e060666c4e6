"""Requests to paste into a shell, with the real URL and token: curl, the openai client, MLflow's deployments client.

Pure text, made for `up`. Each is complete: it runs as it stands.
"""

from __future__ import annotations

import json
import os
import shlex
import sys
from pathlib import Path

from steelyard.cli.connection import Connection
from steelyard.samples.catalog import BREAST_CANCER, IRIS, SMOLLM2


def snippets(connection: Connection, names: set[str], python: str) -> list[tuple[str, str]]:
    """(title, shell text) for each kind of client that one of the endpoints `names` can show."""
    token = connection.token or "none"
    found = []
    if IRIS.name in names:
        found.append(("curl", _curl(connection.url, connection.token)))
    if SMOLLM2.name in names:
        found.append(("openai", _openai(connection.url, token, python)))
    if BREAST_CANCER.name in names:
        found.append(("mlflow", _mlflow(connection.url, token, python)))
    return found


def python_here() -> str:
    """This interpreter as one would type it: relative when it lies below the working folder."""
    path = Path(sys.executable)
    try:
        return shlex.quote(str(path.relative_to(Path.cwd())))
    except ValueError:
        return shlex.quote(os.fspath(path))


def _curl(url: str, token: str | None) -> str:
    authorization = f'-H "Authorization: Bearer {token}" ' if token else ""
    return (
        f"curl -s {url}/serving-endpoints/{IRIS.name}/invocations \\\n"
        f'  {authorization}-H "Content-Type: application/json" \\\n'
        f"  -d {shlex.quote(json.dumps(IRIS.request))}"
    )


def _openai(url: str, token: str, python: str) -> str:
    return f"""{python} - <<'EOF'
from openai import OpenAI
client = OpenAI(base_url="{url}/v1", api_key="{token}")
question = {json.dumps(SMOLLM2.request["messages"])}
answer = client.chat.completions.create(model="{SMOLLM2.name}", messages=question, temperature=0, stream=True)
for chunk in answer:
    print(chunk.choices[0].delta.content or "", end="", flush=True)
print()
EOF"""


def _mlflow(url: str, token: str, python: str) -> str:
    return f"""DATABRICKS_HOST={url} DATABRICKS_TOKEN={token} {python} - <<'EOF'
from mlflow.deployments import get_deploy_client
row = {json.dumps(BREAST_CANCER.request["dataframe_records"][0])}
print(get_deploy_client("databricks").predict(endpoint="{BREAST_CANCER.name}", inputs={{"dataframe_records": [row]}}))
EOF"""
