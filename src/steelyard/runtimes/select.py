"""Which runtime runs a package, and why: decided from what its files say, and for classic models by proof.

Called by the replica once, in its loading thread. A language model goes to the LLM engine. Any other model goes to
`proven.py`, which takes the fastest runtime that says what the model itself says. Imports a runtime only when it is
chosen, so that a classic model's replica never loads the language-model runtime, nor the reverse.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from steelyard.errors import ModelLoadError
from steelyard.packages import Kind, Package
from steelyard.runtimes.base import GenerateRuntime
from steelyard.settings import Settings

if TYPE_CHECKING:
    from steelyard.runtimes.native_model import NativeModel
    from steelyard.runtimes.workers import WorkerRuntime

_LLM = {Kind.GGUF: "a GGUF file", Kind.HUGGING_FACE: "a Hugging Face folder"}


@dataclass(frozen=True, slots=True)
class Wishes:
    """`say` takes what is being done now, `building` whether that is the model's environment. `environment_vars` are
    the user's; `labels` say in logs whose model it is; `max_concurrency` None is the runtime's own choice."""

    settings: Settings
    max_concurrency: int | None = None
    environment_vars: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    say: Callable[[str], None] = lambda _: None
    building: Callable[[bool], None] = lambda _: None


@dataclass(frozen=True, slots=True)
class Selection:
    """Exactly one of the three is set; `reason` is for the log, the events and the user. A worker is loaded already.

    `package` stands for the given one where that was a bare file.
    """

    reason: str
    package: Package | None = None
    native: NativeModel | None = None
    worker: WorkerRuntime | None = None
    generate: GenerateRuntime | None = None


def select(package: Package, wishes: Wishes) -> Selection:
    """Raises ModelLoadError."""
    if package.kind in _LLM:
        return _language_model(package, wishes)
    try:
        from steelyard.runtimes.proven import prove_and_choose  # noqa: PLC0415
    except ImportError as error:
        raise ModelLoadError(f"Classic models need {error.name}; install steelyard[mlflow].") from error
    return prove_and_choose(package, wishes)


def _language_model(package: Package, wishes: Wishes) -> Selection:
    try:
        from steelyard.runtimes.llm import LlmRuntime  # noqa: PLC0415
    except ImportError as error:
        raise ModelLoadError(f"Language models need {error.name}; install steelyard[llm].") from error
    what = _LLM[package.kind] + (f" ({package.architecture})" if package.architecture else "")
    runtime = LlmRuntime(package.path, max_concurrency=wishes.max_concurrency)
    return Selection(f"{what} runs on the LLM engine", generate=runtime)
