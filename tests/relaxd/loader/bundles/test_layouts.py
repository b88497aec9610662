"""Bundles as `skopeo copy` leaves them in a folder, loaded and run."""

import hashlib
import json
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

import relaxd
from artifacts import open_store
from artifacts.oci import publish_bundle
from relaxd.errors import BundleError


def run(path):
    x, wide = np.ones((3, 4), "float32"), np.ones((3, 8), "float32")
    return relaxd.load(path, threads=1).run([x, wide, np.float32(2)])["y"].tolist()


@pytest.fixture(scope="module")
def layout(bundles, tmp_path_factory):
    """The bundle `dims` as an OCI layout."""
    folder = tmp_path_factory.mktemp("layout")
    store = open_store(tmp_path_factory.mktemp("store")).blobs
    published = publish_bundle(store, bundles / "dims")
    manifest = store.read(published.digest)
    descriptors = [*json.loads(manifest)["layers"], json.loads(manifest)["config"]]
    blobs = folder / "blobs/sha256"
    blobs.mkdir(parents=True)
    for digest in {published.digest, *(each["digest"] for each in descriptors)}:
        (blobs / digest.removeprefix("sha256:")).write_bytes(store.read(digest))
    kind = "application/vnd.oci.image.manifest.v1+json"
    entry = {"mediaType": kind, "digest": published.digest, "size": len(manifest)}
    (folder / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": [entry]}))
    (folder / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')
    return folder


def test_an_oci_layout(layout):
    assert run(layout) == [[4] * 4] * 3


@pytest.mark.skipif(shutil.which("skopeo") is None, reason="skopeo is not installed")
def test_what_skopeo_copies(layout, tmp_path):
    for kind in ("dir", "oci"):
        copy = f"{kind}:{tmp_path / kind}"
        command = ["skopeo", "--insecure-policy", "copy", "-q", f"oci:{layout}", copy]
        subprocess.run(command, check=True)
        assert run(tmp_path / kind) == [[4] * 4] * 3


def copy_bundle(layout, folder):
    shutil.copytree(layout, folder)
    return folder, json.loads((folder / "index.json").read_text())


def test_several_images(layout, tmp_path):
    folder, index = copy_bundle(layout, tmp_path / "two")
    for target in ("a", "b"):
        index["manifests"].append(
            {**index["manifests"][0], "annotations": {"org.relaxd.target": target}}
        )
    (folder / "index.json").write_text(json.dumps({"manifests": index["manifests"][1:]}))
    with pytest.raises(BundleError, match="holds 2 images: a, b"):
        relaxd.load(folder)


def test_a_layout_that_is_damaged(layout, tmp_path, bundles):
    folder, _ = copy_bundle(layout, tmp_path / "damaged")
    library = (bundles / "dims/model.so").read_bytes()
    blob = folder / "blobs/sha256" / hashlib.sha256(library).hexdigest()
    blob.write_bytes(library[:-1] + b"?")
    with pytest.raises(BundleError, match=r"model.so does not have the sha256"):
        relaxd.load(folder)
    blob.unlink()
    with pytest.raises(BundleError, match=r"lacks the blob of model.so"):
        relaxd.load(folder)
    (folder / "index.json").write_text(json.dumps({"manifests": [{"digest": "sha256:../../x"}]}))
    with pytest.raises(BundleError, match="not a sha256"):
        relaxd.load(folder)
    assert not Path(tmp_path / "x").exists()
