"""Libraries for GPUs of phones and boards run on OpenCL's driver for the processor that qemu
emulates, as they are shipped.
"""

import json
import re
from pathlib import Path

import numpy as np
import pytest

from compiler import compile_model, targets
from compiler.targets import Target
from compiler.verify.emulation import emulator, opencl, program
from compiler.verify.point_loop import PointFailed
from compiler.verify.run.emulated import Program, program_of, start_process
from relaxd.loader.bundles.bundle import read_manifest
from tests.support.models.small import WIDTH, perceptron, reference

pytestmark = pytest.mark.slow

_DIMS = {"batch": "1:4", "seq": "1:64"}


def _emulated(name: str) -> Target:
    target = targets.resolve(name)
    if why := emulator.explain_missing(target):
        pytest.skip(why)
    return target


@pytest.mark.parametrize("name", ["opencl-mali", "opencl-adreno"])
def test_a_library_is_verified_and_its_faults_are_seen(name: str, tmp_path: Path) -> None:
    target, out = _emulated(name), tmp_path / "out"
    manifest = compile_model(
        perceptron(), output=out, target=name, dims=_DIMS, options={"profile": False}
    )
    numerics = json.loads((out / "numerics.json").read_text())
    assert (numerics["verdict"], numerics["left_out"]) == ("passed", [])
    assert numerics["status"] == manifest.target["status"] == "emulated"
    assert numerics["emulation"]["by"] == "pocl under qemu-aarch64"
    assert "its own driver's compiler" in numerics["emulation"]["unseen"]
    x = np.random.default_rng(0).standard_normal((3, 5, WIDTH)).astype("float32")
    want = reference(perceptron(), {"x": x})[0]
    np.testing.assert_allclose(_run(out, target, tmp_path / "right", x), want, atol=1e-6)
    # As long as it was, since the library says how long its kernels' text is.
    library = out / manifest.library
    content = library.read_bytes()
    library.write_bytes(re.sub(rb"max\(", b"min(", content))
    assert library.read_bytes() != content
    wrong = _run(out, target, tmp_path / "wrong", x)
    assert not np.allclose(wrong, want, atol=1e-3)
    library.write_bytes(content.replace(b"__kernel void", b"__kernel vain"))
    with pytest.raises(PointFailed, match="Device pthread failed to build the program"):
        _run(out, target, tmp_path / "refused", x)


def _run(bundle: Path, target: Target, scratch: Path, x: np.ndarray) -> np.ndarray:
    scratch.mkdir()
    program.build(bundle, target, scratch / "program")
    return _program(bundle, target, scratch).run({"x": x})["y"]


def _program(bundle: Path, target: Target, scratch: Path) -> Program:
    qemu = emulator.find(target)
    assert isinstance(qemu, emulator.Emulator)
    words = (*qemu.command, *opencl.list_cache_words(scratch / "kernels"))
    return program_of({"bundle": str(bundle), "scratch": str(scratch)}, words, start_process)


def test_a_header_opens_the_model_on_the_device_that_it_names(tmp_path: Path) -> None:
    options = {"verify": False, "profile": False}
    for name, flavour in (("opencl-adreno", "vm"), ("android-arm64", "vm")):
        compile_model(
            perceptron(),
            output=tmp_path / name,
            target=name,
            dims=_DIMS,
            options={**options, "flavour": flavour},
        )
    device, processor = (
        (tmp_path / name / "model.h").read_text() for name in ("opencl-adreno", "android-arm64")
    )
    assert "all tensors of the device kDLOpenCL, 0" in device
    assert "{kDLOpenCL, 0, 2, kDLCPU, 0, 2}" in device
    assert "all CPU tensors" in processor
    assert "kDLOpenCL" not in processor
    assert read_manifest(tmp_path / "opencl-adreno").load.device == "opencl"
