"""The part of the build that pyproject.toml cannot say: the C extension that walks trees.

It is optional: without a C compiler the install succeeds, and trees are evaluated by LightGBM's library instead.
"""

import sys
from pathlib import Path

from setuptools import Extension, setup

PLACE = Path("src/steelyard/runtimes/tree_walk")

# Sums must round as LightGBM's do: no fused multiply-add, nothing reordered.
EXACT = [] if sys.platform == "win32" else ["-O3", "-std=c11", "-ffp-contract=off", "-fno-fast-math"]

setup(
    ext_modules=[
        Extension(
            "steelyard.runtimes.tree_walk._walk",
            sources=sorted(map(str, PLACE.glob("*.c"))),
            depends=[str(PLACE / "trees.h")],
            extra_compile_args=EXACT,
            optional=True,
        )
    ]
)
