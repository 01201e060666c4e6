"""Zoo models as endpoints of one running platform: a few at a time, the next ones starting while one is asked."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Any

import httpx
import msgspec

from support.platform import Platform
from support.waiting import wait_until
from support.zoo.bodies import EMBEDDINGS, Form
from support.zoo.case import Case
from support.zoo.nursery import Nursery

API = "/api/2.0/serving-endpoints"


@dataclass(frozen=True)
class Served:
    """How the platform runs a model, in its own words."""

    runtime: str
    reason: str


class Fleet:
    """`ask_for(name)` returns when the endpoint is ready; `release(name)` deletes it. Use in a `with` block."""

    def __init__(self, platform: Platform, nursery: Nursery, names: list[str], ahead: int = 2) -> None:
        self._client = httpx.Client(
            base_url=platform.url,
            headers={"authorization": f"Bearer {platform.token}"},
            timeout=120,
            trust_env=False,
        )
        self._nursery, self._names, self._ahead = nursery, names, ahead
        self._started: set[str] = set()

    def __enter__(self) -> Fleet:
        return self

    def __exit__(self, *_: object) -> None:
        for name in list(self._started):
            with contextlib.suppress(httpx.HTTPError):
                self.release(name)
        self._client.close()

    def ask_for(self, name: str, timeout_s: float = 120) -> Case:
        """Deploy it and those after it that are built already; wait for it alone."""
        case = self._nursery.of(name)
        self._start(name, case)
        place = self._names.index(name)
        for following in self._names[place + 1 : place + 1 + self._ahead]:
            if self._nursery.ready(following):
                self._start(following, self._nursery.of(following))
        wait_until(lambda: self._is_ready(name), timeout_s)
        return case

    def release(self, name: str) -> None:
        self._started.discard(name)
        self._client.delete(f"{API}/{name}").raise_for_status()

    def served(self, name: str) -> Served:
        """The runtime that serves it, and why, as the endpoint's events tell."""
        entity = self._client.get(f"{API}/{name}").json()["config"]["served_entities"][0]
        told = [event["message"] for event in self._client.get(f"{API}/{name}/events").json()["events"]]
        reasons = [message for message in told if "chose" in message or "refused" in message]
        return Served(entity.get("runtime", "?"), reasons[-1] if reasons else "")

    def ask(self, name: str, form: Form, case: Case, rows: list[Any]) -> list[Any]:
        """The platform's answers to these rows. Raises AssertionError with the reply when it is no success."""
        path = "/v1/embeddings" if form.path == EMBEDDINGS else f"/serving-endpoints/{name}/{form.path}"
        reply = self._client.post(path, content=form.write(case, rows), headers={"content-type": form.media})
        assert reply.status_code == 200, f"{form.name}: {reply.status_code} {reply.text[:500]}"
        return form.read(case, msgspec.json.decode(reply.content))

    def stream(self, name: str, body: dict[str, Any]) -> list[Any]:
        """The chunks of a streamed answer, without their closing mark."""
        content = msgspec.json.encode({**body, "stream": True})
        path = f"/serving-endpoints/{name}/invocations"
        with self._client.stream("POST", path, content=content, headers={"content-type": "application/json"}) as reply:
            assert reply.status_code == 200, reply.read()
            lines = [line.removeprefix("data: ") for line in reply.iter_lines() if line.startswith("data: ")]
        assert lines[-1] == "[DONE]"
        return [msgspec.json.decode(line) for line in lines[:-1]]

    def _start(self, name: str, case: Case) -> None:
        if name in self._started:
            return
        entity = {"name": "model", "entity_name": case.model}
        reply = self._client.post(API, json={"name": name, "config": {"served_entities": [entity]}})
        assert reply.status_code == 200, reply.text
        self._started.add(name)

    def _is_ready(self, name: str) -> bool:
        state = self._client.get(f"{API}/{name}").json()
        if state["state"]["config_update"] == "UPDATE_FAILED":
            log = self._client.get(f"{API}/{name}/served-models/model/logs").text
            raise AssertionError(f"{name} did not become ready: {state}\n{log[-3000:]}")
        return bool(state["state"]["ready"] == "READY")
