"""For all tests: nothing is written to the person's own data folder."""

import os

import pytest


@pytest.fixture(autouse=True, scope="session")
def own_data_folder(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Configurations that tests register are kept apart from those of the person who runs them."""
    os.environ["XDG_DATA_HOME"] = str(tmp_path_factory.mktemp("data-home"))
