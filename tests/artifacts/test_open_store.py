"""One factory for every kind of store."""

import math
import subprocess
import sys

import pytest

from artifacts import open_store
from artifacts.errors import StorageFailed, UnsupportedStore
from artifacts.oci import publish_bundle
from relaxd.contract.canonical import digest_of

KEY = digest_of(b"action")


@pytest.fixture(
    params=["{}", "file://{}", "memory://", pytest.param("s3", marks=pytest.mark.scaled)]
)
def location(request, tmp_path):
    """A path or URL of every kind of store."""
    if request.param == "s3":
        return request.getfixturevalue("s3_url")
    return request.param.format(tmp_path / "store")


def test_a_store_holds_blobs_actions_and_references(location, tmp_path):
    store = open_store(location)
    (tmp_path / "bundle").mkdir()
    (tmp_path / "bundle" / "model.so").write_bytes(b"library")
    digest = publish_bundle(store.blobs, tmp_path / "bundle").digest
    store.references.tag("relaxd/a", "v1", digest)
    assert (
        store.actions.put(KEY, digest)
        == store.actions.get(KEY)
        == store.references.resolve("relaxd/a", "v1")
        == digest
    )
    store.blobs.discard(digest_of(b"library"), math.inf)
    assert store.actions.get(KEY) is None, "a bundle without its library must be compiled again"


def test_a_local_store_outlives_its_process(tmp_path):
    code = (
        "import sys; from artifacts import open_store; s = open_store(sys.argv[1]); "
        "print(s.blobs.put(b'kept').digest)"
    )
    digest = subprocess.check_output(
        [sys.executable, "-c", code, tmp_path / "store"], text=True
    ).strip()
    assert open_store(tmp_path / "store").blobs.read(digest) == b"kept"


@pytest.mark.parametrize("url", ["ftp://host/x", "http://host/x", "redis://x"])
def test_an_unknown_scheme_names_those_known(url):
    with pytest.raises(UnsupportedStore, match="s3"):
        open_store(url)


def test_a_store_that_cannot_be_opened_is_a_typed_error(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StorageFailed, match="cannot open"):
        open_store(tmp_path / "file" / "store")


def test_the_local_store_loads_no_cloud_library(tmp_path):
    code = (
        "import sys, artifacts; artifacts.open_store(sys.argv[1]); print({'obstore', 'tvm', "
        "'fastapi'} & set(sys.modules))"
    )
    assert (
        subprocess.check_output([sys.executable, "-c", code, tmp_path], text=True).strip()
        == "set()"
    )
