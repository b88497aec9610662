import pytest

from artifacts import open_store
from artifacts.checking import check
from artifacts.documents import BUNDLE
from artifacts.errors import BlobNotFound
from artifacts.oci import publish_files
from relaxd.contract.canonical import digest_of

KEY = digest_of(b"an action")


@pytest.fixture
def store(tmp_path):
    return open_store(tmp_path / "store")


@pytest.fixture
def bundle(store, tmp_path):
    folder = tmp_path / "bundle"
    folder.mkdir()
    (folder / "model.so").write_bytes(b"a library")
    return publish_files(store.blobs, folder, BUNDLE, {}).digest


def path_of(tmp_path, digest):
    name = digest.removeprefix("sha256:")
    return tmp_path / "store/blobs/sha256" / name[:2] / name


def test_a_whole_store_is_sound(store, bundle):
    store.actions.put(KEY, bundle)
    soundness = check(store, lambda: [bundle])
    assert soundness.blobs == len(list(store.blobs.listing()))
    assert soundness.bytes == sum(blob.size for blob in store.blobs.listing())
    assert (soundness.corrupt, soundness.missing) == ([], [])


@pytest.mark.parametrize("root", ["job", "action"])
def test_a_layer_that_is_gone_is_missed(store, bundle, tmp_path, root):
    layer = digest_of(b"a library")
    path_of(tmp_path, layer).unlink()
    if root == "action":
        store.actions.put(KEY, bundle)
    soundness = check(store, lambda: [bundle] if root == "job" else [])
    assert (soundness.corrupt, soundness.missing) == ([], [layer])


def test_a_root_that_is_gone_is_missed(store):
    lost = digest_of(b"a model")
    assert check(store, lambda: [lost]).missing == [lost]


def test_a_flipped_bit_is_found_and_the_blob_is_set_aside(store, bundle, tmp_path):
    layer = digest_of(b"a library")
    path_of(tmp_path, layer).write_bytes(b"b library")
    soundness = check(store, lambda: [bundle])
    assert (soundness.corrupt, soundness.missing) == ([layer], [layer])
    with pytest.raises(BlobNotFound):
        store.blobs.read(layer)


def test_a_blob_that_nothing_needs_may_be_anything(store):
    store.blobs.put(b"no manifest")
    soundness = check(store, list)
    assert (soundness.blobs, soundness.missing) == (1, [])
