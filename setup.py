"""The part of the build that pyproject.toml cannot say: what is compiled.

The walk through trees is written in C. The data path is Python, which mypyc compiles by its annotations: the same code
in less time. Both are optional: without a C compiler the install succeeds, LightGBM's library evaluates trees, and the
data path is interpreted.
"""

import sys
from pathlib import Path

from setuptools import Extension, setup

WALK = Path("src/steelyard/runtimes/tree_walk")
# Sums must round as LightGBM's do: no fused multiply-add, nothing reordered.
EXACT = [] if sys.platform == "win32" else ["-O3", "-std=c11", "-ffp-contract=off", "-fno-fast-math"]
# Nobody but the module itself calls its functions: only then may a compiler inline them, or call them directly.
HIDDEN = [] if sys.platform == "win32" else ["-fvisibility=hidden"]
DATA_PATH = {  # by room
    "contracts": ["usage"],
    "policy": [
        "affinity",
        "body_size",
        "expected_wait",
        "fair_queue",
        "fair_share",
        "lazy_heap",
        "ledger",
        "marks",
        "prefix_index",
        "rate_limits",
        "routing",
        "routing_choice",
        "speed",
        "token_bucket",
        "units",
        "waiting",
    ],
    "replica": ["app", "batcher", "exchange", "lanes", "load", "measures", "native", "queries"],
    "router": [
        "app",
        "budget",
        "charge",
        "dispatch",
        "exchange",
        "flow",
        "forward",
        "identity",
        "inbound",
        "measures",
        "table",
        "tally",
        "weigh",
    ],
    "runtimes": ["native_model"],
    "wire": ["assembly", "client", "connection", "fetch", "hop", "memo", "reply", "request", "server"],
}
BUILDS = {"build", "build_ext", "bdist_wheel", "editable_wheel", "install"}

extensions = [
    Extension(
        "steelyard.runtimes.tree_walk._walk",
        sources=sorted(map(str, WALK.glob("*.c"))),
        depends=[str(WALK / "trees.h")],
        extra_compile_args=EXACT,
    )
]
if BUILDS & set(sys.argv):  # mypyc reads the whole package, which a question about metadata should not wait for
    from mypyc.build import mypycify

    sources = [f"src/steelyard/{room}/{module}.py" for room, modules in DATA_PATH.items() for module in modules]
    compiled = mypycify(sources, group_name="steelyard", opt_level="2", debug_level="0")
    for extension in compiled:
        extension.extra_compile_args += HIDDEN
    extensions += compiled
for extension in extensions:
    extension.optional = True

setup(ext_modules=extensions)
