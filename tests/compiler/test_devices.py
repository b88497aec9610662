"""Bundles for devices: what they say of themselves, and where there is such a device, what they
compute.
"""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

sys.modules.setdefault("torch", None)

import tvm  # noqa: E402
from tvm import relax  # noqa: E402

import relaxd  # noqa: E402
from compiler import compile_model, targets  # noqa: E402
from relaxd.errors import ExecutionError, InputError  # noqa: E402
from relaxd.loader.machine.devices import probe  # noqa: E402
from tests.support import wgsl  # noqa: E402
from tests.support.models import known  # noqa: E402
from tests.support.models.small import WIDTH, mask, perceptron, reference  # noqa: E402

pytestmark = pytest.mark.slow


def run(bundle: Path, manifest, arrays, device) -> list[np.ndarray]:
    """The bundle's outputs by TVM's virtual machine alone, all tensors on `device`."""
    content = (bundle / manifest.weights_file).read_bytes() if manifest.weights else b""
    weights = [
        np.frombuffer(content, w.dtype, int(np.prod(w.shape)), w.offset).reshape(w.shape)
        for w in manifest.weights
    ]
    machine = relax.VirtualMachine(tvm.runtime.load_module(str(bundle / manifest.library)), device)
    result = machine[manifest.entry](
        *(tvm.runtime.tensor(np.ascontiguousarray(array), device) for array in (*arrays, *weights))
    )
    return [result.numpy()] if hasattr(result, "numpy") else [part.numpy() for part in result]


def cuda_target() -> str:
    """The registry's target for the first CUDA device; skips where there is none."""
    driver = probe("cuda")
    if driver is None or not driver.devices:
        pytest.skip("there is no CUDA device")
    major, minor = driver.devices[0]
    fitting = [
        name
        for name in targets.names()
        if name.startswith(f"cuda-sm{major}") and int(name[-1]) <= minor
    ]
    if not fitting:
        pytest.skip(f"the registry has no target for compute capability {major}.{minor}")
    return fitting[-1]


def test_a_bundle_says_what_it_needs_and_that_it_was_not_run(tmp_path):
    manifest = compile_model(
        mask(),
        output=tmp_path / "out",
        target="webgpu",
        dims={"batch": "1:4", "seq": "1:16"},
        options={"verify": False},
    )
    assert manifest.load.device == "webgpu"
    assert manifest.target["status"] == "unverified"
    assert '"not_run"' in (tmp_path / "out" / "numerics.json").read_text()
    shaders = wgsl.shaders((tmp_path / "out" / manifest.library).read_bytes())
    assert len(shaders) > 3
    # WGSL keeps no booleans and no integers of another size in memory.
    assert not [
        name for name, text in shaders.items() if re.search(r"array<(bool|[iu](8|16|64))", text)
    ]


def test_a_browser_takes_the_shaders(tmp_path):
    if not wgsl.present():
        pytest.skip(
            "Dawn is not installed: npm install webgpu, and NODE_PATH naming its node_modules"
        )
    options = {"verify": False, "profile": False}
    manifest = compile_model(
        mask(),
        output=tmp_path / "out",
        target="webgpu",
        dims={"batch": "1:4", "seq": "1:16"},
        options=options,
    )
    shaders = wgsl.shaders((tmp_path / "out" / manifest.library).read_bytes())
    assert wgsl.refuse(shaders) == {}
    broken = {name: text.replace("i32", "i64") for name, text in shaders.items()}
    assert wgsl.refuse(broken).keys() == shaders.keys()


WITHOUT_DRIVERS = """
import sys
import relaxd
try:
    relaxd.load(sys.argv[1])
except relaxd.errors.LoadContractError as error:
    print(error.need, "|", error.have, "|", "tvm" in open("/proc/self/maps").read())
"""


