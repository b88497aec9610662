import dataclasses
import hashlib
import io
import json
import os
import tarfile
from pathlib import Path

import numpy as np
import pytest

import relaxd
from relaxd.contract.bundle.manifest import FileEntry, LoadContract, Manifest
from relaxd.errors import BundleError
from relaxd.loader.bundles.bundle import Bundle, open_bundle, read_manifest, sha256_of
from relaxd.loader.bundles.library import own_copy


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda d: (d / "model.so").unlink(), "model.so is missing"),
        (
            lambda d: (d / "model.so").write_bytes((d / "model.so").read_bytes()[:-1]),
            "bytes; the manifest lists",
        ),
        (
            lambda d: (d / "libtvm_runtime.so").write_bytes(
                _flipped((d / "libtvm_runtime.so").read_bytes())
            ),
            "libtvm_runtime.so does not have",
        ),
        (lambda d: (d / "manifest.json").unlink(), "holds no manifest.json"),
        (lambda d: (d / "manifest.json").write_text("{"), "is not JSON"),
        (lambda d: (d / "manifest.json").write_bytes(b"\xff\xfe"), "is not JSON"),
    ],
)
def test_a_damaged_bundle_is_refused(doctored, damage, message):
    bundle = doctored(lambda manifest: None)
    damage(bundle)
    with pytest.raises(BundleError, match=message):
        relaxd.load(bundle)


def _flipped(data: bytes) -> bytes:
    return data[:-1] + bytes([data[-1] ^ 1])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda m: m.update(schema_version=2), "schema version 2"),
        (lambda m: m.pop("inputs"), "malformed"),
        (lambda m: m.update(dims={"n": {"min": 5, "max": 1}}), "malformed"),
        (lambda m: m["inputs"][0].update(dtype="float33"), "malformed"),
        (lambda m: m["load"].update(surprise=1), "malformed"),
        (lambda m: m.update(files={}), "libtvm_runtime.so"),
        (
            lambda m: m["files"].update({"../evil.so": {"sha256": "0", "size": 0}}),
            "outside the bundle",
        ),
        (
            lambda m: m["files"].update({"/etc/passwd": {"sha256": "0", "size": 0}}),
            "outside the bundle",
        ),
        (lambda m: m.update(entry="nothing"), "cannot be opened"),
    ],
)
def test_a_bad_manifest_is_refused(doctored, change, message):
    with pytest.raises(BundleError, match=message):
        relaxd.load(doctored(change))


def test_no_bundle_there(tmp_path):
    with pytest.raises(BundleError, match="no bundle at"):
        relaxd.load(tmp_path / "nothing")


def test_a_file_that_is_no_tar(tmp_path):
    file = tmp_path / "bundle.tar"
    file.write_bytes(b"not a tar at all")
    with pytest.raises(BundleError, match="readable tar"):
        relaxd.load(file)


@pytest.mark.parametrize("mode", ["w", "w:gz"])
@pytest.mark.parametrize("prefix", ["", "./"])
def test_a_tar_loads_like_its_directory(bundles: Path, tmp_path, mode, prefix):
    tar = tmp_path / "dims.tar"
    with tarfile.open(tar, mode) as file:
        for path in sorted((bundles / "dims").iterdir()):
            file.add(path, prefix + path.name)
    assert read_manifest(tar) == read_manifest(bundles / "dims")
    model = relaxd.load(tar)
    ones = model.run(
        {
            "x": np.ones((1, 2), "float32"),
            "wide": np.ones((1, 4), "float32"),
            "scale": np.float32(3),
        }
    )
    assert ones["y"].tolist() == [[6, 6]]


def test_a_tar_cannot_write_outside(bundles: Path, tmp_path):
    manifest = json.loads((bundles / "dims" / "manifest.json").read_text())
    manifest["files"] = {"../escaped": {"sha256": "0", "size": 1}}
    tar = tmp_path / "evil.tar"
    with tarfile.open(tar, "w") as file:
        for name, data in (("manifest.json", json.dumps(manifest).encode()), ("../escaped", b"x")):
            info = tarfile.TarInfo(name)
            info.size = len(data)
            file.addfile(info, io.BytesIO(data))
    with pytest.raises(BundleError, match="outside the bundle"), open_bundle(tar):
        pass


