"""Control's real process, but with tiny replicas: what `python -m steelyard.control` does, with another command."""

import asyncio
import sys

from steelyard.control.main import serve
from steelyard.observe.logs import configure_logs
from steelyard.settings import Settings
from steelyard.substrate import LocalSubstrate
from support.tiny import TINY_REPLICA

settings = Settings.from_env()
configure_logs("control", settings.log_level)
command = [sys.executable, "-S", TINY_REPLICA]
substrate = LocalSubstrate(settings.replicas_dir, command=command, lifeline_fd=settings.lifeline_fd)
asyncio.run(serve(settings, substrate))
