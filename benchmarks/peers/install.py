"""Creates one virtual environment per peer server, which `classic.py --peers` then finds.

Run by hand (`python benchmarks/peers/install.py [NAME …]`). A peer gets its newest known release and, of scikit-learn,
LightGBM and MLflow, the very versions of the running environment, so that all servers run the same model code. It
never touches the platform's own environment.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

ENVIRONMENTS = Path(__file__).resolve().parents[2] / ".peers"
MODEL_LIBRARIES = ("scikit-learn", "lightgbm", "numpy", "joblib")
PEERS = {
    "litserve": ["litserve==0.2.19"],
    "bentoml": ["bentoml==1.4.40"],
    "mlserver": [
        "mlserver==1.7.1",
        "mlserver-mlflow==1.7.1",
        "mlserver-sklearn==1.7.1",
        "mlserver-lightgbm==1.7.1",
        "uvloop<0.22",  # from 0.22 on, this MLServer finds no event loop in its workers
        f"mlflow=={version('mlflow')}",
        f"skops=={version('skops')}",  # the format in which MLflow keeps scikit-learn's models
    ],
    "ray": ["ray[serve]==2.60.0"],
}


def interpreter(peer: str) -> Path:
    """The peer's Python; the file is there only when the peer is installed."""
    return ENVIRONMENTS / peer / "bin" / "python"


def install(peer: str) -> None:
    """Creates or renews the environment. Raises CalledProcessError when the resolver or a download fails."""
    requirements = PEERS[peer] + [f"{name}=={version(name)}" for name in MODEL_LIBRARIES]
    uv = [sys.executable, "-m", "uv"]
    folder = ENVIRONMENTS / peer
    subprocess.run([*uv, "venv", "--quiet", "--clear", "--python", sys.executable, str(folder)], check=True)
    subprocess.run([*uv, "pip", "install", "--quiet", "--python", str(interpreter(peer)), *requirements], check=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("peers", nargs="*", metavar="NAME", help=f"of {', '.join(PEERS)}; all when none is named")
    peers = parser.parse_args().peers or list(PEERS)
    if unknown := sorted(set(peers) - set(PEERS)):
        parser.error(f"no peer is called {', '.join(unknown)}; there are {', '.join(PEERS)}")
    for peer in peers:
        print(f"{peer}: installing {' '.join(PEERS[peer])} …", flush=True)
        install(peer)
    print(f"Installed under {ENVIRONMENTS}.")


if __name__ == "__main__":
    main()
