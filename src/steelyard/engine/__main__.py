"""The engine process: `python -m steelyard.engine <socket fd> <EngineOptions as JSON>`.

`runtimes/engine_process.py` starts it. It loads the model, says Loaded or Failed, and serves the socket until that
closes. An exception in a step is a bug and ends the process: the runtime reports it and the replica is replaced.
"""

from __future__ import annotations

import secrets
import signal
import socket
import sys
from pathlib import Path

import msgspec
import torch

from steelyard.engine.core import Engine
from steelyard.engine.formats import open_checkpoint
from steelyard.engine.loop import Connection, EngineLoop, Gone
from steelyard.engine.messages import EngineOptions, Failed, Limits, Loaded, Loading
from steelyard.engine.model import LlamaModel
from steelyard.engine.sizing import engine_limits
from steelyard.engine.weights import WeightLoader
from steelyard.errors import ModelLoadError
from steelyard.observe.logs import configure_logs, get_logger
from steelyard.observe.machine import available_memory_bytes, memory_limit_bytes, usable_cores


def main(arguments: list[str]) -> int:
    peer = socket.socket(fileno=int(arguments[0]))
    options = msgspec.json.decode(arguments[1], type=EngineOptions)
    # A signal to the whole process group is the replica's business: it drains, then closes the socket.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    configure_logs("engine")
    torch.set_num_threads(options.threads or usable_cores())
    connection = Connection(peer)
    try:
        try:
            engine, limits = _load(options, connection)
        except ModelLoadError as error:
            connection.send(Failed(error.message))
            return 1
        get_logger().info(
            "engine_loaded",
            model=options.path,
            max_model_len=limits.max_model_len,
            kv_blocks=limits.num_blocks,
            threads=torch.get_num_threads(),
        )
        connection.send(Loaded(limits))
        EngineLoop(engine, connection).run()
    except Gone:
        get_logger().info("engine_left_alone")
    return 0


def _load(options: EngineOptions, connection: Connection) -> tuple[Engine, Limits]:
    """Raises ModelLoadError, Gone."""
    connection.send(Loading("loading weights"))
    checkpoint = open_checkpoint(Path(options.path))
    config = checkpoint.config
    try:
        longest = min(config.context_length, options.max_model_len or config.context_length)
        model = LlamaModel(config, WeightLoader(checkpoint.tensors), longest)
        limits = engine_limits(
            config, options, memory_limit_bytes=memory_limit_bytes(), available_bytes=available_memory_bytes()
        )
        engine = Engine(model, limits, options.token_budget, draw_seed=lambda: secrets.randbits(63))
        connection.send(Loading("computing a first token"))
        engine.warm_up()
    except (MemoryError, RuntimeError) as error:  # torch raises the latter for memory that it can't get
        raise ModelLoadError(f"The model cannot be set up: {error}") from error
    return engine, limits


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
