"""The load generator of `classic.py`: a closed loop over keep-alive connections on one thread, on epoll itself.

Every connection sends a prepared request, waits for the whole reply, checks status and answer, and sends again. One
generator serves all servers and both kinds of socket (`tcp:host:port`, `unix:/path`), depends on nothing but the
standard library and costs per request about what wrk does. It never pipelines and never retries.
"""

from __future__ import annotations

import gc
import select
import socket
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from time import perf_counter

from rig.replies import HttpReply, whole_reply

STALLED_S = 60.0  # a server that answers nothing for so long has failed
LEAST_PER_CLIENT = 2  # answers that a window waits for, so that a slow server's figure is not one of chance
LONGEST = 10  # times the length of a window that such waiting may take
_OK = b"HTTP/1.1 200"
_READ_BYTES = 1 << 16  # a larger buffer is mapped and unmapped each time, which costs more than reading


@dataclass(frozen=True, slots=True)
class Exchange:
    """A request as bytes and the body that must come back; None when any body will do."""

    request: bytes
    answer: bytes | None


@dataclass(frozen=True, slots=True)
class Load:
    """What a window of load found; CPU seconds are those of the server within it."""

    answered: int
    errors: int
    elapsed_s: float
    server_cpu_s: float
    p50_ms: float
    p99_ms: float
    first_error: str


def open_socket(address: str, timeout_s: float = 10.0) -> socket.socket:
    """A connected blocking socket. Raises OSError."""
    kind, _, place = address.partition(":")
    if kind == "unix":
        sock = socket.socket(socket.AF_UNIX)
        sock.settimeout(timeout_s)
        sock.connect(place)
        return sock
    host, _, port = place.rpartition(":")
    sock = socket.create_connection((host, int(port)), timeout=timeout_s)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


def ask(address: str, request: bytes, timeout_s: float = STALLED_S) -> HttpReply:
    """One request on a connection of its own. Raises OSError or ValueError when no whole reply comes."""
    with open_socket(address, timeout_s) as sock:
        sock.sendall(request)
        data = bytearray()
        while (reply := whole_reply(data)) is None:
            piece = sock.recv(_READ_BYTES)
            if not piece:
                raise ConnectionResetError("closed before the reply was whole")
            data += piece
        return reply


class _Client:
    """One connection with at most one request under way."""

    __slots__ = ("_data", "_expected_end", "_unsent", "exchange", "fault", "sent_s", "sock")

    def __init__(self, address: str, exchange: Exchange) -> None:
        self.sock = open_socket(address)
        self.sock.setblocking(False)
        self.exchange = exchange
        self.fault = ""  # what is wrong with the last reply
        self.sent_s = 0.0
        # With one request under way, a reply that ends so is whole and right: nothing needs to be parsed.
        self._expected_end = None if exchange.answer is None else b"\r\n\r\n" + exchange.answer
        self._data = b""
        self._unsent = memoryview(b"")

    def send(self) -> bool:
        """Begin the next request; False while a part of it waits for the socket. Raises OSError."""
        self.sent_s = perf_counter()
        request = self.exchange.request
        sent = self.sock.send(request)
        if sent == len(request):
            return True
        self._unsent = memoryview(request)[sent:]
        return False

    def send_rest(self) -> bool:
        self._unsent = self._unsent[self.sock.send(self._unsent) :]
        return not self._unsent

    def receive(self) -> bool:
        """Read what has come; True when the reply is whole. Raises OSError or ValueError when none can be had."""
        piece = self.sock.recv(_READ_BYTES)
        data = self._data + piece if self._data else piece
        if self._expected_end and data.endswith(self._expected_end) and data.startswith(_OK):
            self._data = b""
            return True
        reply = whole_reply(data)
        if reply is None:
            if not piece:
                raise ConnectionResetError("the server closed the connection")
            self._data = data
            return False
        self._data = b""
        if reply.status != 200:
            self.fault = f"status {reply.status}: {reply.body[:200]!r}"
        elif self.exchange.answer not in (None, reply.body):
            self.fault = f"another answer than before: {reply.body[:200]!r}"
        return True

    def take_what_is_owed(self, timeout_s: float) -> None:
        self.sock.settimeout(timeout_s)
        with suppress(OSError, ValueError):
            while self.sent_s and not self._unsent and not self.receive():
                pass


