from dataclasses import replace
from importlib import metadata

import pytest

import relaxd
from relaxd.contract.bundle.manifest import LoadContract, Manifest
from relaxd.contract.dims.tensors import TensorSpec
from relaxd.errors import LoadContractError
from relaxd.loader.machine.check import check_contract, numbers
from relaxd.loader.machine.devices import Driver, probe
from relaxd.loader.machine.host import Host

HOST = Host("x86_64", "linux", frozenset({"avx2", "fma"}), "2.36")
NEED = LoadContract(
    "x86_64", "linux", ("avx2",), "2.28", runtime={"apache-tvm-ffi": "0.1.15.post2"}
)


def check(
    need: LoadContract,
    host: Host = HOST,
    *,
    ffi="0.1.15.post2",
    driver=None,
    inputs=(),
    library="model.so",
    cuda_runtime=None,
) -> None:
    manifest = Manifest("m", inputs, (), (), {}, need, {}, {}, library=library)

    def installed(package: str) -> str:
        if package != "apache-tvm-ffi" or not ffi:
            raise metadata.PackageNotFoundError(package)
        return ffi

    check_contract(
        manifest,
        host,
        installed=installed,
        probe=lambda device: driver,
        cuda_runtime=lambda version: cuda_runtime,
    )


@pytest.mark.parametrize("ffi", ["0.1.15.post2", "0.1.15", "0.1.16"])
def test_what_meets_the_contract_passes(ffi):
    check(NEED, ffi=ffi)
    check(replace(NEED, libc=None), replace(HOST, libc=None))
    check(replace(NEED, libc="2.36"))


@pytest.mark.parametrize(
    ("need", "host", "what", "needs", "has"),
    [
        (replace(NEED, arch="aarch64"), HOST, "architecture", "aarch64", "x86_64"),
        (replace(NEED, os="darwin"), HOST, "operating system", "darwin", "linux"),
        (
            replace(NEED, isa=("avx2", "avx512f")),
            HOST,
            "instruction set",
            "avx2, avx512f",
            "a CPU without avx512f",
        ),
        (replace(NEED, libc="2.100"), HOST, "C library", "glibc 2.100 or later", "glibc 2.36"),
        (NEED, replace(HOST, libc="2.4"), "C library", "glibc 2.28 or later", "glibc 2.4"),
        (NEED, replace(HOST, libc=None), "C library", "glibc 2.28 or later", "no glibc"),
        (replace(NEED, device="vulkan"), HOST, "driver", "a driver for vulkan", "no vulkan driver"),
        (
            replace(NEED, device="cuda", sm="sm_90"),
            HOST,
            "driver",
            "an NVIDIA driver and a GPU",
            "no cuda driver",
        ),
        (
            replace(NEED, device="webgpu"),
            HOST,
            "driver",
            "a browser with WebGPU",
            "no webgpu driver",
        ),
    ],
)
def test_the_error_names_need_and_have(need, host, what, needs, has):
    with pytest.raises(LoadContractError) as caught:
        check(need, host)
    assert (caught.value.what, caught.value.need, caught.value.have) == (what, needs, has)
    assert caught.value.hint
    assert needs in str(caught.value)
    assert has in str(caught.value)


@pytest.mark.parametrize(
    ("ffi", "has"),
    [("0.1.14", "0.1.14"), ("0.2.0", "0.2.0"), ("1.1.15", "1.1.15"), ("", "no apache-tvm-ffi")],
)
def test_ffi_of_another_abi(ffi, has):
    with pytest.raises(LoadContractError) as caught:
        check(NEED, ffi=ffi)
    assert caught.value.have == has


def test_bfloat16_needs_ml_dtypes():
    with pytest.raises(LoadContractError, match="ml_dtypes"):
        check(NEED, inputs=(TensorSpec.of("x", "bfloat16[n]"),))


@pytest.mark.parametrize(
    ("sm", "device", "fits"),
    [
        ("sm_80", (8, 6), True),
        ("sm_86", (8, 0), False),
        ("sm_80", (9, 0), False),
        ("sm_90a", (9, 0), True),
    ],
)
def test_compute_capability(sm, device, fits):
    need = replace(NEED, device="cuda", sm=sm)
    if fits:
        check(need, driver=Driver("12.4", (device,)))
    else:
        with pytest.raises(LoadContractError, match="compute capability"):
            check(need, driver=Driver("12.4", (device,)))


