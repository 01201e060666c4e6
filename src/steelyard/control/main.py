"""Control's process: opens the store, runs the API and the reconcile loop, and stops the replicas when told to end.

Started by the supervisor as `python -m steelyard.control`. Killed, it leaves replicas and routers at work, and the next
control finds them; told to end (SIGTERM, or the supervisor gone), it ends all replicas first.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import uvicorn
import uvloop

from steelyard.contracts.cost import StoredCalibration
from steelyard.control.api.app import build_app
from steelyard.control.api.parts import Parts
from steelyard.control.auto_calibration import AutoCalibration
from steelyard.control.autoscaler import Autoscaler
from steelyard.control.calibrations import Calibrations
from steelyard.control.costs import Costs
from steelyard.control.events import Events
from steelyard.control.instruments import Instruments
from steelyard.control.lifeline import watch_lifeline
from steelyard.control.operations import Operations
from steelyard.control.reconcile import RESERVED_VERSIONS, Reconciler
from steelyard.control.snapshots import Snapshots
from steelyard.control.store import Store
from steelyard.errors import SteelyardError
from steelyard.observe.logs import configure_logs, get_logger
from steelyard.policy.lease_book import LeaseBook
from steelyard.settings import Settings
from steelyard.substrate import LocalSubstrate

MISCONFIGURED_STATUS = 2  # starting it again would not help
API_GRACE_S = 2  # for calls in progress when control ends


async def serve(settings: Settings, substrate: LocalSubstrate | None = None) -> None:
    """Runs until told to end; then no replica is left. Raises Unavailable when the store cannot be opened."""
    log = get_logger()
    settings.home.mkdir(mode=0o700, parents=True, exist_ok=True)
    settings.sockets.mkdir(mode=0o700, exist_ok=True)
    substrate = substrate or LocalSubstrate(settings.replicas_dir, lifeline_fd=settings.lifeline_fd)
    store = await Store.open(settings.database_url)
    try:
        snapshots = Snapshots(*await store.reserve_versions(RESERVED_VERSIONS), routers=settings.routers)
        events, instruments = Events(store), Instruments()
        costs = Costs()
        await asyncio.to_thread(costs.load, settings.calibrations_dir)
        reconciler = Reconciler(
            settings,
            store=store,
            substrate=substrate,
            snapshots=snapshots,
            events=events,
            instruments=instruments,
            costs=costs,
        )
        autoscaler = _autoscaler(settings, reconciler, costs, events)
        await asyncio.to_thread(autoscaler.load)
        operations = Operations(settings, store, reconciler, events)

        def take(stored: StoredCalibration) -> None:
            costs.note(stored)
            reconciler.wake()

        calibrations = Calibrations(settings.calibrations_dir, on_kept=take)
        leases = LeaseBook(settings.routers)
        app = build_app(
            Parts(settings, operations, snapshots, substrate, instruments, calibrations, leases, store.usage)
        )
        server = _Server(uvicorn.Config(app, log_config=None, access_log=False, timeout_graceful_shutdown=API_GRACE_S))
        ended = _end_signals(settings.lifeline_fd)
        async with asyncio.TaskGroup() as group:
            api = group.create_task(server.serve(sockets=[_listen(settings.control_address)]))
            works: list[_Work] = [reconciler, autoscaler, events, calibrations]
            if settings.auto_calibration:
                works.append(_auto_calibration(settings, reconciler, calibrations, costs, events))
            loops = [group.create_task(work.run()) for work in works]
            log.info("control_started")
            await ended.wait()
            log.info("control_stops")
            for loop in loops:
                loop.cancel()
            snapshots.close()
            server.should_exit = True
            await api
        await reconciler.stop_all()
        with contextlib.suppress(SteelyardError):
            await events.flush()
    finally:
        await store.close()
        log.info("control_stopped")


def _autoscaler(settings: Settings, reconciler: Reconciler, costs: Costs, events: Events) -> Autoscaler:
    autoscaler = Autoscaler(
        settings,
        fleet=reconciler.fleet,
        endpoints=reconciler.endpoints,
        changed=reconciler.wake,
        costs=costs,
        events=events,
    )
    reconciler.replicas_of, reconciler.task_of = autoscaler.replicas_of, autoscaler.task_of
    reconciler.on_ready = autoscaler.note_ready
    return autoscaler


def _auto_calibration(
    settings: Settings, reconciler: Reconciler, calibrations: Calibrations, costs: Costs, events: Events
) -> AutoCalibration:
    return AutoCalibration(
        reconciler,
        calibrations,
        costs,
        events,
        kept=str(settings.calibrations_dir),
        quiet_s=settings.calibration_quiet_s,
        budget_s=settings.calibration_budget_s or None,
    )


class _Work(Protocol):
    async def run(self) -> None: ...


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield  # signals are ours


def _end_signals(lifeline_fd: int) -> asyncio.Event:
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    for signum in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(signum, ended.set)
    watch_lifeline(lifeline_fd, ended.set)
    return ended


def _listen(address: str) -> socket.socket:
    path = Path(address.removeprefix("unix:"))
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(str(path))
    path.chmod(0o600)
    listener.listen(256)
    listener.setblocking(False)
    return listener


def main() -> None:
    settings = Settings.from_env()
    configure_logs("control", settings.log_level)
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(serve(settings))
    except ValueError as error:
        get_logger().error("control_misconfigured", reason=str(error))
        sys.exit(MISCONFIGURED_STATUS)
    except SteelyardError as error:
        get_logger().error("control_failed", reason=error.message)
        sys.exit(1)
