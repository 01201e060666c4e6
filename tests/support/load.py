"""A bounded closed-loop load on one endpoint, from its own threads, that records how every request ended."""

import threading
from collections import Counter
from types import TracebackType
from typing import Any, Self

import httpx


class Load:
    """`with Load(...) as load:` keeps `clients` requests under way until the block ends or `max_requests` were sent.

    `outcomes` counts HTTP statuses and the names of transport errors; `bodies` keeps the distinct answers.
    """

    def __init__(
        self, url: str, token: str, path: str, body: Any, clients: int = 4, max_requests: int = 20_000
    ) -> None:
        self.outcomes: Counter[int | str] = Counter()
        self.bodies: Counter[str] = Counter()
        self._url, self._token, self._path, self._body = url, token, path, body
        self._budget = max_requests
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._threads = [threading.Thread(target=self._run, daemon=True) for _ in range(clients)]

    @property
    def sent(self) -> int:
        return sum(self.outcomes.values())

    def _run(self) -> None:
        headers = {"authorization": f"Bearer {self._token}"}
        with httpx.Client(base_url=self._url, headers=headers, timeout=60) as client:
            while not self._stop.is_set() and self.sent < self._budget:
                body = ""
                try:
                    reply = client.post(self._path, json=self._body)
                    outcome: int | str = reply.status_code
                    body = reply.text
                except httpx.HTTPError as error:
                    outcome = type(error).__name__
                with self._lock:
                    self.outcomes[outcome] += 1
                    self.bodies[body] += 1

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(timeout=90)
