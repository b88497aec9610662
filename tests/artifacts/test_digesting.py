"""The digest of a bundle outside of any store is the one that a service publishes it under."""

from pathlib import Path

from artifacts import open_store
from artifacts.digesting import bundle_digest
from artifacts.oci import bundle_annotations, publish_bundle

KEY = "sha256:" + "1" * 64


def test_equal_code_has_an_equal_digest_however_fast_it_was(tmp_path: Path) -> None:
    bundle = tmp_path / "bundle"
    bundle.mkdir()
    (bundle / "model.so").write_bytes(b"code")
    (bundle / "manifest.json").write_text("{}")
    blobs = open_store(tmp_path / "store").blobs
    published = publish_bundle(blobs, bundle, bundle_annotations(KEY, "native")).digest
    for text in ('{"load_ms": 7}', '{"load_ms": 8}'):
        (bundle / "profile.json").write_text(text)
        assert bundle_digest(bundle, KEY, "native") == published
    (bundle / "model.so").write_bytes(b"other code")
    assert bundle_digest(bundle, KEY, "native") != published
