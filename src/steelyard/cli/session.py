"""One run of `steelyard up`, from the first process to the last: start, samples, welcome, wait, stop.

Called by `up`. Talks to the platform through the public API like any client; the supervisor owns the processes.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import Any

from steelyard.cli.client import Client
from steelyard.cli.connection import Connection
from steelyard.cli.deploy import apply, entity_config, progress_of
from steelyard.cli.failures import CliError
from steelyard.cli.progress import Mark, Progress, progress
from steelyard.cli.snippets import python_here, snippets
from steelyard.cli.up import connection_for
from steelyard.cli.view import Json, console, endpoints_table, outcome_of
from steelyard.samples.catalog import SAMPLES
from steelyard.settings import Settings
from steelyard.supervisor import StartError, Supervisor

POLL_S = 0.3
READY_TIMEOUT_S = 60.0


def run_session(current: Settings, *, with_samples: bool) -> None:
    """Returns when the platform has stopped and none of its processes is left."""
    try:
        asyncio.run(_session(current, with_samples=with_samples))
    except StartError as error:
        raise CliError(str(error), f"The processes' own logs lie in {current.logs_dir}.") from error


async def _session(current: Settings, *, with_samples: bool) -> None:
    async with Supervisor(current) as platform:
        current = platform.settings
        connection = connection_for(current, platform.first_token)
        introduction = asyncio.create_task(_introduce(current, connection, with_samples=with_samples))
        ended = asyncio.create_task(platform.wait())
        try:
            await asyncio.wait({introduction, ended}, return_when=asyncio.FIRST_COMPLETED)
            if introduction.done() and not introduction.cancelled():
                introduction.result()
                await ended
        finally:
            for task in (introduction, ended):
                task.cancel()
            await asyncio.gather(introduction, ended, return_exceptions=True)
            print("\nStopping…", flush=True)
    print("Stopped.", flush=True)


async def _introduce(current: Settings, connection: Connection, *, with_samples: bool) -> None:
    """Bring the platform to the point where it answers, and say how to ask it."""
    with Client(connection, timeout_s=10) as client:
        with progress() as shown:
            await _until_ready(client, shown)
            if current.auth and connection.token is None:
                shown.show("endpoints", "they come up, but there is no token here to ask for them", Mark.SKIPPED)
                endpoints = []
            else:
                if with_samples:
                    await _deploy_samples(current, client, shown)
                endpoints = await _until_settled(client, shown, current.start_timeout_s + READY_TIMEOUT_S)
        _welcome(current, connection, endpoints)


async def _until_ready(client: Client, shown: Progress) -> None:
    shown.show("platform", "starting")
    deadline_s = time.monotonic() + READY_TIMEOUT_S
    while not await asyncio.to_thread(client.ready):
        if time.monotonic() > deadline_s:
            raise CliError(
                f"The platform did not become ready in {READY_TIMEOUT_S:.0f} s.", "Its logs lie in the home folder."
            )
        await asyncio.sleep(POLL_S / 3)
    shown.show("platform", "ready", Mark.DONE)


async def _deploy_samples(current: Settings, client: Client, shown: Progress) -> None:
    """Deploy each sample as soon as its model is there. One that fails does not keep the others away."""
    for sample in SAMPLES:
        shown.show(sample.name, "preparing the model")
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "steelyard.samples", str(current.samples_dir)),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        assert process.stdout
        assert process.stderr
        trouble = asyncio.create_task(process.stderr.read())
        try:
            async for line in process.stdout:
                await _deploy_sample(json.loads(line), client, shown)
            last_words = (await trouble).decode(errors="replace").strip().splitlines()[-1:]
        finally:
            trouble.cancel()
        if await process.wait() < 0 or (process.returncode and last_words):
            shown.show("samples", " ".join(last_words) or "their preparation was killed", Mark.FAILED)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def _deploy_sample(prepared: Json, client: Client, shown: Progress) -> None:
    name = str(prepared["name"])
    if not prepared["ready"]:
        shown.show(name, str(prepared["reason"]), Mark.FAILED if prepared.get("failed") else Mark.SKIPPED)
        return
    try:
        existing = await asyncio.to_thread(client.find_endpoint, name)
        if existing is None or _serves_another(existing, prepared["uri"]):
            await asyncio.to_thread(apply, client, name, entity_config(str(prepared["uri"])))
        shown.show(name, "starting")
    except CliError as error:
        shown.show(name, error.message, Mark.FAILED)


def _serves_another(endpoint: Json, uri: Any) -> bool:
    """The endpoint of a sample's name should serve the sample: after a move of the home its model lies elsewhere."""
    if outcome_of(endpoint) == "working":
        return False
    configured = [entity.get("entity_name") for entity in (endpoint.get("config") or {}).get("served_entities") or []]
    return outcome_of(endpoint) == "failed" or configured != [uri]


async def _until_settled(client: Client, shown: Progress, timeout_s: float) -> list[Json]:
    """Watch all endpoints until each is ready, failed or stopped. A failed one is shown, not raised.

    One that is still at work after `timeout_s` is left to go on by itself. A platform that does not answer now (its
    control starts again, say) is asked again: what only watches must not end it.
    """
    deadline_s = time.monotonic() + timeout_s
    endpoints: list[Json] = []
    while True:
        try:
            endpoints = await asyncio.to_thread(client.endpoints)
        except CliError:
            if time.monotonic() > deadline_s:
                return endpoints
            await asyncio.sleep(POLL_S)
            continue
        for endpoint in endpoints:
            shown.show(str(endpoint["name"]), *progress_of(endpoint))
        settled = all(outcome_of(endpoint) != "working" for endpoint in endpoints)
        if settled or time.monotonic() > deadline_s:
            return endpoints
        await asyncio.sleep(POLL_S)


def _welcome(current: Settings, connection: Connection, endpoints: list[Json]) -> None:
    print(f"\nSteelyard is ready at {connection.url}")
    if connection.token:
        print(f"token: {connection.token}  (kept in {current.client_file} for this machine's `steelyard` commands)")
    if endpoints:
        print()
        console().print(endpoints_table(endpoints))
    else:
        print("\nNo endpoints yet. `steelyard deploy NAME URI` makes one; `steelyard up --samples` brings three.")
    ready = {str(endpoint["name"]) for endpoint in endpoints if outcome_of(endpoint) == "ready"}
    for title, text in snippets(connection, ready, python_here()):
        print(f"\n# {title}\n{text}")
    for endpoint in endpoints:
        if outcome_of(endpoint) != "ready":
            print(
                f"\n{endpoint['name']}: {progress_of(endpoint)[0]}  (`steelyard events {endpoint['name']}` tells more)"
            )
    print("\nCtrl-C stops everything.", flush=True)
