"""NVIDIA's run-time compiler as a function: sources in, machine code of one architecture out. Needs
no driver and no C compiler.
"""

import ctypes
import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from compiler.errors import CodegenError


@dataclass(frozen=True)
class Nvrtc:
    """An installed run-time compiler: its library and the folders of CUDA's headers."""

    library: Path
    includes: tuple[Path, ...]

    @property
    def version(self) -> str:
        """The version, such as `13.0`."""
        major, minor = ctypes.c_int(), ctypes.c_int()
        self._call("nvrtcVersion", ctypes.byref(major), ctypes.byref(minor))
        return f"{major.value}.{minor.value}"

    def compile(self, source: str, architecture: str, options: Sequence[str] = ()) -> bytes:
        """The cubin for `architecture` (`sm_80`); raises CodegenError with the compiler's words."""
        program = ctypes.c_void_p()
        self._call(
            "nvrtcCreateProgram",
            ctypes.byref(program),
            source.encode(),
            b"kernels.cu",
            0,
            None,
            None,
        )
        try:
            arguments = [
                f"--gpu-architecture={architecture}",
                *(f"-I{folder}" for folder in self.includes),
                *options,
            ]
            encoded = (ctypes.c_char_p * len(arguments))(
                *(argument.encode() for argument in arguments)
            )
            if self._library.nvrtcCompileProgram(program, len(arguments), encoded):
                log = self._read(program, "ProgramLog").rstrip(b"\0").decode(errors="replace")
                raise CodegenError(
                    f"NVRTC refused the kernels for {architecture}",
                    reason="cuda_compiler",
                    output=log[-2000:],
                )
            return self._read(program, "CUBIN")
        finally:
            self._library.nvrtcDestroyProgram(ctypes.byref(program))

    def _read(self, program: ctypes.c_void_p, what: str) -> bytes:
        size = ctypes.c_size_t()
        self._call(f"nvrtcGet{what}Size", program, ctypes.byref(size))
        text = ctypes.create_string_buffer(size.value)
        self._call(f"nvrtcGet{what}", program, text)
        return text.raw

    def _call(self, name: str, *arguments: object) -> None:
        status = getattr(self._library, name)(*arguments)
        if status:
            raise CodegenError(f"{name} failed with status {status}", reason="cuda_compiler")

    @property
    def _library(self) -> ctypes.CDLL:
        return _open(self.library)


@cache
def _open(path: Path) -> ctypes.CDLL:
    # It looks for this by its bare name when it compiles, which finds a library that is loaded
    # already.
    for builtins in path.parent.glob("libnvrtc-builtins.so.*"):
        ctypes.CDLL(str(builtins), mode=ctypes.RTLD_GLOBAL)
    return ctypes.CDLL(str(path))


def find_nvrtc() -> Nvrtc | None:
    """The run-time compiler of the wheels nvidia-cuda-nvrtc, -runtime and -cccl, None unless all
    three are installed.
    """
    spec = importlib.util.find_spec("nvidia")
    for root in map(Path, (spec.submodule_search_locations or ()) if spec else ()):
        for library in sorted(root.glob("cu*/lib/libnvrtc.so.*")):
            include = library.parent.parent / "include"
            includes = (include, include / "cccl")
            if (include / "cuda_runtime.h").is_file() and (
                includes[1] / "cuda" / "std" / "cstdint"
            ).is_file():
                return Nvrtc(library, includes)
    return None
