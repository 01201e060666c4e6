"""Builds one family of the zoo: `python -m support.zoo.build FAMILY FOLDER [MODEL …]`.

Leaves `FOLDER/MODEL/case.json` beside the saved model. Started by `nursery.py`, one process per family.
"""

import logging
import shutil
import sys
import warnings
from pathlib import Path


def main(family: str, root: Path, names: list[str]) -> None:
    warnings.simplefilter("ignore")
    import mlflow

    logging.getLogger("mlflow").setLevel(logging.ERROR)
    mlflow.set_tracking_uri((root / "tracking").as_uri())
    from support.zoo.catalog import FAMILIES

    models = FAMILIES[family].MODELS
    for name in names or models:
        folder = root / name
        shutil.rmtree(folder, ignore_errors=True)  # of a build that was cut off
        folder.mkdir(parents=True)
        models[name](folder).write(folder)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3:])
