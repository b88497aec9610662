"""`relaxd.load` of a reference to a registry: the bundle is pulled once and kept."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import relaxd
from artifacts.oci import publish_bundle
from relaxd.errors import ServerError, ServerUnreachable
from tests.service.live import Live, live


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    with live(tmp_path_factory.mktemp("api")) as running:
        yield running


def test_a_bundle_of_a_registry(
    api: Live, bundles: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RELAXD_BUNDLES_DIR", str(tmp_path))
    digest = publish_bundle(api.services.store.blobs, bundles / "dims").digest
    host = api.url.removeprefix("http://")
    x, wide = np.ones((3, 4), "float32"), np.ones((3, 8), "float32")
    for position in (host, "127.0.0.1:9"):
        model = relaxd.load(f"oci://{position}/relaxd/bundles@{digest}", threads=1)
        assert model.run([x, wide, np.float32(2)])["y"].tolist() == [[4] * 4] * 3
    assert [folder.name for folder in tmp_path.iterdir()] == [digest.replace(":", "-")]
    absent = "sha256:" + "0" * 64
    with pytest.raises(ServerError):
        relaxd.load(f"oci://{host}/relaxd/bundles@{absent}")
    with pytest.raises(ServerUnreachable):
        relaxd.load(f"oci://127.0.0.1:9/relaxd/bundles@{absent}")
