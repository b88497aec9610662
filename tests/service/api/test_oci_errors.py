import pytest

from artifacts.errors import StorageFailed, StoreError, StoreFull
from service.api.oci_errors import translate


@pytest.mark.parametrize(
    ("error", "status", "headers"),
    [
        (StorageFailed("the disk is away"), 503, {"Retry-After": "2"}),
        (StoreFull("no room"), 507, {}),
    ],
)
def test_a_store_that_is_away_is_tried_again(
    error: StoreError, status: int, headers: dict[str, str]
) -> None:
    translated = translate(error)
    assert (translated.status, translated.headers) == (status, headers)
