"""Entry point: `python -m steelyard.replica <dir>`, where `<dir>/spec.json` is a ReplicaSpec."""

from __future__ import annotations

import os
import sys

from steelyard.replica.main import run

if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.stderr.write("usage: python -m steelyard.replica <dir>\n")
        sys.exit(2)
    status = run(sys.argv[1])
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)  # a prediction that never returns must not keep the process
