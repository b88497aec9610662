import pytest

from artifacts.errors import BlobCorrupt, StorageFailed
from artifacts.store import hex_of
from service.observability.storage import StoreCollector


def figures(core):
    return {metric.name: metric.samples[0].value for metric in StoreCollector(core).collect()}


def test_blobs_that_were_set_aside_are_counted(core):
    assert figures(core)["relaxd_store_quarantined_blobs"] == 0
    name = hex_of(core.store.blobs.put(b"content").digest)
    path = core.settings.data_dir / "store" / "blobs" / "sha256" / name[:2] / name
    path.chmod(0o644)
    path.write_bytes(b"other")
    with pytest.raises(BlobCorrupt):
        core.store.blobs.read(f"sha256:{name}")
    assert figures(core)["relaxd_store_quarantined_blobs"] == 1


def test_a_store_that_is_away_leaves_the_other_figures(core, monkeypatch):
    def away(store):
        raise StorageFailed("away")

    monkeypatch.setattr("artifacts.local.LocalStore.quarantine", away)
    result = figures(core)
    assert "relaxd_store_quarantined_blobs" not in result
    assert result["relaxd_pins"] == 0
