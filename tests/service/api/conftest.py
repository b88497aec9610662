"""A running API for the tests of a module."""

from collections.abc import Iterator

import pytest

from tests.service.live import Live, live


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    with live(tmp_path_factory.mktemp("api"), max_model_bytes=1 << 20) as running:
        yield running
