"""Names of repositories, tags and digests."""

import pytest

from relaxd.contract.canonical import digest_of
from service.api.oci_errors import RegistryError
from service.api.oci_names import LONGEST, check_reference, check_repository
from service.identity import DEFAULT

DIGEST = digest_of(b"x")


@pytest.mark.parametrize("name", ["relaxd/bundles", "relaxd/a-b__c.d/e0", "relaxd/" + "a" * 248])
def test_a_repository(name: str) -> None:
    assert check_repository(name, DEFAULT) == name


@pytest.mark.parametrize(
    "name",
    [
        "relaxd",
        "relaxd/",
        "other/bundles",
        "relaxd/Bundles",
        "relaxd/../etc",
        "relaxd/a..b",
        "relaxd/a\n",
        "relaxd/" + "a" * LONGEST,
    ],
)
def test_no_repository(name: str) -> None:
    with pytest.raises(RegistryError):
        check_repository(name, DEFAULT)


@pytest.mark.parametrize("reference", [DIGEST, "v1", "_", "job-1.2_x", "A" * 128])
def test_a_reference(reference: str) -> None:
    assert check_reference(reference) == reference


@pytest.mark.parametrize(
    "reference", ["", ".v1", "-v1", "a/b", "A" * 129, "sha256:abc", "md5:" + "0" * 32, "v1\n"]
)
def test_no_reference(reference: str) -> None:
    with pytest.raises(RegistryError):
        check_reference(reference)
