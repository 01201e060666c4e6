"""Where the tiny replica program lies, and what it is told, for tests that start it."""

from pathlib import Path

TINY_REPLICA = str(Path(__file__).with_name("tiny_replica.py"))
