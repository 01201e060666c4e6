"""Makes the benchmarks' own modules importable, as they are when a benchmark is run."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
