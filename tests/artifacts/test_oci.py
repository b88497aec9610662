"""Bundles to OCI artifacts and back."""

import json
import os

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from artifacts.documents import (
    BUNDLE,
    EMPTY,
    INDEX,
    MANIFEST,
    TITLE,
    Descriptor,
    manifest_bytes,
    read_document,
)
from artifacts.errors import BlobNotFound, InvalidManifest, UnsafeTitle
from artifacts.oci import IndexEntry, bundle_files, publish_bundle, publish_index
from relaxd.contract.canonical import digest_of
from tests.support.bundles import fetch

FILES = {
    "manifest.json": b"{}",
    "model.so": b"\x7fELF" * 1000,
    "lib/libtvm_runtime.so": b"runtime",
    "LICENSES": b"",
    "naïve name": b"x",
}


@pytest.fixture
def bundle(tmp_path):
    return write(tmp_path / "bundle", FILES)


def write(directory, files):
    for name, data in files.items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_bytes(data)
    return directory


def read(directory):
    return {
        path.relative_to(directory).as_posix(): path.read_bytes()
        for path in directory.rglob("*")
        if path.is_file()
    }


def publish_titles(blobs, titles):
    config, data = blobs.put(b"{}"), blobs.put(b"data")
    layers = [
        Descriptor("application/octet-stream", data.digest, data.size, {TITLE: title})
        for title in titles
    ]
    return blobs.put(manifest_bytes(BUNDLE, Descriptor(EMPTY, config.digest, 2), layers, {})).digest


def test_a_bundle_comes_back_as_it_was(blobs, bundle, tmp_path):
    published = publish_bundle(blobs, bundle, {"org.relaxd.target": "x86-64-v3"})
    fetch(blobs, published.digest, tmp_path / "out" / "here")
    assert read(tmp_path / "out" / "here") == FILES
    assert published.size == sum(map(len, FILES.values()))
    assert published.ref == f"relaxd/bundles@{published.digest}"
    assert os.listdir(tmp_path / "out") == ["here"]


def test_the_manifest_is_an_oci_artifact(blobs, bundle):
    published = publish_bundle(blobs, bundle, {"k": "v"})
    document = json.loads(blobs.read(published.digest))
    assert document["schemaVersion"] == 2
    assert (document["mediaType"], document["artifactType"], document["annotations"]) == (
        MANIFEST,
        BUNDLE,
        {"k": "v"},
    )
    empty = "sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"
    assert document["config"] == {"mediaType": EMPTY, "digest": empty, "size": 2}
    assert blobs.read(empty) == b"{}"
    assert [layer["annotations"][TITLE] for layer in document["layers"]] == sorted(FILES)
    assert all(
        layer["digest"] == digest_of(FILES[layer["annotations"][TITLE]])
        for layer in document["layers"]
    )


def test_the_same_bundle_has_the_same_digest(blobs, bundle, tmp_path):
    elsewhere = write(tmp_path / "elsewhere", dict(reversed(FILES.items())))
    os.utime(elsewhere / "model.so", (1, 1))
    annotations = {"a": "1", "b": "2"}
    first = publish_bundle(blobs, bundle, annotations)
    assert publish_bundle(blobs, elsewhere, dict(reversed(annotations.items()))) == first
    (elsewhere / "model.so").write_bytes(b"changed")
    assert publish_bundle(blobs, elsewhere, annotations).digest != first.digest


@pytest.mark.parametrize("kind", ["link", "pipe", "dangling"])
def test_only_plain_files_are_published(blobs, bundle, kind):
    if kind == "pipe":
        os.mkfifo(bundle / "odd")
    else:
        (bundle / "odd").symlink_to(bundle if kind == "link" else "nowhere")
    with pytest.raises(UnsafeTitle, match="odd is not a plain file"):
        publish_bundle(blobs, bundle)


