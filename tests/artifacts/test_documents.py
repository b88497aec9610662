"""Reading OCI documents."""

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from artifacts.documents import (
    DOCKER_MANIFEST,
    EMPTY,
    INDEX,
    MANIFEST,
    MAX_ANNOTATIONS,
    MAX_DESCRIPTORS,
    MAX_MANIFEST,
    Descriptor,
    is_complete,
    parse,
)
from artifacts.errors import InvalidManifest
from relaxd.contract.canonical import digest_of

LAYER = Descriptor("application/octet-stream", digest_of(b"layer"), 5, {"a": "b"})
CONFIG = Descriptor(EMPTY, digest_of(b"{}"), 2)


def manifest(**changes):
    document = {
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": CONFIG.to_json(),
        "layers": [LAYER.to_json()],
    }
    return {key: value for key, value in (document | changes).items() if value is not None}


def test_a_manifest_names_its_config_and_layers():
    document = parse(json.dumps(manifest(subject=LAYER.to_json(), annotations={"k": "v"})).encode())
    assert (document.blobs, document.layers, document.children) == ((CONFIG, LAYER), (LAYER,), ())
    assert (document.subject, document.annotations, document.artifact_type) == (
        LAYER,
        {"k": "v"},
        EMPTY,
    )


@pytest.mark.parametrize(
    ("document", "media_type"),
    [
        (manifest(mediaType=None), MANIFEST),
        (manifest(mediaType=DOCKER_MANIFEST), DOCKER_MANIFEST),
        ({"schemaVersion": 2, "manifests": []}, INDEX),
    ],
)
def test_the_media_type_is_in_the_document(document, media_type):
    assert parse(json.dumps(document).encode()).media_type == media_type


@pytest.mark.parametrize(
    "document",
    [
        [],
        "text",
        {},
        manifest(schemaVersion=1),
        manifest(mediaType="text/plain"),
        manifest(mediaType=["list"]),
        manifest(config=None),
        manifest(layers=None),
        manifest(layers={}),
        manifest(layers=[{}]),
        manifest(layers=[LAYER.to_json() | {"digest": "sha256:short"}]),
        manifest(layers=[LAYER.to_json() | {"size": -1}]),
        manifest(layers=[LAYER.to_json() | {"size": True}]),
        manifest(layers=[LAYER.to_json() | {"annotations": {"a": 1}}]),
        manifest(layers=[LAYER.to_json() | {"annotations": "ab"}]),
        manifest(annotations=["a"]),
        manifest(artifactType=7),
    ],
)
def test_what_is_no_manifest_is_refused(document):
    with pytest.raises(InvalidManifest):
        parse(json.dumps(document).encode())


@given(st.binary(max_size=100))
def test_bytes_that_are_no_manifest_are_refused(data):
    with pytest.raises(InvalidManifest):
        parse(data)


def test_a_huge_manifest_is_refused():
    with pytest.raises(InvalidManifest, match="more than"):
        parse(b" " * (MAX_MANIFEST + 1))


def test_a_manifest_is_complete_when_all_its_blobs_are_there(blobs):
    child = blobs.put(json.dumps(manifest()).encode())
    index = blobs.put(
        json.dumps(
            {
                "schemaVersion": 2,
                "manifests": [Descriptor(MANIFEST, child.digest, child.size).to_json()],
            }
        ).encode()
    )
    assert not is_complete(blobs, child.digest)
    blobs.put(b"{}")
    assert not is_complete(blobs, index.digest)
    blobs.put(b"layer")
    assert is_complete(blobs, index.digest)
    assert not is_complete(blobs, digest_of(b"layer")), "a layer is no manifest"
    blobs.discard(child.digest, math.inf)
    assert not is_complete(blobs, index.digest)


def test_lists_have_limits():
    layer = {"mediaType": "text/plain", "digest": digest_of(b"layer"), "size": 5}
    for more in (
        {"layers": [layer] * (MAX_DESCRIPTORS + 1)},
        {"annotations": {str(number): "" for number in range(MAX_ANNOTATIONS + 1)}},
    ):
        with pytest.raises(InvalidManifest, match="more than"):
            parse(json.dumps(manifest() | more).encode())