def test_opencl_runs_by_the_runtime_in_the_bundle(tmp_path):
    """On whatever device there is; one that is the processor under another name counts as an
    emulator.
    """
    driver = probe("opencl")
    if driver is None or not driver.devices:
        pytest.skip("there is no OpenCL device: pocl-opencl-icd makes one of the processor")
    model = perceptron()
    manifest = compile_model(
        model, output=tmp_path / "out", target="opencl", dims={"batch": "1:4", "seq": "1:64"}
    )
    numerics = json.loads((tmp_path / "out" / "numerics.json").read_text())
    assert (numerics["verdict"], numerics["left_out"]) == ("passed", [])
    assert (
        numerics["status"]
        == manifest.target["status"]
        == ("emulated" if driver.software else "executed")
    )
    loaded = relaxd.load(tmp_path / "out")
    for batch, seq in ((1, 2), (1, 7), (3, 16), (4, 64), (1, 1)):
        x = np.random.default_rng(seq).standard_normal((batch, seq, WIDTH)).astype("float32")
        np.testing.assert_allclose(
            loaded.run({"x": x})["y"], reference(model, {"x": x})[0], rtol=1e-3, atol=1e-4
        )
    with pytest.raises(InputError, match="seq must be"):
        loaded.run({"x": np.zeros((1, 65, WIDTH), "float32")})
    # OpenCL's loader finds its drivers through these.
    environment = {
        **os.environ,
        "OCL_ICD_VENDORS": str(tmp_path / "none"),
        "OPENCL_VENDOR_PATH": str(tmp_path / "none"),
    }
    printed = subprocess.check_output(
        [sys.executable, "-c", WITHOUT_DRIVERS, tmp_path / "out"], text=True, env=environment
    )
    assert printed.strip() == "a driver for opencl | no opencl driver | False"
    # What the driver refuses comes as an error, too.
    shutil.copytree(tmp_path / "out", tmp_path / "refused")
    library = tmp_path / "refused" / manifest.library
    library.write_bytes(library.read_bytes().replace(b"__kernel void", b"__kernel vain"))
    record = json.loads((tmp_path / "refused" / "manifest.json").read_text())
    record["files"][manifest.library]["sha256"] = hashlib.sha256(library.read_bytes()).hexdigest()
    (tmp_path / "refused" / "manifest.json").write_text(json.dumps(record))
    with pytest.raises(ExecutionError, match="the OpenCL driver refused the kernels"):
        relaxd.load(tmp_path / "refused").run({"x": x})
    # What fails on the device is told once, and the next call is a fresh start.
    failure = tvm.get_global_func("relaxd.opencl.failure")
    tvm.get_global_func("runtime.TVMTensorAllocWithScope")(
        tvm.runtime.ShapeTuple([1 << 60]), tvm.DataType("uint8"), tvm.opencl(), None
    )
    with pytest.raises(ExecutionError, match="clCreateBuffer failed"):
        loaded.run({"x": x})
    assert failure() == ""
    np.testing.assert_allclose(
        loaded.run({"x": x})["y"], reference(model, {"x": x})[0], rtol=1e-3, atol=1e-4
    )


@pytest.mark.parametrize("where", ["processor", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_one_library_is_right_at_every_size(where, tmp_path):
    target, device = (
        ("x86-64-v2", tvm.cpu()) if where == "processor" else (cuda_target(), tvm.cuda())
    )
    model = perceptron()
    manifest = compile_model(
        model,
        output=tmp_path / "out",
        target=target,
        dims={"batch": "1:4", "seq": "1:64"},
        options={"verify": False, "profile": False, "flavour": "vm"},
    )
    for batch, seq in ((1, 1), (1, 2), (1, 7), (3, 16), (4, 64)):
        x = np.random.default_rng(seq).standard_normal((batch, seq, WIDTH)).astype("float32")
        np.testing.assert_allclose(
            run(tmp_path / "out", manifest, [x], device)[0],
            reference(model, {"x": x})[0],
            rtol=1e-3,
            atol=1e-4,
        )


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["minilm", "resnet50", "llama"])
def test_real_models_match_the_reference(name, tmp_path):
    target, model = cuda_target(), known.MODELS[name]
    manifest = compile_model(
        known.path_of(name),
        output=tmp_path / "out",
        target=target,
        dims=model.dims,
        options={"verify": False, "profile": False},
    )
    loaded = relaxd.load(tmp_path / "out")
    for dims in model.shapes:
        feed = known.feed_of(name, dims)
        got = loaded.run({spec.name: feed[spec.name] for spec in manifest.inputs})
        for output, want in known.reference(name, feed).items():
            np.testing.assert_allclose(got[output], want, rtol=1e-3, atol=1e-3)
