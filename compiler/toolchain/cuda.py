"""CUDA kernels as machine code: what compiles them here, and where a library keeps the result."""

import re
import shutil
import struct
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from pathlib import Path

from compiler.errors import CodegenError, ToolchainMissing
from compiler.toolchain.nvrtc import find_nvrtc
from relaxd.errors import install_hint

DRIVER = "13.0"
"""The least CUDA version a driver must speak to load TVM's CUDA runtime, which is linked with that
of CUDA 13 (driver 580).
"""

LACKING = "no CUDA compiler is installed: install the extra cuda of relaxd, or put nvcc on PATH"
_NVCC_SECONDS = 600
_ELF_FLAGS, _ELF_ABI, _CUDA_MACHINE = 48, 8, 190


@dataclass(frozen=True)
class CudaCompiler:
    """name: as in `nvrtc 13.0.88`; compile: sources and architecture (`sm_80`) to a cubin, raises
    CodegenError.
    """

    name: str
    compile: Callable[[str, str], bytes]


@cache
def find_compiler() -> CudaCompiler | None:
    """NVRTC from its wheels, which needs no C compiler; else the nvcc on PATH; None where there is
    neither.
    """
    if (nvrtc := find_nvrtc()) is not None:
        options = ("-default-device", "--device-int128", "--std=c++17")
        return CudaCompiler(
            f"nvrtc {_nvrtc_version()}", lambda source, arch: nvrtc.compile(source, arch, options)
        )
    if (nvcc := shutil.which("nvcc")) is not None:
        return CudaCompiler(
            f"nvcc {_nvcc_version(nvcc)}", lambda source, arch: _run_nvcc(nvcc, source, arch)
        )
    return None


def compile_kernels(source: str, architecture: str) -> bytes:
    """The cubin of CUDA sources, checked to be for `architecture`; raises ToolchainMissing without
    a compiler, or CodegenError.
    """
    compiler = find_compiler()
    if compiler is None:
        raise ToolchainMissing(LACKING, reason="no_cuda_compiler", hint=install_hint("cuda"))
    cubin = compiler.compile(source, architecture)
    actual = architecture_of(cubin)
    if actual != architecture:
        raise CodegenError(
            f"{compiler.name} made code for {actual}, not {architecture}", reason="cuda_compiler"
        )
    return cubin


def architecture_of(cubin: bytes) -> str:
    """The architecture that a cubin's machine code is for, as in `sm_80`; raises CodegenError for
    anything else.
    """
    if (
        cubin[:4] != b"\x7fELF"
        or len(cubin) < _ELF_FLAGS + 4
        or struct.unpack_from("<H", cubin, 18)[0] != _CUDA_MACHINE
    ):
        raise CodegenError("the CUDA compiler returned no cubin", reason="cuda_compiler")
    (flags,) = struct.unpack_from("<I", cubin, _ELF_FLAGS)
    # CUDA 13 moved the number up a byte, and counts that as version 8 of its ABI.
    return f"sm_{flags >> 8 & 0xFF if cubin[_ELF_ABI] >= 8 else flags & 0xFF}"


def _nvrtc_version() -> str:
    packages = ("nvidia-cuda-nvrtc", "nvidia-cuda-nvrtc-cu12")
    versions = [
        metadata.version(name)
        for name in packages
        if any(True for _ in metadata.distributions(name=name))
    ]
    return versions[0] if versions else "of unknown version"


def _nvcc_version(nvcc: str) -> str:
    text = subprocess.run(
        [nvcc, "--version"], capture_output=True, text=True, timeout=60, check=False
    ).stdout
    match = re.search(r"V(\d+(?:\.\d+)+)", text)
    return match[1] if match else "of unknown version"


def _run_nvcc(nvcc: str, source: str, architecture: str) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        kernels, cubin = Path(folder) / "kernels.cu", Path(folder) / "kernels.cubin"
        kernels.write_text(source)
        command = [
            nvcc,
            "--cubin",
            "-O3",
            "-std=c++17",
            f"-arch={architecture}",
            "-o",
            str(cubin),
            str(kernels),
        ]
        try:
            done = subprocess.run(
                command,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=_NVCC_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise CodegenError(
                f"nvcc ran past {_NVCC_SECONDS} s", reason="timeout", retryable=True
            ) from error
        if done.returncode:
            raise CodegenError(
                f"nvcc refused the kernels for {architecture}",
                reason="cuda_compiler",
                output=done.stderr[-2000:],
            )
        return cubin.read_bytes()
