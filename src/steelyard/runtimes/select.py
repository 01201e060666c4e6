"""Which runtime runs a package, and why: decided from what its files say, before anything of it is loaded.

Called by the replica once. Imports a runtime only when it is chosen, so that a classic model's replica never loads
the language-model runtime, nor the reverse.
"""

from __future__ import annotations

from dataclasses import dataclass

from steelyard.errors import ModelLoadError
from steelyard.packages import Kind, Package
from steelyard.runtimes.base import GenerateRuntime, PredictRuntime


@dataclass(frozen=True, slots=True)
class Selection:
    """Exactly one of the two runtimes is set; `reason` is for the log and the user."""

    reason: str
    predict: PredictRuntime | None = None
    generate: GenerateRuntime | None = None


def select(package: Package, max_concurrency: int | None) -> Selection:
    """The runtime, not yet loaded; `max_concurrency` None is the runtime's own default. Raises ModelLoadError."""
    if package.kind is Kind.MLFLOW:
        from steelyard.runtimes.pyfunc import PyfuncRuntime  # noqa: PLC0415

        flavors = ", ".join(name for name in package.flavors if name != "python_function") or "python_function"
        reason = f"an MLflow model ({flavors}) runs in its own loader"
        return Selection(reason, predict=PyfuncRuntime(package, max_concurrency))
    try:
        from steelyard.runtimes.llm import LlmRuntime  # noqa: PLC0415
    except ImportError as error:
        raise ModelLoadError(f"Language models need {error.name}; install steelyard[llm].") from error
    what = "a GGUF file" if package.kind is Kind.GGUF else f"a Hugging Face folder ({package.architecture})"
    runtime = LlmRuntime(package.path, max_concurrency=max_concurrency)
    return Selection(f"{what} runs on the LLM engine", generate=runtime)