def test_an_empty_directory_is_no_bundle(blobs, tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(InvalidManifest):
        publish_bundle(blobs, tmp_path / "empty")


def test_an_index_says_what_each_bundle_needs(blobs, bundle):
    digest = publish_bundle(blobs, bundle).digest
    entries = [
        IndexEntry(digest, "armv7", "armv7l"),
        IndexEntry(
            digest, "cuda-sm90", "x86_64", features=("avx2",), device="cuda", status="compiled_only"
        ),
        IndexEntry(digest, "windows-x86-64", "x86_64", os="win32", features=("sse4_2",)),
    ]
    arm, cuda, windows = json.loads(blobs.read(publish_index(blobs, entries)))["manifests"]
    assert arm["platform"] == {"architecture": "arm", "os": "linux", "variant": "v7"}
    assert cuda["platform"]["variant"] == "v3"
    assert (cuda["annotations"]["org.relaxd.device"], cuda["annotations"]["org.relaxd.status"]) == (
        "cuda",
        "compiled_only",
    )
    assert windows["platform"] == {"architecture": "amd64", "os": "windows", "variant": "v2"}


def test_an_index_lists_the_targets_in_order(blobs, bundle):
    first = publish_bundle(blobs, bundle, {"t": "1"}).digest
    second = publish_bundle(blobs, bundle, {"t": "2"}).digest
    entries = [
        IndexEntry(first, "x86-64-v3", "x86_64", variant="v3", features=("avx2", "fma")),
        IndexEntry(second, "aarch64", "aarch64"),
    ]
    index = publish_index(blobs, entries)
    assert publish_index(blobs, reversed(entries)) == index
    document = json.loads(blobs.read(index))
    assert document["mediaType"] == INDEX
    arm, x86 = document["manifests"]
    assert arm["digest"] == second
    assert (arm["platform"], arm["annotations"]) == (
        {"os": "linux", "architecture": "arm64"},
        {"org.relaxd.target": "aarch64"},
    )
    assert x86["platform"] == {"os": "linux", "architecture": "amd64", "variant": "v3"}
    assert x86["annotations"] == {
        "org.relaxd.target": "x86-64-v3",
        "org.relaxd.features": "avx2,fma",
    }
    assert (x86["mediaType"], x86["size"]) == (MANIFEST, blobs.size(first))
    assert [child.digest for child in read_document(blobs, index).children] == [second, first]


def test_an_index_needs_its_bundles(blobs):
    with pytest.raises(BlobNotFound):
        publish_index(blobs, [IndexEntry(digest_of(b"absent"), "native", "x86_64")])


def test_an_index_is_no_bundle_and_names_its_targets(blobs, bundle):
    index = publish_index(
        blobs, [IndexEntry(publish_bundle(blobs, bundle).digest, "aarch64", "aarch64")]
    )
    with pytest.raises(InvalidManifest, match="aarch64"):
        bundle_files(read_document(blobs, index))


UNSAFE = [
    "",
    "/etc/passwd",
    "../up",
    "a/../../up",
    "a//b",
    "a/",
    "./a",
    ".",
    "..",
    "a\\b",
    "nul\0",
    "line\nbreak",
    "x" * 300,
]


@pytest.mark.parametrize("title", UNSAFE)
def test_an_unsafe_title_is_refused(blobs, title):
    with pytest.raises(UnsafeTitle):
        bundle_files(read_document(blobs, publish_titles(blobs, ["good", title])))


@pytest.mark.parametrize("titles", [["a", "a"], ["a", "a/b"], ["a/b/c", "a/b"]])
def test_titles_that_collide_are_refused(blobs, titles):
    with pytest.raises(UnsafeTitle):
        bundle_files(read_document(blobs, publish_titles(blobs, titles)))


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    titles=st.lists(st.text(alphabet="ab./\\\0é ", min_size=1, max_size=8), min_size=1, max_size=3)
)
def test_whatever_the_titles_nothing_is_written_outside(blobs, tmp_path_factory, titles):
    root = tmp_path_factory.mktemp("root")
    digest = publish_titles(blobs, titles)
    try:
        fetch(blobs, digest, root / "out")
    except UnsafeTitle:
        assert list(root.iterdir()) == []
    else:
        assert set(read(root / "out")) == set(titles)
        assert list(root.iterdir()) == [root / "out"]


def test_a_manifest_without_files_is_no_bundle(blobs):
    with pytest.raises(InvalidManifest, match="no files"):
        bundle_files(read_document(blobs, publish_titles(blobs, [])))
