"""`python -m steelyard.worker.export MODEL_DIR OUT_DIR`: tries every native runtime that may fit one model.

Exit status 0 whatever it found; what went wrong is in `refused.txt` for users and on stderr for the log. Packages that
only convert (onnx, skl2onnx) may lie in the folder that STEELYARD_TOOL_PATH names; the model's own come first.
"""

from __future__ import annotations

import os
import sys
import traceback
import warnings
from pathlib import Path

from steelyard.worker.export.source import Refused, load

_TOOL_PATH = "STEELYARD_TOOL_PATH"


def main(arguments: list[str]) -> int:
    folder, out = (Path(argument).resolve() for argument in arguments)
    out.mkdir(parents=True, exist_ok=True)
    sys.path.extend(place for place in os.environ.get(_TOOL_PATH, "").split(os.pathsep) if place)
    warnings.simplefilter("ignore")
    from steelyard.worker.export.candidates import convert_all  # noqa: PLC0415  (numpy, after the path is set)

    try:
        convert_all(load(folder), out)
    except Refused as error:
        print(error, file=sys.stderr)  # noqa: T201  (the log of this process)
    except Exception:  # the model's own code may raise anything; then there is no native runtime
        traceback.print_exc(file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
