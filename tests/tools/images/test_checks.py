import json
from pathlib import Path

import pytest

from tools.image_sbom import Package, document
from tools.images import checks
from tools.images.checks import SBOM, faults, size

NAMES = ("title", "description", "version", "revision", "licenses", "base.name")
LABELS = {f"org.opencontainers.image.{name}": "x" for name in NAMES} | {SBOM: "/sbom.json"}


def image(folder: Path, *names: str) -> Path:
    packages = [Package(name, "1", f"pkg:pypi/{name}@1") for name in names]
    (folder / "sbom.json").write_text(json.dumps(document("relaxd-api", packages)))
    return folder


def test_a_sound_image_has_no_faults(tmp_path: Path) -> None:
    assert (
        faults("api", image(tmp_path, "relaxd", "relaxd-server", "fastapi", "libc6"), LABELS) == []
    )


def test_a_compiler_in_the_api_is_found(tmp_path: Path) -> None:
    root = image(tmp_path, "relaxd", "relaxd-server", "fastapi", "libc6", "torch")
    assert faults("api", root, LABELS) == ["the API's image holds ['torch']"]
    assert faults("worker", root, LABELS) == []


def test_a_package_that_is_not_listed_and_a_label_that_is_missing_are_found(tmp_path: Path) -> None:
    assert faults("api", image(tmp_path, "relaxd", "relaxd-server", "fastapi"), LABELS) == [
        "the bill of materials lacks ['libc6']"
    ]
    assert "no label org.relaxd.sbom" in faults("api", tmp_path, {})


def test_an_image_that_is_too_large_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checks, "API_LIMIT", 1000)
    root = image(tmp_path, "relaxd", "relaxd-server", "fastapi", "libc6")
    assert "bytes, at most 1000 are allowed" in faults("api", root, LABELS)[0]


def test_a_file_of_two_names_is_counted_once(tmp_path: Path) -> None:
    (tmp_path / "one").write_bytes(b"x" * 1000)
    (tmp_path / "two").hardlink_to(tmp_path / "one")
    assert size(tmp_path) == 1000
