import pytest


@pytest.fixture(scope="session")
def store(tmp_path_factory):
    """One sqlite store for all tests: making its tables takes seconds."""
    return f"sqlite:///{tmp_path_factory.mktemp('store')}/mlflow.db"
