"""What a small POST costs through the router, beside nginx in front of the same upstream in the same run.

Prints CPU microseconds per request (closed loop, saturated) and the latency that each proxy adds at 70 % of the
router's saturation (open loop, fixed arrivals). The router is the real process with a snapshot on disk, with
authentication, ledger, routing and metrics as always. Proxies run on core 0; load and upstream on the last core.
A client that keeps its connection repeats its head, which the router remembers; so a further row sends a new request
id, and so a new head, with each request. Rounds alternate between the proxies. CPU and p50 are those of the least
disturbed round, since a neighbour can only add; p99 is the median of the rounds, since the worst moments are its
subject. The other figure of each pair stands beside it.

    python benchmarks/router.py [--rounds 5] [--seconds 2] [--json]

nginx and wrk are taken from the system; without nginx there is no ratio, without wrk a small generator stands in.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import uvloop

from rig.ours import TOKEN, settings_in, start_router
from rig.processes import LOAD_CORE, SERVER_CORE, cpu_s, free_port
from steelyard.contracts.snapshot import ReplicaView

BODY = b'{"dataframe_split":{"columns":["a","b","c","d"],"data":[[5.1,3.5,1.4,0.2]]}}'
PATH = "/serving-endpoints/iris/invocations"
ANSWER = b'{"predictions":[0]}'
CONNECTIONS = 64
SHARE = 0.7  # of saturation: the load under which latency is measured
TOLERATED_SHARE = 0.8  # of the saturation measured right afterwards
DISCARDS = 4  # rounds that may be thrown away for one that counts
PROXY_CORE = SERVER_CORE


# --- the upstream: as little as can answer


class _Answering(asyncio.Protocol):
    """Answers each read with the same reply: our load sends one small request per read."""

    reply = (
        b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nendpoint-load-metrics: {}\r\n"
        b"x-steelyard-usage: rows=1\r\ncontent-length: " + str(len(ANSWER)).encode() + b"\r\n\r\n" + ANSWER
    )

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.transport.write(self.reply)


async def _serve_upstream(path: str) -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_unix_server(_Answering, path, backlog=1024)
    await server.serve_forever()


# --- the load: fixed arrivals over a pool of connections


class _Client(asyncio.Protocol):
    def __init__(self, load: _OpenLoop) -> None:
        self.load = load
        self.due_s = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self.load.free.append(self)

    def data_received(self, data: bytes) -> None:
        if not data.startswith(b"HTTP/1.1 200"):
            self.load.errors += 1
        self.load.latencies_s.append(time.perf_counter() - self.due_s)
        self.load.answered(self)


class _OpenLoop:
    """Sends at fixed times whatever the answers do; latency counts from when a request was due."""

    def __init__(self, request: bytes) -> None:
        self.request = request
        self.free: list[_Client] = []
        self.late: list[float] = []  # due, but no connection was free
        self.latencies_s: list[float] = []
        self.errors = 0

    def send(self, due_s: float) -> None:
        if not self.free:
            self.late.append(due_s)
            return
        client = self.free.pop()
        client.due_s = due_s
        client.transport.write(self.request)

    def answered(self, client: _Client) -> None:
        self.free.append(client)
        if self.late:
            self.send(self.late.pop(0))


async def _open_loop(address: str, rate: float, seconds: int, connections: int) -> dict[str, float]:
    loop = asyncio.get_running_loop()
    load = _OpenLoop(_request_bytes())
    for _ in range(connections):
        if address.startswith("/"):
            await loop.create_unix_connection(lambda: _Client(load), address)
        else:
            host, port = address.split(":")
            await loop.create_connection(lambda: _Client(load), host, int(port))
    warm = int(rate * 0.3)
    total = warm + int(rate * seconds)
    begin_s = time.perf_counter() + 0.05
    sent = 0
    while sent < total:
        due_count = min(total, int((time.perf_counter() - begin_s) * rate) + 1)
        while sent < due_count:
            load.send(begin_s + sent / rate)
            sent += 1
        await asyncio.sleep(0.001)
    for _ in range(500):
        if len(load.latencies_s) >= total:
            break
        await asyncio.sleep(0.01)
    measured = sorted(load.latencies_s[warm:])
    if load.errors or len(load.latencies_s) < total:
        raise SystemExit(f"{load.errors} errors, {total - len(load.latencies_s)} without an answer at {address}")
    return {"p50_ms": _quantile(measured, 0.5) * 1000, "p99_ms": _quantile(measured, 0.99) * 1000}


def _quantile(ordered: list[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def _request_bytes(request_id: str = "") -> bytes:
    head = f"POST {PATH} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {TOKEN}\r\naccept: */*\r\n"
    head += f"user-agent: benchmark\r\ncontent-type: application/json\r\ncontent-length: {len(BODY)}\r\n\r\n"
    if request_id:
        head = head.replace("accept:", f"x-request-id: {request_id}\r\naccept:")
    return head.encode() + BODY


# --- processes


@dataclass(frozen=True)
class Proxy:
    name: str
    port: int
    pids: tuple[int, ...]

    def cpu_s(self) -> float:
        return cpu_s(list(self.pids))


@contextmanager
def _process(command: list[str], core: int, env: dict[str, str] | None = None) -> Iterator[subprocess.Popen[bytes]]:
    pinned = ["taskset", "-c", str(core), *command] if shutil.which("taskset") else command
    process = subprocess.Popen(pinned, env={**os.environ, **(env or {})}, stdout=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _await_answer(port: int) -> None:
    deadline_s = time.monotonic() + 15
    while time.monotonic() < deadline_s:
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=1) as sock:
                sock.sendall(_request_bytes())
                if sock.recv(64).startswith(b"HTTP/1.1 200"):
                    return
        except OSError:
            pass
        time.sleep(0.05)
    raise SystemExit(f"No answer on port {port}.")


@contextmanager
def _router(home: Path, upstream: str) -> Iterator[Proxy]:
    with ExitStack() as stack:
        settings = settings_in(home, stack)
        replica = ReplicaView(id="iris-1", address=f"unix:{upstream}", max_concurrency=CONNECTIONS)
        server = start_router(settings, stack, {"iris": replica}, PROXY_CORE)
        _await_answer(settings.port)
        yield Proxy("steelyard router", settings.port, (server.process.pid,))


@contextmanager
def _nginx(home: Path, upstream: str) -> Iterator[Proxy]:
    port = free_port()
    conf = home / "nginx.conf"
    user = "user root; " if os.getuid() == 0 else ""  # the workers must reach the upstream's private folder
    conf.write_text(f"""
{user}worker_processes 1; daemon off; pid {home}/nginx.pid; error_log {home}/nginx.log warn;
events {{ worker_connections 2048; }}
http {{
  access_log off; keepalive_requests 1000000000;
  client_body_temp_path {home}/body; proxy_temp_path {home}/proxy; fastcgi_temp_path {home}/fastcgi;
  uwsgi_temp_path {home}/uwsgi; scgi_temp_path {home}/scgi;
  upstream replica {{ server unix:{upstream}; keepalive 256; keepalive_requests 1000000000; }}
  server {{
    listen 127.0.0.1:{port} backlog=1024;
    location / {{ proxy_pass http://replica; proxy_http_version 1.1; proxy_set_header Connection ""; }}
  }}
}}
""")
    nginx = shutil.which("nginx") or "/usr/sbin/nginx"
    with _process([nginx, "-p", str(home), "-c", str(conf)], PROXY_CORE) as master:
        _await_answer(port)
        children = Path(f"/proc/{master.pid}/task/{master.pid}/children").read_text().split()
        yield Proxy("nginx", port, tuple(int(pid) for pid in children))


# --- measuring


def _saturate(proxy: Proxy, seconds: int, home: Path, *, new_heads: bool = False) -> tuple[float, float]:
    """Requests/s and CPU microseconds per request of the proxy, in a closed loop."""
    before_s = proxy.cpu_s()
    wrk = shutil.which("wrk")
    if wrk is None:
        answered, elapsed_s = _closed_loop_without_wrk(proxy, seconds, new_heads)
    else:
        script = home / "post.lua"
        script.write_text(
            f"wrk.method='POST'\nwrk.body='{BODY.decode()}'\nwrk.headers['authorization']='Bearer {TOKEN}'\n"
            "wrk.headers['content-type']='application/json'\nwrk.headers['accept']='*/*'\n"
            "wrk.headers['user-agent']='benchmark'\n"
            + (
                "local n=0\nrequest=function() n=n+1 wrk.headers['x-request-id']='r'..n return wrk.format() end\n"
                * new_heads
            )
            + "done=function(s,l,r) io.write(string.format('RESULT %d %d %d\\n', s.requests, s.duration,"
            " s.errors.status+s.errors.connect+s.errors.read+s.errors.write+s.errors.timeout)) end\n"
        )
        command = [
            wrk,
            "-t1",
            f"-c{CONNECTIONS}",
            f"-d{seconds}s",
            "-s",
            str(script),
            f"http://127.0.0.1:{proxy.port}{PATH}",
        ]
        if shutil.which("taskset"):
            command = ["taskset", "-c", str(LOAD_CORE), *command]
        output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        line = next(line for line in output.splitlines() if line.startswith("RESULT"))
        answered, micros, errors = (int(word) for word in line.split()[1:])
        if errors:
            raise SystemExit(f"{errors} errors through {proxy.name}")
        elapsed_s = micros / 1e6
    cpu_s = proxy.cpu_s() - before_s
    return answered / elapsed_s, cpu_s / answered * 1e6


def _closed_loop_without_wrk(proxy: Proxy, seconds: int, new_heads: bool) -> tuple[int, float]:
    """A few blocking connections in processes of their own would cost more than wrk; one loop has to do."""
    command = [sys.executable, __file__, "--closed", f"127.0.0.1:{proxy.port}", "--seconds", str(seconds)]
    command += ["--new-heads"] if new_heads else []
    if shutil.which("taskset"):
        command = ["taskset", "-c", str(LOAD_CORE), *command]
    result = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return int(result["answered"]), float(result["elapsed_s"])


async def _closed_loop(address: str, seconds: int, new_heads: bool) -> dict[str, float]:
    host, port = address.split(":")
    answered = 0
    end_s = time.perf_counter() + seconds
    request = _request_bytes()

    async def one() -> None:
        nonlocal answered
        reader, writer = await asyncio.open_connection(host, int(port))
        while time.perf_counter() < end_s:
            writer.write(_request_bytes(f"r{answered}-{id(writer)}") if new_heads else request)
            await reader.readuntil(ANSWER)
            answered += 1
        writer.close()

    begin_s = time.perf_counter()
    await asyncio.gather(*(one() for _ in range(CONNECTIONS)))
    return {"answered": answered, "elapsed_s": time.perf_counter() - begin_s}


def _latency(address: str, rate: float, seconds: int) -> dict[str, float]:
    command = [sys.executable, __file__, "--open", address, "--rate", str(rate), "--seconds", str(seconds)]
    if shutil.which("taskset"):
        command = ["taskset", "-c", str(LOAD_CORE), *command]
    result: dict[str, float] = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return result


def _measure(rounds: int, seconds: int) -> dict[str, float]:
    with ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-")))
        upstream = str(home / "up.sock")
        stack.enter_context(_process([sys.executable, __file__, "--upstream", upstream], LOAD_CORE))
        _await_file(upstream)
        proxies = [stack.enter_context(_router(home, upstream))]
        if shutil.which("nginx") or Path("/usr/sbin/nginx").exists():
            proxies.append(stack.enter_context(_nginx(home, upstream)))
        else:
            print("nginx is not installed (Debian: apt install nginx-light): no ratio.", file=sys.stderr)
        rates: dict[str, list[float]] = {proxy.name: [] for proxy in proxies}
        costs: dict[str, list[float]] = {proxy.name: [] for proxy in proxies}
        new_heads: list[tuple[float, float]] = []
        for _ in range(rounds):
            for proxy in proxies:
                rate, cost = _saturate(proxy, seconds, home)
                rates[proxy.name].append(rate)
                costs[proxy.name].append(cost)
            new_heads.append(_saturate(proxies[0], seconds, home, new_heads=True))
        direct: list[dict[str, float]] = []
        through: dict[str, list[dict[str, float]]] = {proxy.name: [] for proxy in proxies}
        open_rates: list[float] = []
        discarded = 0
        while len(open_rates) < rounds and discarded < DISCARDS * rounds:
            # A shared machine's speed changes from second to second, and saturation with it: it is measured before
            # and after, and a round in which the load was not 70 % of it after all does not count.
            rate = SHARE * _saturate(proxies[0], 1, home)[0]
            samples = {proxy.name: _latency(f"127.0.0.1:{proxy.port}", rate, seconds) for proxy in proxies}
            if rate > TOLERATED_SHARE * _saturate(proxies[0], 1, home)[0]:
                discarded += 1
                continue
            open_rates.append(rate)
            direct.append(_latency(upstream, rate, seconds))
            for name, sample in samples.items():
                through[name].append(sample)
        if not open_rates:
            raise SystemExit("The machine's speed changed too much for any latency to be measured; try again.")
        result: dict[str, float] = {
            "open_loop_rps": statistics.median(open_rates),
            "open_loop_rounds": len(open_rates),
            "open_loop_discarded": discarded,
        }
        for proxy in proxies:
            key = "router" if proxy.name != "nginx" else "nginx"
            result[f"{key}_rps"] = max(rates[proxy.name])
            result[f"{key}_cpu_us"] = min(costs[proxy.name])
            result[f"{key}_cpu_median_us"] = statistics.median(costs[proxy.name])
            samples = through[proxy.name]
            result[f"{key}_added_p50_ms"] = min(_each(samples, "p50_ms")) - min(_each(direct, "p50_ms"))
            added_ms = [at - base for at, base in zip(_each(samples, "p99_ms"), _each(direct, "p99_ms"), strict=True)]
            result[f"{key}_added_p99_ms"] = statistics.median(added_ms)
            result[f"{key}_added_p99_best_ms"] = min(_each(samples, "p99_ms")) - min(_each(direct, "p99_ms"))
        result["router_new_heads_rps"] = max(rate for rate, _ in new_heads)
        result["router_new_heads_cpu_us"] = min(cost for _, cost in new_heads)
        result["router_new_heads_cpu_median_us"] = statistics.median(cost for _, cost in new_heads)
        if "nginx_cpu_us" in result:
            result["ratio_cpu_vs_nginx_new_heads"] = result["router_new_heads_cpu_us"] / result["nginx_cpu_us"]
            result["ratio_cpu_vs_nginx"] = result["router_cpu_us"] / result["nginx_cpu_us"]
        return result


def _each(samples: list[dict[str, float]], name: str) -> list[float]:
    return [sample[name] for sample in samples]


def _await_file(path: str) -> None:
    deadline_s = time.monotonic() + 10
    while not Path(path).exists():
        if time.monotonic() > deadline_s:
            raise SystemExit(f"{path} did not appear.")
        time.sleep(0.02)


def _print_table(result: dict[str, float]) -> None:
    heads = {"CPU µs/request": 16, "(median)": 10, "÷ nginx": 9, "requests/s": 12}
    heads |= {"added p50 ms": 14, "added p99 ms": 14, "(best)": 9}
    print(" " * 22 + "".join(f"{head:>{width}}" for head, width in heads.items()))
    for key, name in (("router", "steelyard router"), ("router_new_heads", "  every head new"), ("nginx", "nginx")):
        cost = result.get(f"{key}_cpu_us")
        if cost is None:
            continue
        ratio = f"{cost / result['nginx_cpu_us']:9.2f}" if "nginx_cpu_us" in result else " " * 9
        line = f"{name:22}{cost:16.1f}{result[f'{key}_cpu_median_us']:10.1f}{ratio}{result[f'{key}_rps']:12.0f}"
        if f"{key}_added_p50_ms" in result:
            line += f"{result[f'{key}_added_p50_ms']:14.2f}{result[f'{key}_added_p99_ms']:14.2f}"
            line += f"{result[f'{key}_added_p99_best_ms']:9.2f}"
        print(line)
    print("Targets: at most 3 times nginx's CPU per request; added p99 below 10 ms.")
    print(
        f"Latency at {result['open_loop_rps']:.0f} requests/s, 70 % of the router's saturation: "
        f"{result['open_loop_rounds']:.0f} rounds, {result['open_loop_discarded']:.0f} discarded for a change of speed."
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=2, help="length of each measurement")
    parser.add_argument("--json", action="store_true", help="end with one line of JSON")
    for hidden in ("--upstream", "--open", "--closed"):
        parser.add_argument(hidden, help=argparse.SUPPRESS)
    parser.add_argument("--new-heads", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--rate", type=float, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.upstream:
        uvloop.run(_serve_upstream(arguments.upstream))
    elif arguments.open:
        print(json.dumps(uvloop.run(_open_loop(arguments.open, arguments.rate, arguments.seconds, 4 * CONNECTIONS))))
    elif arguments.closed:
        print(json.dumps(uvloop.run(_closed_loop(arguments.closed, arguments.seconds, arguments.new_heads))))
    else:
        result = _measure(arguments.rounds, arguments.seconds)
        _print_table(result)
        if arguments.json:
            print(json.dumps({key: round(value, 3) for key, value in result.items()}))


if __name__ == "__main__":
    main()
