"""All traces by name: the synthetic ones always, recorded ones where a folder with their files is given.

The CLI asks it what there is and loads what it wants. Files keep the names under which they are published.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from steelyard.simulate.requests import Trace
from steelyard.simulate.traces import azure, mooncake, servegen, vidur
from steelyard.simulate.traces.synthetic import SYNTHETIC

Loader = Callable[[Path, str, int], Trace]

# name: (pattern of its file or folder, loader)
RECORDED: dict[str, tuple[str, Loader]] = {
    "azure-code": ("AzureLLMInferenceTrace_code*.csv", lambda path, name, seed: azure.load(path, name)),
    "azure-conversation": ("AzureLLMInferenceTrace_conv*.csv", lambda path, name, seed: azure.load(path, name)),
    "mooncake-conversation": ("*conversation_trace.jsonl", lambda path, name, seed: mooncake.load(path, name)),
    "mooncake-synthetic": ("*synthetic_trace.jsonl", lambda path, name, seed: mooncake.load(path, name)),
    "servegen-reasoning": ("servegen/deepseek-r1", servegen.load),
    "servegen-image": ("servegen/mm-image", servegen.load),
    "vidur-summaries": ("*arxiv_summarization*.csv", vidur.load),
}


def available(folder: Path | None, seed: int) -> dict[str, Callable[[], Trace]]:
    """What can be loaded, by name. Raises ValueError when a folder is given that holds none."""
    traces: dict[str, Callable[[], Trace]] = {}
    if folder is not None:
        for name, (pattern, load) in RECORDED.items():
            found = sorted(folder.glob(pattern))
            if found:
                traces[name] = _bound(load, found[0], name, seed)
        if not traces:
            expected = ", ".join(pattern for pattern, _ in RECORDED.values())
            raise ValueError(f"No trace in {folder}. It is searched for {expected}.")
    for name, make in SYNTHETIC.items():
        traces[name] = _made(make, seed)
    return traces


def _bound(load: Loader, path: Path, name: str, seed: int) -> Callable[[], Trace]:
    return lambda: load(path, name, seed)


def _made(make: Callable[[int], Trace], seed: int) -> Callable[[], Trace]:
    return lambda: make(seed)
