import gc
import json
import shutil
import tarfile
from pathlib import Path

import numpy as np
import pytest

import relaxd
from relaxd.contract.bundle.manifest import FileEntry, LoadContract, Manifest
from relaxd.errors import BundleError
from relaxd.loader.bundles.bundle import Bundle
from relaxd.loader.bundles.weights import content_of


def outputs(model) -> dict[str, np.ndarray]:
    return model.run({"x": np.zeros((2, 512), "float32")})


def check(values: dict[str, np.ndarray]) -> None:
    ramp = np.arange(512, dtype="float32")
    np.testing.assert_array_equal(values["sum"], np.stack([2 * ramp + 1] * 2))
    np.testing.assert_array_equal(values["kept"], ramp + 1)
    np.testing.assert_array_equal(values["half"].view("uint16"), np.ones(1024, "uint16"))


def test_weights_are_the_last_arguments(bundles):
    model = relaxd.load(bundles / "weighty")
    assert len(model.manifest.weights) == 3
    assert all(weight.offset % 64 == 0 for weight in model.manifest.weights)
    check(outputs(model))


def test_a_returned_weight_is_a_copy(bundles):
    model = relaxd.load(bundles / "weighty")
    for array in outputs(model).values():
        array[...] = 7
    check(outputs(model))


def test_a_fresh_output_is_not_a_copy(bundles):
    assert not outputs(relaxd.load(bundles / "weighty"))["sum"].flags.owndata


def test_mapped_weights_outlive_a_tar_and_its_loading(bundles, tmp_path):
    tar = tmp_path / "weighty.tar"
    with tarfile.open(tar, "w") as file:
        file.add(bundles / "weighty", ".")
    model = relaxd.load(tar)
    tar.unlink()
    gc.collect()
    check(outputs(model))


def test_copied_weights_are_not_mapped(bundles, tmp_path):
    copy = tmp_path / "weighty"
    shutil.copytree(bundles / "weighty", copy)
    stored = relaxd.load(copy, copy_weights=True)
    assert str(copy / "weights.bin") not in Path("/proc/self/maps").read_text()
    check(outputs(stored))
    mapped = relaxd.load(copy)
    assert str(copy / "weights.bin") in Path("/proc/self/maps").read_text()
    check(outputs(mapped))


@pytest.mark.parametrize("copied", [False, True])
def test_the_bytes_of_a_file_of_weights(tmp_path, copied):
    for size in (0, 5):
        (tmp_path / "weights.bin").write_bytes(bytes(range(size)))
        entry = FileEntry("0" * 64, size)
        files = {"weights.bin": entry}
        manifest = Manifest("m", (), (), (), {}, LoadContract("x86_64"), {}, {}, files=files)
        content = content_of(Bundle(str(tmp_path), manifest, copied), "weights.bin")
        assert content.tolist() == list(range(size))
        assert content.dtype == np.uint8


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda m: m["weights"][0].update(offset=1 << 40), "ends before a weight"),
        (lambda m: m["weights"][0].update(offset=-64), "malformed"),
        (lambda m: m["weights"][0].update(shape=[1 << 40]), "ends before a weight"),
        (lambda m: m["weights"][0].update(dtype="float33"), "float33"),
        (lambda m: m["weights"][0].pop("offset"), "malformed"),
        (lambda m: m["files"].pop("weights.bin"), "lists no weights.bin"),
        (lambda m: m["files"].pop("model.so"), "lists no model.so"),
        (lambda m: m.update(library="absent.so"), "lists no absent.so"),
    ],
)
def test_a_manifest_that_does_not_fit_the_weights(bundles: Path, tmp_path, change, message):
    copy = tmp_path / "weighty"
    shutil.copytree(bundles / "weighty", copy)
    manifest = json.loads((copy / "manifest.json").read_text())
    change(manifest)
    (copy / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(BundleError, match=message):
        relaxd.load(copy)
