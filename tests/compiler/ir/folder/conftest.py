"""Folders of language models, written once for all tests of a process."""

from pathlib import Path

import pytest

from tests.support.models import folders as fm


@pytest.fixture(scope="session")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Holds one folder for each of `folder_models.FORMS`."""
    folder = tmp_path_factory.mktemp("folders")
    fm.write(folder, fm.FORMS)
    return folder
