"""Models of several files: as parts of a form, as a tar and by digest, and who may read them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest

from artifacts.models import files_of_model
from relaxd.client import Client
from relaxd.contract.canonical import canonical_bytes, digest_of
from relaxd.contract.model_files import CONFIG_CONTENT, manifest_of
from tests.service.live import Live
from tests.service.tenancy import house
from tests.support.models.digests import digest_at
from tests.support.models.external import model_naming, pack, write

MODEL = model_naming("m.onnx.data", "deep/w").SerializeToString()
FILES = {"m.onnx": MODEL, "m.onnx.data": b"1" * 3000, "deep/w": b"2" * 70_000}


def send(
    http: httpx.Client, files: Mapping[str, bytes], where: str = "compile", **params: Any
) -> httpx.Response:
    parts = [("model", (name, data)) for name, data in files.items()]
    return http.post(f"/v1/{where}", files=parts, params=params)


def bundle_content(api: Live, job: dict[str, Any]) -> bytes:
    (build,) = job["builds"]
    name = "/v2/relaxd/bundles"
    manifest = api.http.get(f"{name}/manifests/{build['artifact']['digest']}").json()
    (library,) = (
        layer["digest"]
        for layer in manifest["layers"]
        if layer["annotations"]["org.opencontainers.image.title"] == "model.so"
    )
    return api.http.get(f"{name}/blobs/{library}").content


def test_every_way_of_sending_is_one_model(api: Live, tmp_path: Path) -> None:
    folder = write(tmp_path / "m", FILES)
    tar = pack(tmp_path / "m.tar", FILES, "any/").read_bytes()
    with Client(api.url) as client:
        jobs = [
            send(api.http, FILES).json(),
            send(api.http, dict(reversed(FILES.items()))).json(),
            send(api.http, {f"m/{name}": data for name, data in FILES.items()}).json(),
            send(api.http, {"m.tar": tar}).json(),
            client.compile(folder / "m.onnx").document,
            client.compile(folder).document,
            client.compile([folder / "deep/w", folder / "m.onnx", folder / "m.onnx.data"]).document,
        ]
    assert {job["model"] for job in jobs} == {digest_at(folder)}
    assert [job["name"] for job in jobs] == [*["m.onnx"] * 3, "m.tar", "m.onnx", "m", "m.onnx"]
    done = api.http.get(f"/v1/jobs/{jobs[0]['id']}", params={"wait": 20}).json()
    in_order = FILES["deep/w"] + FILES["m.onnx.data"] + FILES["m.onnx"]
    assert bundle_content(api, done) == in_order + b"native"
    report = send(api.http, FILES, "inspect").json()
    assert report == {"model": digest_at(folder), "inputs": [], "model_bytes": len(in_order)}


def test_models_share_equal_files(api: Live) -> None:
    blobs = api.services.store.blobs
    before = {blob.digest for blob in blobs.listing()}
    first = send(api.http, {**FILES, "m.onnx.data": b"first"}).json()["model"]
    middle = {blob.digest for blob in blobs.listing()}
    second = send(api.http, {**FILES, "m.onnx.data": b"second"}).json()["model"]
    after = {blob.digest for blob in blobs.listing()}
    assert len({first, second}) == 2
    assert {first, digest_of(b"first"), digest_of(FILES["deep/w"])} <= middle
    assert len(middle - before) >= 2
    assert digest_of(b"second") in after - middle
    assert digest_of(MODEL) not in after - middle
    files = files_of_model(blobs, second)
    assert files is not None
    assert {name: blobs.read(digest) for name, digest in files.items()} == {
        "deep/w": FILES["deep/w"],
        "m.onnx.data": b"second",
        "model.onnx": MODEL,
    }


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"m.onnx": MODEL}, "the weights are in 'deep/w', which is not in"),
        ({"m.onnx": MODEL, "m.onnx.data": b"1"}, "the weights are in 'deep/w'"),
        ({"m.onnx": model_naming("../w").SerializeToString(), "w": b"1"}, "leads out"),
        ({"m.onnx": model_naming("/w").SerializeToString(), "w": b"1"}, "leads out"),
        ({"m.onnx": MODEL, "../m.onnx.data": b"1", "deep/w": b""}, "leads out"),
        ({"m.onnx": MODEL, "/etc/m.onnx.data": b"1", "deep/w": b""}, "leads out"),
        ({"m.onnx": MODEL, "a/m.onnx.data": b"1", "b/m.onnx.data": b"1", "deep/w": b""}, "2 times"),
        ({"a.onnx": b"1", "b.onnx": b"2"}, "2 ONNX models"),
        ({"a.bin": b"1", "b.bin": b"2"}, "no config.json and no .onnx"),
    ],
)
def test_what_is_no_model_is_refused(api: Live, files: dict[str, bytes], message: str) -> None:
    answer = send(api.http, files)
    assert (answer.status_code, answer.json()["field"]) == (422, "model"), answer.text
    assert message in answer.json()["detail"]


def test_the_hint_says_how_to_send_the_data(api: Live) -> None:
    hint = send(api.http, {"m.onnx": MODEL}).json()["hint"]
    assert "-F model=@model.onnx -F model=@model.onnx.data;" in hint


def test_a_form_has_so_many_files(api: Live) -> None:
    answer = send(api.http, {f"{i}.bin": b"1" for i in range(257)})
    assert (answer.status_code, answer.json()["code"]) == (400, "http.malformed_form")
    assert "256" in answer.json()["detail"]
    assert "tar" in answer.json()["hint"]


@pytest.mark.parametrize(
    ("titles", "message"),
    [
        (["../w", "model.onnx"], "leads out"),
        (["/w", "model.onnx"], "leads out"),
        (["w", "w/x"], "lies in a file"),
        (["w", "./w"], "two of the same name"),
        ([], "lists no files"),
        (["w", ""], "not a valid name"),
    ],
)
def test_manifests_lead_nowhere_else(api: Live, titles: list[str], message: str) -> None:
    blobs = api.services.store.blobs
    blobs.put(CONFIG_CONTENT)
    size = len(b"any")
    named = {f"{i}": (blobs.put(b"any").digest, size) for i in range(len(titles))}
    document = httpx.Response(200, content=manifest_of(named)).json()
    for layer, title in zip(document["layers"], titles, strict=True):
        layer["annotations"]["org.opencontainers.image.title"] = title
    digest = blobs.put(canonical_bytes(document)).digest
    answer = api.http.post("/v1/jobs", json={"model": digest})
    assert (answer.status_code, answer.json()["field"]) == (422, "model"), answer.text
    assert message in answer.json()["detail"]


def test_a_manifest_gives_no_access_to_the_files_of_others(tmp_path: Path) -> None:
    with house(tmp_path) as running:
        alice, bob = running.client("a"), running.client("b")
        theirs = send(alice, FILES, wait=20).json()
        assert theirs["state"] == "succeeded"
        named = {
            "model.onnx": (digest_of(MODEL), len(MODEL)),
            "m.onnx.data": (digest_of(FILES["m.onnx.data"]), 3000),
            "deep/w": (digest_of(FILES["deep/w"]), 70_000),
        }
        manifest = manifest_of(named)
        assert digest_of(manifest) == theirs["model"]
        answers = [
            bob.post("/v1/jobs", json={"model": theirs["model"]}),
            # Bob makes the manifest himself, and lacks the files.
            send(bob, {"m.onnx": manifest}),
            bob.post("/v1/jobs", json={"model": theirs["model"]}),
            send(bob, {"m.onnx": manifest}, "inspect"),
        ]
        assert [(one.status_code, one.json()["code"]) for one in answers] == [
            (422, "model.unknown"),
            (422, "blob.unknown"),
            (422, "model.unknown"),  # what was refused was not kept for him either
            (422, "blob.unknown"),
        ]
        assert bob.get(f"/v2/b/models/blobs/{digest_of(MODEL)}").status_code == 404
        ours = send(bob, FILES, wait=20).json()
        assert (ours["state"], ours["model"]) == ("succeeded", theirs["model"])


SENTENCES = {
    "config.json": b"{}",
    "model.safetensors": b"1" * 3000,
    "modules.json": b'[{"path": ""}, {"path": "1_Pooling"}, {"path": "2_Normalize"}]',
    "1_Pooling/config.json": b"{}",
    "1_Pooling/notes.txt": b"not the model's",
    "onnx/model.onnx": b"an export beside it",
}


def test_a_folder_of_sentence_transformers_goes_with_its_modules(api: Live, tmp_path: Path) -> None:
    folder = write(tmp_path / "m", SENTENCES)
    tar = pack(tmp_path / "m.tar", SENTENCES, "any/").read_bytes()
    with Client(api.url) as client:
        jobs = [
            send(api.http, SENTENCES).json(),
            send(api.http, {f"m/{name}": data for name, data in SENTENCES.items()}).json(),
            send(api.http, {"m.tar": tar}).json(),
            client.compile(folder).document,
        ]
    assert {job["model"] for job in jobs} == {digest_at(folder)}
    files = files_of_model(api.services.store.blobs, jobs[0]["model"])
    assert files is not None
    assert sorted(files) == [
        "1_Pooling/config.json",
        "config.json",
        "model.safetensors",
        "modules.json",
    ]


@pytest.mark.parametrize("path", ["..", "../m", "/etc", "a/b", "."])
def test_modules_lie_in_the_folder(api: Live, path: str) -> None:
    modules = f'[{{"path": "{path}"}}]'.encode()
    answer = send(api.http, {**SENTENCES, "modules.json": modules})
    assert (answer.status_code, answer.json()["field"]) == (422, "model"), answer.text
    assert "modules.json names the folder" in answer.json()["detail"]
