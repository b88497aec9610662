"""The load contract: determines before any library is opened whether a bundle can run here."""

import re
from collections.abc import Callable
from importlib import metadata

from relaxd.contract.bundle.manifest import LoadContract, Manifest
from relaxd.errors import LoadContractError
from relaxd.loader.machine.devices import CUDA_RUNTIME, Driver, cuda_runtime, probe
from relaxd.loader.machine.host import Host

FFI = "apache-tvm-ffi"
_REBUILD = "build the bundle for this machine's target"

_NUMBERS = re.compile(r"\d+(\.\d+)*")
_DRIVERS = {
    "cuda": "an NVIDIA driver and a GPU",
    "rocm": "an AMD driver and a GPU",
    "webgpu": "a browser with WebGPU",
}
_RUN_HERE = ("cuda", "opencl")
"""Devices that TVM's runtime for Linux runs kernels on, its own or the one that bundles bring."""

Probe = Callable[[str], Driver | None]
FindLibrary = Callable[[str], str | None]


def check_contract(
    manifest: Manifest,
    host: Host,
    *,
    installed: Callable[[str], str] = metadata.version,
    probe: Probe = probe,
    cuda_runtime: FindLibrary = cuda_runtime,
) -> None:
    """Raises LoadContractError naming the first thing that the bundle needs and this machine has
    not.
    """
    check_machine(manifest.load, host, probe)
    _cuda_runtime(manifest.load, cuda_runtime)
    _ffi(manifest.load, installed)
    if any(spec.dtype == "bfloat16" for spec in (*manifest.inputs, *manifest.outputs)):
        _version_of("ml_dtypes", "any", installed)
    if manifest.library.endswith(".a"):
        have = "a loader of shared libraries"
        raise LoadContractError(
            "form",
            need="a program that links the archive",
            have=have,
            hint="see model.h in the bundle",
        )


def check_machine(need: LoadContract, host: Host, probe: Probe = probe) -> None:
    """Raises LoadContractError for hardware, operating system, C library or driver; installed
    packages are not looked at.
    """
    _equal("operating system", need.os, host.os)
    _equal("architecture", need.arch, host.arch)
    _instruction_set(need, host)
    if need.libc and (host.libc is None or numbers(host.libc) < numbers(need.libc)):
        have = f"glibc {host.libc}" if host.libc else "no glibc"
        raise LoadContractError(
            "C library",
            need=f"glibc {need.libc} or later",
            have=have,
            hint="use a newer distribution or container image",
        )
    if need.device != "cpu":
        _device(need, probe(need.device))


def numbers(version: str) -> tuple[int, ...]:
    """The leading numbers of a version, without suffixes: `0.1.15.post2` is (0, 1, 15)."""
    match = _NUMBERS.match(version)
    return tuple(int(part) for part in match[0].split(".")) if match else ()


def _equal(what: str, need: str, have: str) -> None:
    if need != have:
        raise LoadContractError(what, need=need, have=have, hint=_REBUILD)


def _instruction_set(need: LoadContract, host: Host) -> None:
    missing = [feature for feature in need.isa if feature not in host.isa]
    if missing:
        have = f"a CPU without {', '.join(missing)}"
        raise LoadContractError(
            "instruction set",
            need=", ".join(need.isa),
            have=have,
            hint="build for a target that this CPU meets: `relaxd targets` lists them",
        )


def _ffi(need: LoadContract, installed: Callable[[str], str]) -> None:
    """Its C ABI holds within one minor version and only grows, so the installed one may be later
    but not earlier.
    """
    wanted = need.runtime.get(FFI)
    if wanted is None:
        return
    have = _version_of(FFI, wanted, installed)
    if numbers(have)[:2] != numbers(wanted)[:2] or numbers(have) < numbers(wanted):
        raise LoadContractError(
            f"{FFI} version",
            need=f"{wanted} or a later patch",
            have=have,
            hint=f"pip install {FFI}=={wanted}",
        )


def _cuda_runtime(need: LoadContract, find: FindLibrary) -> None:
    version = need.runtime.get(CUDA_RUNTIME)
    if version is not None and find(version) is None:
        major = version.partition(".")[0]
        hint = f"pip install '{CUDA_RUNTIME}=={major}.*'"
        raise LoadContractError(
            "CUDA runtime", need=f"libcudart.so.{major}", have=f"no libcudart.so.{major}", hint=hint
        )


def _version_of(package: str, wanted: str, installed: Callable[[str], str]) -> str:
    try:
        return installed(package)
    except metadata.PackageNotFoundError as error:
        raise LoadContractError(
            f"{package} version", need=wanted, have=f"no {package}", hint=f"pip install {package}"
        ) from error


def _device(need: LoadContract, driver: Driver | None) -> None:
    if driver is None:
        hint = "install the driver, or build for a CPU target"
        raise LoadContractError(
            "driver",
            need=_DRIVERS.get(need.device, f"a driver for {need.device}"),
            have=f"no {need.device} driver",
            hint=hint,
        )
    if need.driver and numbers(driver.version) < numbers(need.driver):
        raise LoadContractError(
            "driver version",
            need=f"{need.driver} or later",
            have=driver.version or "unknown",
            hint="update the driver",
        )
    if not driver.devices:
        hint = "run where the device is visible, or build for a CPU target"
        raise LoadContractError(
            "device", need=f"a {need.device} device", have="a driver without a device", hint=hint
        )
    if need.device not in _RUN_HERE:
        have = f"a relaxd that runs kernels by {' and '.join(_RUN_HERE)}"
        raise LoadContractError(
            "device", need=need.device, have=have, hint="build for a CPU target"
        )
    wanted = re.search(r"(\d+)(\d)(a?)$", need.sm or "")
    if wanted and not _runs_on(
        driver.devices[0], (int(wanted[1]), int(wanted[2])), exact=bool(wanted[3])
    ):
        raise LoadContractError(
            "GPU",
            need=f"compute capability {wanted[1]}.{wanted[2]}",
            have="{}.{}".format(*driver.devices[0]),
            hint="build for this GPU's sm",
        )


def _runs_on(device: tuple[int, int], wanted: tuple[int, int], *, exact: bool) -> bool:
    """CUDA binaries run on their own major version from their minor version up; `sm_90a` runs on
    9.0 alone.
    """
    return device == wanted if exact else device[0] == wanted[0] and device[1] >= wanted[1]
