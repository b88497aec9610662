import io
import tarfile
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from relaxd.client import upload
from relaxd.client.transport import Transport
from relaxd.client.upload import upload_model
from relaxd.contract.canonical import digest_of
from relaxd.contract.model_folder import digest_of_folder
from relaxd.errors import ServerUnreachable
from tests.service.live import Live

DATA = bytes(range(256)) * 40


class Recorded(Transport):
    """A transport that lists its requests; `fail` may answer in the service's place."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.requests: list[str] = []
        self.broken: set[int] = set()

    def request(self, method: str, path: str, **options: object) -> httpx.Response:
        self.requests.append(method)
        if method == "PATCH" and self.requests.count("PATCH") in self.broken:
            # The service takes the chunk; its answer is lost.
            super().request(method, path, **options)  # type: ignore[arg-type]
            raise ServerUnreachable("lost")
        return super().request(method, path, **options)  # type: ignore[arg-type]


@pytest.fixture
def transport(api: Live, monkeypatch: pytest.MonkeyPatch) -> Iterator[Recorded]:
    monkeypatch.setattr(upload, "CHUNK", 1 << 12)
    transport = Recorded(api.url)
    yield transport
    transport.close()


def test_chunks_go_up_once(transport: Recorded, api: Live) -> None:
    digest = upload_model(transport, DATA)
    assert digest == digest_of(DATA)
    assert api.services.store.blobs.read(digest) == DATA
    assert transport.requests == ["HEAD", "POST", "PATCH", "PATCH", "PATCH", "PUT"]
    transport.requests.clear()
    assert upload_model(transport, DATA) == digest
    assert transport.requests == ["HEAD"]


def test_a_lost_answer_does_not_send_the_chunk_again(transport: Recorded, api: Live) -> None:
    transport.broken = {2}
    data = DATA + b"other"
    assert api.services.store.blobs.read(upload_model(transport, data)) == data
    assert transport.requests == ["HEAD", "POST", "PATCH", "PATCH", "GET", "PATCH", "PUT"]


def test_an_upload_that_keeps_breaking_off(transport: Recorded) -> None:
    transport.broken = set(range(1, 99))
    with pytest.raises(ServerUnreachable, match="broke off"):
        upload_model(transport, DATA * 3)


def test_an_empty_model_can_be_uploaded(transport: Recorded, api: Live) -> None:
    assert api.services.store.blobs.read(upload_model(transport, b"")) == b""


def test_a_folder_goes_up_as_the_tar_of_its_model(
    transport: Recorded, api: Live, tmp_path: Path
) -> None:
    folder = tmp_path / "m"
    folder.mkdir()
    for name in ("config.json", "model.safetensors", "README.md"):
        (folder / name).write_bytes(name.encode() * 2000)
    digest = upload_model(transport, folder)
    assert digest == digest_of_folder(folder)
    with tarfile.open(fileobj=io.BytesIO(api.services.store.blobs.read(digest))) as archive:
        assert archive.getnames() == ["config.json", "model.safetensors"]
    # Another tar of it is the same model.
    with tarfile.open(tmp_path / "m.tar", "w") as archive:
        archive.add(folder, "any")
    transport.requests.clear()
    assert upload_model(transport, tmp_path / "m.tar") == digest
    assert transport.requests == ["HEAD"]
