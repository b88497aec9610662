"""Bundles that were really built for other machines: refused with what is needed and what is here,
and nothing opened.
"""

import subprocess
import sys
from pathlib import Path

import pytest

import relaxd
from compiler import build, targets
from compiler.isolation.messages import CompileJob
from relaxd.contract.options import CompileOptions, Flavour
from relaxd.contract.request import CompileRequest
from relaxd.errors import LoadContractError
from relaxd.loader.bundles.bundle import read_manifest
from relaxd.loader.machine.check import check_contract
from relaxd.loader.machine.devices import Driver, probe
from relaxd.loader.machine.host import this_host
from tests.compiler.graphs import add_and_divide

_PROGRAM = """
import sys
import relaxd
try:
    relaxd.load(sys.argv[1])
except relaxd.errors.LoadContractError as error:
    print(error.need, "|", error.have, "|", "tvm" in open("/proc/self/maps").read())
"""


def build_bundle(folder: Path, name: str, flavour: Flavour | None = None) -> Path:
    (folder / "m.onnx").write_bytes(add_and_divide(rows=1).SerializeToString())
    options = CompileOptions(verify=False, profile=False, flavour=flavour)
    request = CompileRequest.of(dims={"batch": (1, 8)}, options=options).to_json()
    build.build(CompileJob(str(folder / "m.onnx"), request, name, str(folder / "out"), "m"))
    return folder / "out"


@pytest.mark.parametrize(
    ("name", "what", "need"),
    [
        ("aarch64", "architecture", "aarch64"),
        ("riscv64", "architecture", "riscv64"),
        ("macos-arm64", "operating system", "darwin"),
        ("windows-x86-64", "operating system", "win32"),
        ("metal", "operating system", "darwin"),
        ("webgpu", "operating system", "wasm"),
    ],
)
def test_a_bundle_for_another_machine(tmp_path: Path, name: str, what: str, need: str) -> None:
    if this_host().arch != "x86_64":
        pytest.skip("this is such a machine")
    with pytest.raises(LoadContractError) as caught:
        relaxd.load(build_bundle(tmp_path, name))
    assert (caught.value.what, caught.value.need) == (what, need)
    assert caught.value.have in (this_host().arch, this_host().os)


def test_a_cuda_bundle_needs_driver_gpu_and_runtime(tmp_path: Path) -> None:
    if targets.resolve("cuda-sm80").device.lacking:
        pytest.skip(targets.resolve("cuda-sm80").device.lacking)
    manifest = read_manifest(build_bundle(tmp_path, "cuda-sm80"))

    def refused(
        driver: Driver | None, library: str | None = "libcudart.so.13"
    ) -> tuple[str, str, str]:
        with pytest.raises(LoadContractError) as caught:
            check_contract(
                manifest,
                this_host(),
                probe=lambda device: driver,
                cuda_runtime=lambda version: library,
            )
        return caught.value.what, caught.value.need, caught.value.have

    assert refused(None) == ("driver", "an NVIDIA driver and a GPU", "no cuda driver")
    assert refused(Driver("12.8", ((8, 0),))) == ("driver version", "13.0 or later", "12.8")
    assert refused(Driver("13.0", ())) == ("device", "a cuda device", "a driver without a device")
    assert refused(Driver("13.0", ((9, 0),))) == ("GPU", "compute capability 8.0", "9.0")
    assert refused(Driver("13.0", ((8, 6),)), None) == (
        "CUDA runtime",
        "libcudart.so.13",
        "no libcudart.so.13",
    )
    check_contract(
        manifest,
        this_host(),
        probe=lambda device: Driver("13.0", ((8, 6),)),
        cuda_runtime=lambda version: "libcudart.so.13",
    )
    if probe("cuda") is None:
        with pytest.raises(LoadContractError, match="an NVIDIA driver"):
            relaxd.load(tmp_path / "out")


def test_a_bundle_for_another_runtime_is_refused(tmp_path: Path) -> None:
    manifest = read_manifest(build_bundle(tmp_path, "x86-64-v2", Flavour.VM))
    need = manifest.load.runtime["apache-tvm-ffi"]
    with pytest.raises(LoadContractError) as caught:
        check_contract(manifest, this_host(), installed=lambda package: "0.0.9")
    assert (caught.value.what, caught.value.need, caught.value.have) == (
        "apache-tvm-ffi version",
        f"{need} or a later patch",
        "0.0.9",
    )


def test_a_bundle_that_would_die_of_an_illegal_instruction_is_never_opened(tmp_path: Path) -> None:
    lacking = set(targets.resolve("x86-64-v4").isa) - this_host().isa
    if not lacking:
        pytest.skip("this machine runs x86-64-v4")
    bundle = build_bundle(tmp_path, "x86-64-v4")
    printed = subprocess.check_output([sys.executable, "-c", _PROGRAM, str(bundle)], text=True)
    need, have, opened = printed.strip().split(" | ")
    assert lacking <= set(need.split(", "))
    assert have == f"a CPU without {', '.join(sorted(lacking))}"
    assert opened == "False"
