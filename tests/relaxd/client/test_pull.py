import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from artifacts.documents import TITLE
from relaxd.client import Client, PullError
from relaxd.client.pull import INDEX_TYPE, MANIFEST_TYPE, TARGET, pull
from relaxd.client.transport import Transport
from relaxd.contract.canonical import digest_of
from relaxd.errors import ServerError
from tests.service.live import Live

NAME = "relaxd/bundles"
FILES = {"manifest.json": b"{}", "model.so": b"code", "deep/notice.txt": b"text"}


@pytest.fixture
def transport(api: Live) -> Iterator[Transport]:
    transport = Transport(api.url)
    yield transport
    transport.close()


def layer(api: Live, title: str, data: bytes, **more: Any) -> dict[str, Any]:
    return {
        "mediaType": "application/octet-stream",
        "digest": api.upload(data),
        "size": len(data),
        "annotations": {TITLE: title},
        **more,
    }


def manifest(api: Live, layers: list[dict[str, Any]]) -> str:
    config = {
        "mediaType": "application/vnd.oci.empty.v1+json",
        "digest": api.upload(b"{}"),
        "size": 2,
    }
    document = {"schemaVersion": 2, "mediaType": MANIFEST_TYPE, "config": config, "layers": layers}
    return api.upload(json.dumps(document).encode())


def bundle(api: Live, files: dict[str, bytes] = FILES) -> str:
    return manifest(api, [layer(api, title, data) for title, data in files.items()])


def index(api: Live, targets: dict[str, str]) -> str:
    entries = [
        {
            "mediaType": MANIFEST_TYPE,
            "digest": digest,
            "size": api.services.store.blobs.size(digest),
            "annotations": {TARGET: target},
        }
        for target, digest in targets.items()
    ]
    return api.upload(
        json.dumps({"schemaVersion": 2, "mediaType": INDEX_TYPE, "manifests": entries}).encode()
    )


def content(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_every_file_arrives(api: Live, transport: Transport, tmp_path: Path) -> None:
    received: list[tuple[int, int]] = []
    pull(
        transport,
        NAME,
        bundle(api),
        tmp_path / "a" / "out",
        report=lambda done, total: received.append((done, total)),
    )
    assert content(tmp_path / "a" / "out") == FILES
    assert received[-1] == (10, 10)
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["out"]


def test_a_full_reference_goes_to_its_own_host(api: Live, tmp_path: Path) -> None:
    host = api.url.removeprefix("http://")
    with Client("http://127.0.0.1:9", token="not for others") as client:
        client.pull(f"{host}/{NAME}@{bundle(api)}", tmp_path / "out")
    assert content(tmp_path / "out") == FILES


def test_an_older_bundle_is_replaced_and_anything_else_is_not(
    api: Live, transport: Transport, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    pull(transport, NAME, bundle(api, {"manifest.json": b"old", "old.so": b""}), out)
    pull(transport, NAME, bundle(api), out)
    assert content(out) == FILES
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("precious")
    for position in (tmp_path / "mine", tmp_path / "mine" / "thesis.tex"):
        with pytest.raises(PullError, match=r"already holds other files|is a file"):
            pull(transport, NAME, bundle(api), position)
    assert (tmp_path / "mine" / "thesis.tex").read_text() == "precious"


def test_an_index_offers_targets(api: Live, transport: Transport, tmp_path: Path) -> None:
    both = index(
        api, {"a": bundle(api, {"manifest.json": b"a"}), "b": bundle(api, {"manifest.json": b"b"})}
    )
    pull(transport, NAME, both, tmp_path / "b", target="b")
    assert content(tmp_path / "b") == {"manifest.json": b"b"}
    for target in (None, "c"):
        with pytest.raises(PullError, match="target") as caught:
            pull(transport, NAME, both, tmp_path / "none", target=target)
        assert caught.value.hint == "name one: a, b"
    pull(transport, NAME, index(api, {"a": bundle(api)}), tmp_path / "only")
    assert content(tmp_path / "only") == FILES


@pytest.mark.parametrize("title", ["../evil", "/etc/evil", "a/../../evil", "a\\b", "", ".", "a\0b"])
def test_no_file_leaves_the_folder(
    api: Live, transport: Transport, tmp_path: Path, title: str
) -> None:
    with pytest.raises((PullError, ServerError)):
        pull(transport, NAME, manifest(api, [layer(api, title, b"x")]), tmp_path / "in" / "out")
    assert list(tmp_path.rglob("*evil*")) == []
    assert not (tmp_path / "in" / "out").exists()


def test_two_layers_cannot_be_one_file(api: Live, transport: Transport, tmp_path: Path) -> None:
    for titles in (("a", "a"), ("a", "a/b")):
        with pytest.raises((PullError, ServerError)):
            pull(
                transport,
                NAME,
                manifest(api, [layer(api, title, b"x") for title in titles]),
                tmp_path / "out",
            )
        assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("lie", [{"size": 3}, {"size": 5}, {"size": -1}, {"digest": "sha256:12"}])
def test_a_layer_that_is_not_as_announced(
    api: Live, transport: Transport, tmp_path: Path, lie: dict[str, Any]
) -> None:
    with pytest.raises((PullError, ServerError)):
        pull(
            transport,
            NAME,
            manifest(api, [layer(api, "model.so", b"code", **lie)]),
            tmp_path / "out",
        )
    assert list(tmp_path.iterdir()) == []


def test_damage_on_the_way_is_noticed(
    api: Live, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    digest = bundle(api)

    class Damaged(Transport):
        def request(self, *arguments: Any, **options: Any) -> Any:
            answer = super().request(*arguments, **options)
            answer._content += b" "
            return answer

    transport = Damaged(api.url)
    with pytest.raises(PullError, match="does not match"):
        pull(transport, NAME, digest, tmp_path / "out")
    transport.close()


def test_what_the_registry_does_not_have(api: Live, transport: Transport, tmp_path: Path) -> None:
    with pytest.raises(ServerError) as caught:
        pull(transport, NAME, digest_of(b"nowhere"), tmp_path / "out")
    assert caught.value.status == 404


class Breaking(Transport):
    """A transport whose streams break off after some bytes, as often as `breaks` says."""

    breaks = 2

    @contextmanager
    def stream(self, method: str, path: str, **options: Any) -> Iterator[httpx.Response]:
        self.asked = [*getattr(self, "asked", []), options["headers"].get("Range")]
        with super().stream(method, path, **options) as answer:
            if self.breaks:
                self.breaks -= 1
                full = answer.iter_bytes

                def part() -> Iterator[bytes]:
                    yield next(full(100))
                    raise httpx.ReadError("broken off")

                answer.iter_bytes = part  # type: ignore[method-assign,assignment]
            yield answer


def test_a_download_goes_on_where_it_broke_off(api: Live, tmp_path: Path) -> None:
    data: bytes = bytes(range(250))
    received: list[tuple[int, int]] = []
    transport = Breaking(api.url)
    digest = bundle(api, {"model.so": data})
    pull(
        transport,
        NAME,
        digest,
        tmp_path / "out",
        report=lambda *reported: received.append(reported),
    )
    transport.close()
    assert content(tmp_path / "out") == {"model.so": data}
    assert transport.asked == [None, "bytes=100-", "bytes=200-"]
    assert received == [(100, 250), (200, 250), (250, 250), (250, 250)]
