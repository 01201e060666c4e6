"""The router process: `python -m steelyard.router --index 0`.

Started by the supervisor with its settings in the environment. Ends with status 0 after a drain, on SIGTERM, SIGINT or
when the supervisor is gone (end-of-file on the lifeline).
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import os
import resource
import signal
import sys
from collections.abc import Callable
from random import Random

import uvloop

from steelyard.observe.logs import configure_logs, get_logger
from steelyard.router.admin import Admin
from steelyard.router.app import Router
from steelyard.router.snapshot import SNAPSHOT_FILE, SnapshotFeed
from steelyard.router.usage_feed import UsageFeed
from steelyard.settings import HttpLimits, Settings
from steelyard.wire.server import HttpServer

_SWEEP_S = 0.1

log = get_logger()


def main() -> int:
    parser = argparse.ArgumentParser(prog="steelyard.router")
    parser.add_argument("--index", type=int, default=0, help="number of this router, from 0")
    arguments = parser.parse_args()
    settings = Settings.from_env()
    configure_logs(f"router-{arguments.index}", settings.log_level)
    _allow_many_connections()
    uvloop.run(_serve(settings, arguments.index))
    return 0


async def _serve(settings: Settings, index: int) -> None:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    _watch_lifeline(loop, settings.lifeline_fd, stop.set)
    settings.sockets.mkdir(mode=0o700, parents=True, exist_ok=True)

    router = Router(settings, Random(), index)
    feed = SnapshotFeed(router.control_pool, settings.home / SNAPSHOT_FILE, index, router.apply, router.note_control)
    feed.load()
    usage = UsageFeed(router.table.tallies, router.control_pool, settings.home / f"router-usage-{index}.json")
    usage.load()
    admin = HttpServer(Admin(router).handle, HttpLimits(), idle_timeouts=False)
    await admin.listen(settings.router_address(index))
    public = HttpServer(router.handle, HttpLimits(), on_head=router.check_head)
    await public.listen(f"tcp:{settings.host}:{settings.port}", reuse_port=True)
    log.info("router_listening", host=settings.host, port=public.port)

    _keep_collections_rare()
    async with asyncio.TaskGroup() as tasks:
        background = [tasks.create_task(work) for work in (feed.run(), usage.run(), _sweep(router))]
        if router.leases is not None:
            background.append(tasks.create_task(router.leases.run()))
        await stop.wait()
        log.info("router_draining", in_flight=router.ledger.in_flight, queued=router.totals.requests)
        router.draining = True
        await public.stop(settings.drain_timeout_s)
        for task in background:
            task.cancel()
    await usage.flush()
    await admin.stop(0.5)
    log.info("router_stopped", in_flight=router.ledger.in_flight)


async def _sweep(router: Router) -> None:
    while True:
        await asyncio.sleep(_SWEEP_S)
        try:
            router.sweep()
        except Exception:  # a fault in one request must not end the others
            log.exception("sweep_failed")


def _watch_lifeline(loop: asyncio.AbstractEventLoop, descriptor: int, gone: Callable[[], None]) -> None:
    """Call `gone` when the pipe's other end is closed."""
    if descriptor < 0:
        return

    def readable() -> None:
        if not os.read(descriptor, 4096):
            loop.remove_reader(descriptor)
            gone()

    loop.add_reader(descriptor, readable)


def _allow_many_connections() -> None:
    """Two descriptors per request in flight: take as many as the system gives."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _keep_collections_rare() -> None:
    """Requests make no cycles that outlive them, and what exists by now stays: collecting is seldom worth its pause."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)


if __name__ == "__main__":
    sys.exit(main())
