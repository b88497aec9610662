"""Large blobs come from the object store itself, by a URL that only whoever may read them gets."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import obstore
import pytest

from artifacts.remote import connect
from relaxd.client.errors import PullError
from relaxd.client.pull import pull
from relaxd.client.transport import Transport
from relaxd.contract.canonical import canonical_bytes, digest_of
from service.usecases.store import holdings
from tests.service.tenancy import House, house

pytestmark = [pytest.mark.slow, pytest.mark.scaled]

LARGE, SMALL = bytes(range(256)) * 8192, b"small"
"""2 MiB, and less than the MiB from which blobs are redirected."""


@pytest.fixture
def guarded(tmp_path: Path, s3_url: str) -> Iterator[House]:
    with house(tmp_path, store_url=s3_url, redirect_mb=1) as running:
        yield running


@pytest.fixture
def alice(guarded: House) -> httpx.Client:
    return guarded.client("a")


def put(guarded: House, data: bytes) -> str:
    """Store content that the tenant `a` holds; its digest."""
    return holdings.view(guarded.core, "a").blobs.put(data).digest


def get(client: httpx.Client, digest: str, **headers: str) -> httpx.Response:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return client.get(f"/v2/a/models/blobs/{digest}", headers=named, follow_redirects=False)


def test_a_large_blob_is_read_from_the_store_and_a_small_one_from_the_service(
    guarded: House, alice: httpx.Client
) -> None:
    large, small = put(guarded, LARGE), put(guarded, SMALL)
    answer = get(alice, large)
    assert answer.status_code == 307
    assert (answer.headers["Cache-Control"], answer.content) == ("no-store", b"")
    url = answer.headers["Location"]
    assert "X-Amz-Expires=60&" in url
    assert httpx.get(url).content == LARGE
    part = httpx.get(url, headers={"Range": "bytes=5-9"})
    assert (part.status_code, part.content) == (206, LARGE[5:10])
    assert httpx.put(url, content=b"x").status_code == 403
    assert httpx.get(url.replace(large[7:], small[7:])).status_code == 403
    assert get(alice, small).content == SMALL
    foreign = get(alice, large, Range="bytes=0-1", If_Range='"other"')
    assert foreign.content == LARGE, "the object store does not know the condition"
    assert get(alice, digest_of(b"absent")).status_code == 404


def test_another_tenant_gets_no_url(guarded: House) -> None:
    digest = put(guarded, LARGE)
    bob = guarded.client("b")
    answer = bob.get(f"/v2/b/models/blobs/{digest}", follow_redirects=False)
    assert answer.status_code == 404
    assert "Location" not in answer.headers


def test_the_client_follows_without_its_token_and_checks_the_digest(
    guarded: House, alice: httpx.Client, tmp_path: Path, s3_url: str
) -> None:
    digest = put(guarded, LARGE)
    layer = {
        "mediaType": "application/octet-stream",
        "digest": digest,
        "size": len(LARGE),
        "annotations": {"org.opencontainers.image.title": "large"},
    }
    config = {**layer, "digest": put(guarded, b"{}"), "size": 2, "annotations": {}}
    media_type = "application/vnd.oci.image.manifest.v1+json"
    document = {
        "schemaVersion": 2, "mediaType": media_type, "config": config, "layers": [layer]
    }  # fmt: skip
    sent = alice.put(
        "/v2/a/models/manifests/large",
        content=canonical_bytes(document),
        headers={"Content-Type": media_type},
    )
    assert sent.status_code == 201, sent.text
    token = alice.headers["Authorization"].removeprefix("Bearer ")
    source = Transport(guarded.live.url, token=token)
    folder = pull(source, "a/models", "large", tmp_path / "pulled")
    assert (folder / "large").read_bytes() == LARGE
    obstore.put(connect(s3_url), f"blobs/sha256/{digest[7:]}", LARGE[::-1])
    with pytest.raises(PullError, match="does not match"):
        pull(source, "a/models", "large", tmp_path / "again")
    assert not (tmp_path / "again").exists()
    source.close()
