"""A supervisor in a process of its own: prints one JSON line when the platform is up, then waits to be told to end."""

import asyncio
import json
import sys
from pathlib import Path

from steelyard.settings import Settings
from steelyard.supervisor import StartError, Supervisor


async def run(home: Path, port: int) -> None:
    settings = Settings.from_env(home=home, port=port, drain_timeout_s=5.0)
    async with Supervisor(settings) as platform:
        told = {"port": platform.settings.port, "token": platform.first_token, "url": platform.settings.url}
        print(json.dumps(told), flush=True)
        await platform.wait()
    print("stopped", flush=True)


try:
    asyncio.run(run(Path(sys.argv[1]), int(sys.argv[2])))
except StartError as error:
    print(f"refused: {error}", flush=True)
    sys.exit(1)
