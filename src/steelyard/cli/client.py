"""A small client of the public API over httpx: what the commands need and nothing more.

Every failure is raised as CliError with a hint. It never retries and keeps no state beyond the connection pool.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Self
from urllib.parse import quote

import httpx

from steelyard.cli.connection import Connection
from steelyard.cli.failures import CliError

_ENDPOINTS = "/api/2.0/serving-endpoints"
_HINTS = {
    401: "Give --token or set STEELYARD_TOKEN; `steelyard up` prints the token that it made at its first start.",
    403: "This token may not do that.",
    404: "`steelyard endpoints` lists what there is.",
    409: "Wait until `steelyard endpoints` shows no update in progress.",
    429: "The platform is busy; try again in a moment.",
    500: "`steelyard logs NAME` shows the model's own output.",
    502: "`steelyard events NAME` says what happened to the replica.",
    503: "See `steelyard endpoints`, and `steelyard logs NAME` for the model's own output.",
    504: "The model took longer than the deadline allows.",
}
_STATE_HINT = "`steelyard endpoints` shows the states; `steelyard start NAME` starts a stopped endpoint."


class Client:
    """Use in a `with` block. `timeout_s` bounds the silence of the platform, not the length of an answer."""

    def __init__(self, connection: Connection, timeout_s: float = 30) -> None:
        self.connection = connection
        headers = {"authorization": f"Bearer {connection.token}"} if connection.token else {}
        self._http = httpx.Client(
            base_url=connection.url,
            headers=headers,
            timeout=httpx.Timeout(timeout_s, connect=5),
            trust_env=not connection.on_this_machine,  # a proxy cannot reach this machine's loopback
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()

    def endpoints(self) -> list[dict[str, Any]]:
        """All endpoints, sorted by name."""
        found = self._json("GET", _ENDPOINTS).get("endpoints") or []
        return sorted(found, key=lambda endpoint: str(endpoint.get("name")))

    def endpoint(self, name: str) -> dict[str, Any]:
        return self._json("GET", _path(name))

    def find_endpoint(self, name: str) -> dict[str, Any] | None:
        """The endpoint, or None when there is none of that name."""
        return next((endpoint for endpoint in self.endpoints() if endpoint.get("name") == name), None)

    def create(self, name: str, config: dict[str, Any]) -> dict[str, Any]:
        return self._json("POST", _ENDPOINTS, {"name": name, "config": config})

    def update(self, name: str, config: dict[str, Any]) -> dict[str, Any]:
        return self._json("PUT", f"{_path(name)}/config", config)

    def delete(self, name: str) -> None:
        self._json("DELETE", _path(name))

    def stop(self, name: str) -> None:
        self._json("POST", f"{_path(name)}/stop")

    def start(self, name: str) -> None:
        self._json("POST", f"{_path(name)}/start")

    def logs(self, name: str, entity: str) -> str:
        """The newest output of the entity's replicas."""
        return str(self._json("GET", f"{_path(name)}/served-models/{quote(entity, safe='')}/logs").get("logs") or "")

    def events(self, name: str) -> list[dict[str, Any]]:
        """What happened to the endpoint, oldest first."""
        return list(self._json("GET", f"{_path(name)}/events").get("events") or [])

    def calibrate(self, name: str, wishes: dict[str, Any]) -> dict[str, Any]:
        """Begins a calibration and returns at once."""
        return self._json("POST", f"{_path(name)}/calibrations", wishes)

    def calibrations(self, name: str) -> list[dict[str, Any]]:
        """The latest of each served entity."""
        return list(self._json("GET", f"{_path(name)}/calibrations").get("calibrations") or [])

    def stop_calibration(self, name: str) -> None:
        self._json("DELETE", f"{_path(name)}/calibrations")

    def usage(self, name: str, start_ms: int, end_ms: int, by: str) -> list[dict[str, Any]]:
        """What tenants used of an endpoint, `by` hour or in total."""
        query = f"start_time={start_ms}&end_time={end_ms}&by={by}"
        return list(self._json("GET", f"{_path(name)}/usage?{query}").get("usage") or [])

    def query(self, name: str, body: bytes) -> Any:
        """One whole answer, parsed."""
        return self._decode(self._send("POST", _invocations(name), body, timeout_s=600))

    def stream(self, name: str, body: bytes) -> Iterator[str]:
        """The data of each server-sent event, until `[DONE]`. Raises when the stream breaks off or carries an error."""
        with (
            self._failures(),
            self._http.stream(
                "POST", _invocations(name), content=body, headers={"content-type": "application/json"}, timeout=600
            ) as reply,
        ):
            if reply.status_code >= 400:
                reply.read()
                raise self._refusal(reply)
            yield from _events(reply.iter_lines())

    def reachable(self) -> bool:
        """Somebody answers `/livez` at the URL. Needs no token."""
        try:
            return self._http.get("/livez", timeout=5).status_code == 200
        except httpx.HTTPError:
            return False

    def ready(self) -> bool:
        """The platform has its first snapshot and takes requests. Needs no token."""
        try:
            return self._http.get("/readyz", timeout=5).status_code == 200
        except httpx.HTTPError:
            return False

    def _json(self, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        content = json.dumps(body).encode() if body is not None else None
        value = self._decode(self._send(method, path, content))
        return value if isinstance(value, dict) else {}

    def _send(self, method: str, path: str, content: bytes | None, timeout_s: float | None = None) -> httpx.Response:
        headers = {"content-type": "application/json"} if content is not None else {}
        extra: dict[str, Any] = {"timeout": timeout_s} if timeout_s else {}
        with self._failures():
            reply = self._http.request(method, path, content=content, headers=headers, **extra)
        if reply.status_code >= 400:
            raise self._refusal(reply)
        return reply

    def _decode(self, reply: httpx.Response) -> Any:
        try:
            return reply.json() if reply.content else {}
        except ValueError as error:
            raise self._stranger(reply) from error

    @contextmanager
    def _failures(self) -> Iterator[None]:
        url = self.connection.url
        try:
            yield
        except httpx.TimeoutException as error:
            raise CliError(f"{url} did not answer in time.", "`steelyard doctor` looks for the cause.") from error
        except httpx.ConnectError as error:
            raise CliError(
                f"Nothing answers at {url}.", "Start it with `steelyard up`, or give --url or STEELYARD_URL."
            ) from error
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise CliError(
                f"The connection to {url} failed: {error or type(error).__name__}.",
                "`steelyard doctor` looks for the cause.",
            ) from error

    def _refusal(self, reply: httpx.Response) -> CliError:
        """The platform's own words, with a hint by status."""
        try:
            body = reply.json()
            message, code = body["message"], body["error_code"]
        except (ValueError, KeyError, TypeError):
            return self._stranger(reply)
        hint = _HINTS.get(
            reply.status_code, "The request has to change; `steelyard COMMAND --help` and docs/ show the forms."
        )
        if code == "INVALID_STATE":
            hint = _STATE_HINT
        if "retry-after" in reply.headers:
            hint = f"Try again in {reply.headers['retry-after']} s."
        return CliError(str(message), hint)

    def _stranger(self, reply: httpx.Response) -> CliError:
        return CliError(
            f"{self.connection.url} does not answer like Steelyard (HTTP {reply.status_code}).",
            "Check --url and STEELYARD_URL.",
        )


def _path(name: str) -> str:
    return f"{_ENDPOINTS}/{quote(name, safe='')}"


def _invocations(name: str) -> str:
    return f"/serving-endpoints/{quote(name, safe='')}/invocations"


def _events(lines: Iterator[str]) -> Iterator[str]:
    """Data of each event of our own streams, which put one `data:` line in an event."""
    for line in lines:
        if not line.startswith("data:"):
            continue
        data = line[5:].strip()
        if data == "[DONE]":
            return
        if data.startswith('{"error') and (message := _error_message(data)):
            raise CliError(f"The answer broke off: {message}")
        yield data
    raise CliError("The answer broke off before its end.", "The replica may have died; see `steelyard events NAME`.")


def _error_message(data: str) -> str | None:
    try:
        value = json.loads(data)
        return str(value.get("message") or value["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return None
