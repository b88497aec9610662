import tarfile
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from artifacts.models import files_of_model
from relaxd.client import upload
from relaxd.client.transport import Transport
from relaxd.client.upload import Model, name_of, upload_model
from relaxd.contract.canonical import digest_of
from relaxd.contract.model_files import digest_of_piece, manifest_of
from relaxd.contract.model_tar import files_at
from relaxd.errors import DeclarationError, ServerUnreachable
from tests.service.live import Live
from tests.support.models.digests import digest_at
from tests.support.models.external import model_naming, write

DATA = bytes(range(256)) * 40


class Recorded(Transport):
    """A transport that lists its requests; `fail` may answer in the service's place."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.requests: list[str] = []
        self.broken: set[int] = set()
        self.sent = 0
        self.patience = 0.0

    def request(self, method: str, path: str, **options: object) -> httpx.Response:
        self.requests.append(method)
        self.patience = max(self.patience, float(options.get("timeout", 0)))  # type: ignore[arg-type]
        self.sent += len(options.get("content", b""))  # type: ignore[arg-type]
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


def test_a_service_has_time_to_check_what_is_large(
    transport: Recorded, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upload, "CHECKED", 100)
    upload_model(transport, DATA + b"patience")
    assert transport.patience >= transport.timeout + len(DATA) / 100


def test_an_upload_that_keeps_breaking_off(transport: Recorded) -> None:
    transport.broken = set(range(1, 99))
    with pytest.raises(ServerUnreachable, match="broke off"):
        upload_model(transport, DATA * 3)


def test_an_empty_model_can_be_uploaded(transport: Recorded, api: Live) -> None:
    assert api.services.store.blobs.read(upload_model(transport, b"")) == b""


def test_the_files_of_a_model_go_up_each_once(
    transport: Recorded, api: Live, tmp_path: Path
) -> None:
    folder = tmp_path / "m"
    folder.mkdir()
    for name in ("config.json", "model.safetensors", "README.md"):
        (folder / name).write_bytes(name.encode() * 200)
    digest = upload_model(transport, folder)
    assert digest == digest_at(folder)
    files = files_of_model(api.services.store.blobs, digest)
    assert {name: api.services.store.blobs.read(files[name]) for name in files} == {
        name: name.encode() * 200 for name in ("config.json", "model.safetensors")
    }
    # Another tar of it is the same model.
    with tarfile.open(tmp_path / "m.tar", "w") as archive:
        archive.add(folder, "any")
    transport.requests.clear()
    assert upload_model(transport, tmp_path / "m.tar") == digest
    assert set(transport.requests) == {"HEAD"}


def test_the_second_send_of_a_changed_head_moves_only_the_changed_file(
    transport: Recorded, tmp_path: Path
) -> None:
    model = model_naming("base.data", "head.data").SerializeToString()
    folder = write(
        tmp_path / "m", {"m.onnx": model, "base.data": b"b" * 50_000, "head.data": b"h" * 9_000}
    )
    reported: list[tuple[int, int]] = []
    first = upload_model(transport, folder / "m.onnx", lambda *sent: reported.append(sent))
    everything = transport.sent
    assert everything > len(model) + 59_000
    assert reported[-1] == (everything, everything)
    assert reported == sorted(reported)
    (folder / "head.data").write_bytes(b"H" * 9_000)
    transport.sent = 0
    reported.clear()
    second = upload_model(transport, folder, lambda *sent: reported.append(sent))
    assert second != first
    assert transport.sent - len(manifest_in(folder)) == 9_000
    assert reported[-1] == (transport.sent, transport.sent)
    transport.sent = 0
    paths = [folder / "head.data", folder / "base.data", folder / "m.onnx"]
    assert upload_model(transport, paths) == second
    assert transport.sent == 0


def manifest_in(folder: Path) -> bytes:
    files = files_at(folder)
    return manifest_of({name: (digest_of_piece(one), one.size) for name, one in files.items()})


def test_data_from_elsewhere_goes_up_where_it_is_named(transport: Recorded, tmp_path: Path) -> None:
    files = {"a/m.onnx": model_naming("w").SerializeToString(), "b/w": b"w", "a/w": b"not this"}
    write(tmp_path, files)
    digest = upload_model(transport, [tmp_path / "a/m.onnx", tmp_path / "b/w"])
    assert digest != digest_at(tmp_path / "a/m.onnx")
    write(tmp_path, {"a/w": b"w"})
    assert digest == digest_at(tmp_path / "a/m.onnx")


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["m.onnx"], "the weights are in 'w'"),
        (["m.onnx", "missing"], "cannot read .*missing"),
        (["w", "b/w"], "no config.json and no .onnx"),
        (["m.onnx", "a/w", "b/w"], "'w' was given 2 times"),
        ("m.onnx.gone", "cannot read .*m.onnx.gone"),
    ],
)
def test_what_is_missing_is_named_before_anything_is_sent(
    transport: Recorded, tmp_path: Path, names: str | list[str], message: str
) -> None:
    write(tmp_path, {"m.onnx": model_naming("w").SerializeToString(), "w": b"1"})
    write(tmp_path, {"a/w": b"1", "b/w": b"1"})
    paths = tmp_path / names if isinstance(names, str) else [tmp_path / name for name in names]
    with pytest.raises(DeclarationError, match=message):
        upload_model(transport, paths)
    assert transport.requests == []


@pytest.mark.parametrize(
    ("model", "name"),
    [
        (["a/m.onnx.data", "a/m.onnx"], "m.onnx"),
        ("a/m.onnx", "m.onnx"),
        (["a"], None),
        (b"m", None),
        ("sha256:" + "0" * 64, None),
    ],
)
def test_names(model: Model, name: str | None) -> None:
    assert name_of(model) == name
