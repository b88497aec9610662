from collections.abc import Iterator

import pytest

from relaxd.client import Client
from tests.service.live import Live, live


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    with live(tmp_path_factory.mktemp("api")) as running:
        yield running


@pytest.fixture
def client(api: Live) -> Iterator[Client]:
    with Client(api.url) as client:
        yield client
