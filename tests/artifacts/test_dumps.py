"""Dumps beside bundles."""

import math

import pytest

from artifacts.cache import ActionCache
from artifacts.documents import is_complete, read_document
from artifacts.dumps import DUMP, dump_of, publish_dump
from artifacts.oci import REPOSITORY, bundle_files, publish_bundle
from artifacts.references import References
from artifacts.store import Artifacts
from tests.support.bundles import fetch


@pytest.fixture
def store(blobs, records):
    return Artifacts(
        blobs, ActionCache(records, lambda digest: is_complete(blobs, digest)), References(records)
    )


def folder(path, **files):
    path.mkdir()
    for name, text in files.items():
        (path / name).write_text(text)
    return path


@pytest.fixture
def bundle(store, tmp_path):
    return publish_bundle(store.blobs, folder(tmp_path / "bundle", manifest="{}")).digest


def test_a_dump_refers_to_its_bundle_and_is_found_by_it(store, bundle, tmp_path):
    assert dump_of(store, bundle) is None
    published = publish_dump(store, folder(tmp_path / "dump", a="one", b="two"), bundle)
    assert dump_of(store, bundle) == published
    document = read_document(store.blobs, published.digest)
    assert (document.artifact_type, document.subject.digest) == (DUMP, bundle)
    assert document.subject.size == store.blobs.size(bundle)
    assert sorted(bundle_files(document)) == ["a", "b"]
    assert published.size == 6
    assert store.references.referrers(REPOSITORY, bundle) == [published.digest]
    fetch(store.blobs, published.digest, tmp_path / "back")
    assert (tmp_path / "back" / "b").read_text() == "two"


def test_the_bundle_stays_what_it_was(store, bundle, tmp_path):
    before = store.blobs.read(bundle)
    publish_dump(store, folder(tmp_path / "dump", a="one"), bundle)
    assert store.blobs.read(bundle) == before
    assert "subject" not in read_document(store.blobs, bundle).json


def test_other_referrers_and_dumps_that_lost_a_file_do_not_count(store, bundle, tmp_path):
    second = publish_bundle(store.blobs, folder(tmp_path / "other", signature="s")).digest
    store.references.refer(REPOSITORY, bundle, second)
    assert dump_of(store, bundle) is None
    published = publish_dump(store, folder(tmp_path / "dump", a="one"), bundle)
    assert dump_of(store, bundle) == published
    (lost,) = bundle_files(read_document(store.blobs, published.digest)).values()
    store.blobs.discard(lost.digest, math.inf)
    assert dump_of(store, bundle) is None
