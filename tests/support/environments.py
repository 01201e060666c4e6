"""A model of an older generation of libraries, and the real environment that it needs, built once per test session.

The environment is the platform's own product, so that what is tested is what users get. The model is trained and saved
by that environment's interpreter: this process's libraries never touch it.
"""

import atexit
import functools
import json
import shutil
import subprocess
import tempfile
from pathlib import Path

from steelyard.packages.environment import Environment, needed, provide
from steelyard.packages.inspect import Package
from steelyard.packages.model_files import Kind
from steelyard.settings import Settings
from support.models import SavedModel

OLD_REQUIREMENTS = ("numpy==1.26.4", "scikit-learn==1.4.2", "pandas==2.1.4", "mlflow-skinny==2.12.2")
OLD_PYTHON = "3.11"

_TRAIN = """
import json, sys, warnings
warnings.simplefilter("ignore")
import mlflow.sklearn
from mlflow.models import infer_signature
from sklearn.datasets import load_iris
from sklearn.ensemble import RandomForestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

folder, requirements = sys.argv[1], json.loads(sys.argv[2])
frame = load_iris(as_frame=True)
rows = frame.data.iloc[::25]
model = make_pipeline(StandardScaler(), RandomForestClassifier(n_estimators=20, random_state=0, n_jobs=1))
model.fit(frame.data, frame.target)
mlflow.sklearn.save_model(
    model,
    folder,
    signature=infer_signature(frame.data, model.predict(frame.data)),
    input_example=rows.head(2),
    pip_requirements=requirements,
)
split = rows.to_dict(orient="split")
print(json.dumps({
    "columns": split["columns"],
    "data": split["data"],
    "records": rows.to_dict(orient="records"),
    "predictions": model.predict(rows).tolist(),
}))
"""


@functools.cache
def old_environment_home() -> Path:
    """A home for platforms that run models of the old generation; removed when the tests end."""
    folder = Path(tempfile.mkdtemp(prefix="old-generation-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


@functools.cache
def old_environment() -> Environment:
    """About 10 s and 40 MB of downloads the first time on a machine, about 2 s from uv's cache, nothing later on."""
    package = Package(Path(), Kind.MLFLOW, requirements=OLD_REQUIREMENTS, python_version=OLD_PYTHON)
    return provide(needed(package), Settings(home=old_environment_home()), say=lambda line: None)


def save_old_sklearn_model(folder: Path, python: Path) -> SavedModel:
    """A scikit-learn pipeline in MLflow's format, trained, saved and asked for its predictions by `python`."""
    command = [str(python), "-c", _TRAIN, str(folder), json.dumps(OLD_REQUIREMENTS)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    return SavedModel(
        uri=str(folder),
        split={"columns": told["columns"], "data": told["data"]},
        records=told["records"],
        predictions=told["predictions"],
    )
