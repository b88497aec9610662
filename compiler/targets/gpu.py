"""Targets with a GPU beside the host's processor. None has run on a GPU in our tests."""

import dataclasses
import os
from pathlib import Path

from compiler.targets import arm, wasm, x86
from compiler.targets.caches import Caches
from compiler.targets.target import Device, Options, Platform, Target, TargetStatus
from compiler.toolchain import cuda

_PC = Caches(l1=32 << 10, l2=256 << 10, l3=4 << 20)
_ROCM = Path("/opt/rocm")
_ROCM_LACKING = (
    "no ROCm toolkit is installed: TVM's wheel makes AMD code, and links it with "
    "ROCm's device libraries and ld.lld"
)


def _on_pc(
    name: str, kind: str, device: Device, status: TargetStatus = TargetStatus.COMPILED_ONLY
) -> Target:
    """A device in a machine with an x86-64-v2 processor and Linux; what runs there is calls of
    kernels.
    """
    host = x86.x86(name, 2, _PC, status=status)
    return dataclasses.replace(host, kind=kind, device=device)


def _on_arm(
    name: str, kind: str, device: Device, platform: Platform, cpu: str = "generic"
) -> Target:
    isa = ("asimd", "fp") if platform is arm.LINUX else ()
    host = arm.aarch64(name, _PC, platform, cpu=cpu, isa=isa)
    return dataclasses.replace(host, kind=kind, device=device)


def _opencl_on_arm(name: str, device: str, platform: Platform) -> Target:
    """A GPU of a phone or a board. The driver that is made of the processor runs its kernels in our
    tests, on a processor that qemu emulates.
    """
    host = _on_arm(name, "opencl", Device("opencl", (("device", device),)), platform)
    return dataclasses.replace(host, status=TargetStatus.EMULATED, emulator=("-cpu", "cortex-a53"))


def _in_browser(name: str, kind: str, device: Device) -> Target:
    """A device that a browser gives its pages; what runs beside it is calls of kernels, in
    WebAssembly that every browser takes.
    """
    # TVM warns of a width that nobody states.
    host = dataclasses.replace(wasm.WASM32.entries[0], llvm=(("vector-width", 128),))
    # Chromium has an adapter that is made of the processor, which runs these kernels in our tests.
    status = TargetStatus.EMULATED
    return dataclasses.replace(host, name=name, kind=kind, device=device, status=status)


def _cuda(sm: int, shared_memory: int) -> Target:
    """`shared_memory`: what a block gets without asking, in bytes; TVM's schedules stay
    below that.
    """
    options: Options = (
        ("arch", f"sm_{sm}"),
        ("max_num_threads", 1024),
        ("max_shared_memory_per_block", shared_memory),
        ("max_threads_per_block", 1024),
        ("registers_per_block", 65536),
        ("thread_warp_size", 32),
    )
    return _on_pc(
        f"cuda-sm{sm}", "cuda", Device("cuda", options, sm=f"sm_{sm}", driver=cuda.DRIVER)
    )


_SHARED = 48 << 10

ENTRIES: tuple[Target, ...] = (
    _cuda(80, _SHARED),
    _cuda(89, _SHARED),
    _cuda(90, _SHARED),
    # An OpenCL driver that is made of the processor (pocl) runs these kernels in our tests.
    _on_pc("opencl", "opencl", Device("opencl"), TargetStatus.EMULATED),
    _opencl_on_arm("opencl-mali", "mali", arm.LINUX),
    _opencl_on_arm("opencl-adreno", "adreno", arm.ANDROID),
    _on_arm("metal", "metal", Device("metal"), arm.MACOS, cpu="apple-m1"),
    _in_browser("webgpu", "webgpu", Device("webgpu")),
    _on_pc("rocm", "rocm", Device("rocm", (("mcpu", "gfx90a"),))),
)


def equip(target: Target) -> Target:
    """The target with the tools that compile its kernels here, or the reason why there are none."""
    device = target.device
    if device is None:
        return target
    if device.name == "cuda":
        tool = cuda.find_compiler()
        device = dataclasses.replace(
            device,
            toolkit=tool.name if tool else None,
            lacking=None if tool else cuda.LACKING,
        )
    if device.name == "rocm":
        folder = _rocm()
        device = dataclasses.replace(
            device,
            toolkit=f"rocm {folder}" if folder else None,
            lacking=None if folder else _ROCM_LACKING,
        )
    return dataclasses.replace(target, device=device)


def _rocm() -> Path | None:
    """The toolkit's folder, as TVM looks for it."""
    folder = Path(os.environ.get("ROCM_PATH") or _ROCM)
    return folder if (folder / "amdgcn" / "bitcode").is_dir() else None