def test_a_truncated_tar(bundles: Path, tmp_path):
    tar = tmp_path / "dims.tar"
    with tarfile.open(tar, "w") as file:
        for name in ("manifest.json", "model.so"):
            file.add(bundles / "dims" / name, name)
    with pytest.raises(BundleError, match="holds no libtvm_runtime"), open_bundle(tar):
        pass
    tar.write_bytes(tar.read_bytes()[: tar.stat().st_size // 2])
    with pytest.raises(BundleError), open_bundle(tar):
        pass


@pytest.mark.parametrize("size", [0, 1, (1 << 17) - 1, 1 << 17, (1 << 17) + 1, (1 << 20) + 7])
def test_digests_of_files_of_every_size(tmp_path, size):
    content = bytes(range(256)) * (size // 256 + 1)
    (tmp_path / "file").write_bytes(content[:size])
    assert sha256_of(tmp_path / "file") == hashlib.sha256(content[:size]).hexdigest()


def list_values(directory: Path, files: dict[str, bytes]) -> Bundle:
    """A bundle of files, the library among them, under a manifest of its own."""
    for name, content in files.items():
        (directory / name).write_bytes(content)
    entries = {
        name: FileEntry(hashlib.sha256(content).hexdigest(), len(content))
        for name, content in files.items()
    }
    manifest = Manifest("m", (), (), (), {}, LoadContract("x86_64"), {}, {}, files=entries)
    return Bundle(str(directory), manifest)


@pytest.mark.parametrize("size", [0, 9, 1 << 17, (1 << 17) + 1, 1 << 20, (1 << 20) + 1])
@pytest.mark.parametrize("name", ["model.so", "weights.bin"])
def test_a_file_of_any_size_is_compared(tmp_path, name, size):
    bundle = list_values(tmp_path, {name: bytes(size)})
    bundle.verify()
    assert bundle.content(name) == bytes(size)
    if size:
        (tmp_path / name).write_bytes(bytes(size - 1) + b"x")
        with pytest.raises(BundleError, match="does not have the sha256"):
            Bundle(str(tmp_path), bundle.manifest).verify()


def test_what_is_opened_is_what_was_compared(tmp_path):
    small, large = b"library", bytes(2 << 20)
    bundle = list_values(tmp_path, {"model.so": small, "weights.bin": b"weights"})
    bundle.verify()
    (tmp_path / "model.so").write_bytes(b"another")
    assert Path(own_copy(bundle, "model.so")).read_bytes() == small
    with pytest.raises(BundleError, match="changed while"):
        bundle.read("model.so")
    (tmp_path / "weights.bin").write_bytes(b"others!")
    with pytest.raises(BundleError, match="changed while"):
        bundle.content("weights.bin")
    bundle = list_values(tmp_path, {"model.so": large})
    bundle.verify()
    (tmp_path / "model.so").write_bytes(large[1:] + b"x")
    assert Path(own_copy(bundle, "model.so")).read_bytes() == large


def test_a_library_that_is_held_is_compared_and_not_copied(tmp_path):
    bundle = list_values(tmp_path, {"model.so": b"library"})
    stored = {bundle.manifest.files["model.so"].sha256}
    bundle.verify(stored)
    assert not bundle.copies
    assert Path(own_copy(bundle, "model.so")).read_bytes() == b"library"
    (tmp_path / "model.so").write_bytes(b"another")
    with pytest.raises(BundleError, match="does not have the sha256"):
        bundle.verify(stored)
    with pytest.raises(BundleError, match="changed while"):
        own_copy(bundle, "model.so")


def test_a_copy_that_nobody_takes_is_closed(tmp_path):
    bundle = list_values(tmp_path, {"model.so": b"library"})
    bundle.verify()
    (descriptor,) = bundle.copies.values()
    bundle.close()
    assert not bundle.copies
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)


def test_a_refused_load_leaves_no_copy(doctored):
    bundle = doctored(lambda manifest: None)
    (bundle / "model.so").write_bytes(_flipped((bundle / "model.so").read_bytes()))
    before = os.listdir("/proc/self/fd")
    with pytest.raises(BundleError, match=r"model\.so does not have"):
        relaxd.load(bundle)
    assert len(os.listdir("/proc/self/fd")) == len(before)


@pytest.mark.parametrize("name", ["kernels.json", "model.h", "LICENSES"])
def test_reports_are_compared_by_size_at_once_and_by_content_when_read(tmp_path, name):
    bundle = list_values(tmp_path, {name: b"{}"})
    bundle.verify()
    assert bundle.report(name) == b"{}"
    (tmp_path / name).write_bytes(b"[]")
    bundle.verify()
    with pytest.raises(BundleError, match="does not have the sha256"):
        bundle.report(name)
    (tmp_path / name).write_bytes(b"{ }")
    for compare in (bundle.verify, lambda: bundle.report(name)):
        with pytest.raises(BundleError, match="3 bytes; the manifest lists 2"):
            compare()
    (tmp_path / name).unlink()
    with pytest.raises(BundleError, match="is missing"):
        bundle.verify()


def test_a_report_that_is_not_listed(tmp_path):
    assert list_values(tmp_path, {}).report("kernels.json") is None


def test_a_library_by_the_name_of_a_report_is_compared(tmp_path):
    bundle = list_values(tmp_path, {"LICENSES": b"library"})
    bundle = Bundle(str(tmp_path), dataclasses.replace(bundle.manifest, library="LICENSES"))
    (tmp_path / "LICENSES").write_bytes(b"another")
    with pytest.raises(BundleError, match="does not have the sha256"):
        bundle.verify()


def test_a_pipe_where_a_file_has_to_be(doctored):
    bundle = doctored(lambda manifest: None)
    for name in ("model.so", "manifest.json"):
        (bundle / name).unlink()
        os.mkfifo(bundle / name)
        with pytest.raises(BundleError, match=r"model\.so is missing|holds no manifest\.json"):
            relaxd.load(bundle)


def test_a_folder_where_a_file_has_to_be(doctored):
    bundle = doctored(lambda manifest: None)
    (bundle / "model.so").unlink()
    (bundle / "model.so").mkdir()
    with pytest.raises(BundleError, match=r"model\.so is missing"):
        relaxd.load(bundle)
