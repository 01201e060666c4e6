"""Which reader opens a path: the one way to get a checkpoint, for the replica and for the engine process alike."""

from __future__ import annotations

from pathlib import Path

from steelyard.engine import gguf_checkpoint, huggingface
from steelyard.engine.checkpoint import Checkpoint
from steelyard.errors import ModelLoadError


def open_checkpoint(path: Path) -> Checkpoint:
    """Open a `.gguf` file, a directory with one, or a Hugging Face directory.

    Raises ModelLoadError with one sentence; what is not supported is named. No weight is read yet.
    """
    if path.is_dir():
        if (path / "config.json").exists():
            return huggingface.open_directory(path)
        files = sorted(path.glob("*.gguf"))
        if len(files) == 1:
            return gguf_checkpoint.open_file(files[0])
        raise ModelLoadError(f"{path} holds neither a config.json nor exactly one .gguf file.")
    if not path.is_file():
        raise ModelLoadError(f"{path} does not exist.")
    if path.suffix != ".gguf":
        raise ModelLoadError(f"{path.name} is neither a .gguf file nor a Hugging Face directory.")
    return gguf_checkpoint.open_file(path)
