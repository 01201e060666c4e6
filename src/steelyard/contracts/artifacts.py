"""A model converted for a native runtime: what the exporter writes and the runtime reads.

`python -m steelyard.worker.export MODEL OUT` runs in the model's own environment and leaves `OUT/<name>/artifact.json`
(Artifact) beside the files it names, or `OUT/<name>/refused.txt` with one sentence. The replica opens what is there;
it never executes anything from the folder.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

ARTIFACT_FILE = "artifact.json"
REFUSED_FILE = "refused.txt"

NativeRuntime = Literal["linear", "lightgbm", "xgboost", "forest", "onnx"]


class Artifact(msgspec.Struct, frozen=True, kw_only=True):
    """`features` are the model's input names in the order that the runtime takes them; `dtype` is what it takes.

    `options` belong to the runtime: the exporter and `runtimes/<runtime>.py` agree on them. `files` are relative to
    the artifact's folder; `library` is the absolute path of a shared library of the model's environment.
    """

    runtime: NativeRuntime
    features: list[str | int] | None  # None: one unnamed tensor
    dtype: str | None = None  # numpy name; None: each input keeps the signature's own
    files: dict[str, str] = {}
    library: str | None = None
    options: dict[str, Any] = {}