def test_a_driver_without_a_device():
    with pytest.raises(LoadContractError, match="a driver without a device"):
        check(replace(NEED, device="cuda"), driver=Driver("12.4", ()))


@pytest.mark.parametrize(
    ("version", "fits"), [("12.4", True), ("12.0", True), ("11.8", False), ("", False)]
)
def test_a_driver_of_another_version(version, fits):
    need, driver = replace(NEED, device="cuda", driver="12.0"), Driver(version, ((9, 0),))
    if fits:
        check(need, driver=driver)
    else:
        with pytest.raises(LoadContractError, match="driver version"):
            check(need, driver=driver)


@pytest.mark.parametrize("device", ["webgpu", "metal", "rocm"])
def test_a_device_that_the_runtime_here_does_not_run(device):
    with pytest.raises(LoadContractError) as caught:
        check(replace(NEED, device=device), driver=Driver("", ((0, 0),)))
    assert (caught.value.what, caught.value.need) == ("device", device)
    assert caught.value.have == "a relaxd that runs kernels by cuda and opencl"


def test_cuda_needs_its_runtime_library():
    need = replace(NEED, device="cuda", runtime={"nvidia-cuda-runtime": "13.0"})
    driver = Driver("13.0", ((9, 0),))
    check(need, driver=driver, cuda_runtime="libcudart.so.13")
    with pytest.raises(LoadContractError) as caught:
        check(need, driver=driver)
    assert (caught.value.what, caught.value.need, caught.value.have) == (
        "CUDA runtime",
        "libcudart.so.13",
        "no libcudart.so.13",
    )
    assert "nvidia-cuda-runtime==13" in str(caught.value.hint)


def test_an_archive_is_for_programs_that_link_it():
    with pytest.raises(LoadContractError, match="a program that links the archive"):
        check(NEED, library="model.a")


def test_this_machine_is_probed_without_harm():
    for device in ("cuda", "rocm", "opencl", "metal", "webgpu"):
        result = probe(device)
        assert result is None or isinstance(result.devices, tuple)


def test_numbers_compare_as_versions():
    assert numbers("0.1.15.post2") == (0, 1, 15)
    assert numbers("2.9") < numbers("2.28")
    assert numbers("unknown") == ()


def test_a_real_bundle_is_checked_before_anything_is_opened(doctored, python):
    bundle = doctored(lambda manifest: manifest["load"].update(isa=["avx1024"]))
    (bundle / "model.so").write_bytes(b"")
    with pytest.raises(LoadContractError, match="avx1024"):
        relaxd.load(bundle)
    code = """
try:
    relaxd.load(sys.argv[1])
except relaxd.errors.LoadContractError:
    print(json.dumps({"opened": "tvm" in open("/proc/self/maps").read()}))
"""
    assert python("import relaxd.errors\n" + code, bundle) == {"opened": False}


@pytest.mark.parametrize(
    ("change", "what", "need"),
    [
        ({"arch": "sparc64"}, "architecture", "sparc64"),
        ({"os": "plan9"}, "operating system", "plan9"),
        ({"isa": ["avx1024"]}, "instruction set", "avx1024"),
        ({"libc": "99.0"}, "C library", "glibc 99.0 or later"),
        ({"device": "webgpu"}, "driver", "a browser with WebGPU"),
        (
            {"runtime": {"apache-tvm-ffi": "99.1"}},
            "apache-tvm-ffi version",
            "99.1 or a later patch",
        ),
    ],
)
def test_a_doctored_bundle_is_refused_for_what_it_claims(doctored, change, what, need):
    bundle = doctored(lambda manifest: manifest["load"].update(change))
    (bundle / "model.so").write_bytes(b"")
    with pytest.raises(LoadContractError) as caught:
        relaxd.load(bundle)
    assert (caught.value.what, caught.value.need) == (what, need)
    assert caught.value.have
