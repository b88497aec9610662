"""The manifest lists every file of a bundle as it is."""

import hashlib
import json
from pathlib import Path

import pytest

from compiler import targets
from compiler.bundle import files
from compiler.errors import LinkError
from relaxd.contract.bundle.manifest import FILENAME, LoadContract, Manifest

EMPTY = Manifest("m", (), (), (), {"name": "native"}, LoadContract("x86_64"), {}, {})


def test_every_file_but_the_manifest_is_listed(tmp_path: Path) -> None:
    (tmp_path / "model.so").write_bytes(b"library")
    (tmp_path / "empty").write_bytes(b"")
    sealed = files.seal(tmp_path, EMPTY)
    assert sealed.files.keys() == {"empty", "model.so"}
    entry = sealed.files["model.so"]
    assert (entry.sha256, entry.size) == (hashlib.sha256(b"library").hexdigest(), 7)
    assert Manifest.from_json(json.loads((tmp_path / FILENAME).read_text())) == sealed


def test_it_may_be_sealed_again_after_files_were_added(tmp_path: Path) -> None:
    (tmp_path / "model.so").write_bytes(b"library")
    first = files.seal(tmp_path, EMPTY)
    files.write_report(tmp_path, "profile.json", {"seconds": 1.5})
    second = files.seal(tmp_path, first)
    assert second.files.keys() == {"model.so", "profile.json"}
    assert json.loads((tmp_path / "profile.json").read_text()) == {"seconds": 1.5}


def test_a_runtime_that_is_not_installed_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "model.so").write_bytes(b"library")
    monkeypatch.setattr(files, "_runtime_folder", lambda target: tmp_path / "nowhere")
    with pytest.raises(LinkError) as caught:
        files.add_runtime(tmp_path, targets.resolve("native"))
    assert caught.value.code == "link.runtime_missing"
    assert "tvm_runtime" in caught.value.message


def test_an_archive_brings_no_runtime_but_the_licences(tmp_path: Path) -> None:
    (tmp_path / "model.a").write_bytes(b"archive")
    files.add_runtime(tmp_path, targets.resolve("riscv64"))
    files.add_licences(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["LICENSES", "model.a"]
    assert "Apache License" in (tmp_path / "LICENSES").read_text()
