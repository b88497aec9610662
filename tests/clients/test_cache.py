"""Files that stay in a browser, for its pages and its service workers."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from tests.clients.page_programs import ran
from tests.clients.test_js import bundle

__all__ = ["bundle"]

PROGRAM = Path(__file__).parent / "cache_page.js"
FILES = ("manifest.json", "model.wasm", "weights.bin")


@pytest.mark.slow
def test_pages_and_service_workers_fetch_a_blob_once(bundle: Path, tmp_path: Path) -> None:
    artifact, paths = _artifact(bundle)
    digest = _digest(json.dumps(artifact).encode())
    registry = {"reference": digest, "paths": {**paths, digest: "artifact.json"}}
    first, *later = ran(
        PROGRAM, bundle, tmp_path / "page", seconds=60, artifact=artifact, registry=registry
    )
    assert first["fetched"] == ["artifact.json", *sorted(paths.values())]
    assert later == [{"fetched": ["artifact.json"], "y": first["y"]}] * 2
    assert first["y"] == [0.5, 2, -1, 0.5, 2, -1]


def _artifact(bundle: Path) -> tuple[dict[str, Any], dict[str, str]]:
    """The bundle's manifest in a registry, and where a page finds each blob."""
    layers, paths = [], {}
    for name in FILES:
        content = (bundle / name).read_bytes()
        title = {"org.opencontainers.image.title": name}
        layers.append({"digest": _digest(content), "size": len(content), "annotations": title})
        paths[_digest(content)] = f"bundle/{name}"
    return {"schemaVersion": 2, "layers": layers}, paths


def _digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"
