import pytest

from support.models import SavedModel, save_iris_classifier


@pytest.fixture(scope="session")
def iris_model(tmp_path_factory) -> SavedModel:
    return save_iris_classifier(tmp_path_factory.mktemp("models") / "iris")
