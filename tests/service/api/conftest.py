"""A running API for the tests of a module, and one whose behaviour a test may change."""

from collections.abc import Iterator
from typing import NoReturn

import pytest
import structlog

from tests.service.live import Live, live


def _drop(logger: object, method: str, event: object) -> NoReturn:
    raise structlog.DropEvent


@pytest.fixture(scope="session", autouse=True)
def quiet() -> Iterator[None]:
    """Structured logs go nowhere unless a test captures them."""
    structlog.configure(processors=[_drop])
    yield
    structlog.reset_defaults()


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    with live(tmp_path_factory.mktemp("api"), max_model_bytes=1 << 20) as running:
        yield running