class ClosedLoop:
    """`connections` clients that share out `exchanges`, against one address."""

    def __init__(self, address: str, exchanges: Sequence[Exchange], connections: int) -> None:
        self._address = address
        self._epoll = select.epoll()
        self._clients: dict[int, _Client] = {}
        for index in range(connections):
            self._add(exchanges[index % len(exchanges)])
        self._latencies_s: list[float] = []
        self._errors = 0
        self._first_error = ""

    def run(self, warm_s: float, seconds: float, server_cpu_s: Callable[[], float]) -> Load:
        """Load for `warm_s`, then measure for `seconds`, a slow server longer. Raises TimeoutError when it stalls."""
        gc.collect()
        gc.disable()
        try:
            for client in list(self._clients.values()):
                self._send(client)
            self._turn(warm_s)
            self._latencies_s, self._errors, self._first_error = [], 0, ""
            begin_s, cpu_before_s = perf_counter(), server_cpu_s()
            self._turn(seconds, LEAST_PER_CLIENT * len(self._clients))
            cpu_after_s, end_s = server_cpu_s(), perf_counter()
        finally:
            gc.enable()
            self._close()
        ordered = sorted(self._latencies_s)
        return Load(
            answered=len(ordered),
            errors=self._errors,
            elapsed_s=end_s - begin_s,
            server_cpu_s=cpu_after_s - cpu_before_s,
            p50_ms=_quantile(ordered, 0.5) * 1000,
            p99_ms=_quantile(ordered, 0.99) * 1000,
            first_error=self._first_error,
        )

    def _turn(self, seconds: float, least: int = 0) -> None:
        """For `seconds`, or longer until `least` answers have come."""
        clients, latencies_s, poll = self._clients, self._latencies_s, self._epoll.poll
        begin_s = heard_s = perf_counter()
        while (spent_s := perf_counter() - begin_s) < seconds or (
            len(latencies_s) < least and spent_s < LONGEST * seconds
        ):
            for number, events in poll(0.1):
                client = clients[number]
                try:
                    if events & select.EPOLLOUT:
                        if client.send_rest():
                            self._epoll.modify(number, select.EPOLLIN)
                        continue
                    if not client.receive():
                        continue
                except (OSError, ValueError) as error:
                    self._replace(client, str(error))
                    continue
                heard_s = perf_counter()
                latencies_s.append(heard_s - client.sent_s)
                if client.fault:
                    self._note(client.fault)
                    client.fault = ""
                self._send(client)
            if begin_s + spent_s - heard_s > STALLED_S:
                raise TimeoutError(f"No answer for {STALLED_S:.0f} s at {self._address}.")

    def _send(self, client: _Client) -> None:
        try:
            if not client.send():
                self._epoll.modify(client.sock.fileno(), select.EPOLLOUT)
        except OSError as error:
            self._replace(client, str(error))

    def _replace(self, client: _Client, reason: str) -> None:
        self._note(reason)
        self._forget(client)
        self._send(self._add(client.exchange))

    def _note(self, reason: str) -> None:
        self._errors += 1
        self._first_error = self._first_error or reason

    def _add(self, exchange: Exchange) -> _Client:
        client = _Client(self._address, exchange)
        self._clients[client.sock.fileno()] = client
        self._epoll.register(client.sock.fileno(), select.EPOLLIN)
        return client

    def _forget(self, client: _Client) -> None:
        self._epoll.unregister(client.sock.fileno())
        del self._clients[client.sock.fileno()]
        client.sock.close()

    def _close(self) -> None:
        """Take the replies that are still owed, so that the next server in turn finds a quiet core."""
        end_s = perf_counter() + 5
        for client in self._clients.values():
            client.take_what_is_owed(max(0.1, end_s - perf_counter()))
            client.sock.close()
        self._epoll.close()
        time.sleep(0.1)


def _quantile(ordered: list[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))] if ordered else float("nan")
