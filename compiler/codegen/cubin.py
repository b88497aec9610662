"""The module that TVM embeds in its library: the same with CUDA machine code in place of sources.

Without a driver TVM can only embed sources, and the runtime does not compile them.
"""

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tvm

from compiler.errors import CodegenError

Pack = Callable[[Any, bool, str, str], str]
"""What `export_library` takes as `fpack_imports`: module, is_system_lib, prefix and workspace to
the path of a source or object."""

_KIND, _SOURCES, _MACHINE_CODE = b"cuda", b"cuda", b"cubin"


@dataclass(frozen=True)
class Kernels:
    """The CUDA module of an executable: its sources, and the machine code made of them."""

    source: str
    cubin: bytes


def cuda_source(executable: Any) -> str | None:
    """The CUDA sources in an executable, None where no kernel is left in it; raises CodegenError
    for more than one module.
    """
    sources = [
        module.inspect_source() for module in _modules(executable.mod) if module.kind == "cuda"
    ]
    if len(sources) > 1:
        raise CodegenError(f"the executable has {len(sources)} CUDA modules", reason="embedding")
    return str(sources[0]) if sources else None


def packing(kernels: Kernels) -> Pack:
    """Packs a module's imports with the machine code in them."""

    def pack(module: Any, is_system_lib: bool, prefix: str, workspace: str) -> str:
        blob = tvm.get_global_func("runtime.ModulePackImportsToTensor")(module).numpy().tobytes()
        content, assembly = Path(workspace) / "imports.bin", Path(workspace) / "imports.s"
        content.write_bytes(replace_sources(blob, kernels))
        symbol = prefix + str(tvm.get_global_func("runtime.ModuleImportsBlobName")())
        assembly.write_text(
            f".section .rodata\n.globl {symbol}\n.type {symbol}, @object\n.p2align "
            f'4\n{symbol}:\n.incbin "{content}"\n'
            f'.size {symbol}, .-{symbol}\n.section .note.GNU-stack,"",@progbits\n'
        )
        return str(assembly)

    return pack


def replace_sources(blob: bytes, kernels: Kernels) -> bytes:
    """`blob` with machine code where it has the kernels' sources; raises CodegenError where it is
    not as TVM 0.27 lays it out.

    The blob begins with its length. A module in it is its kind, the length of its record, and the
    record: for CUDA the format, the kernels' signatures, and the code. Texts have their length
    before them; numbers take eight bytes.
    """
    source = _text(kernels.source.encode())
    code = blob.find(source)
    start = blob.rfind(_text(_KIND), 0, code)
    if code < 0 or blob.find(source, code + 1) >= 0 or blob[start:code].count(_text(_SOURCES)) != 1:
        raise CodegenError("TVM embeds kernels in another way than it did", reason="embedding")
    kind = blob.rfind(_text(_KIND), 0, start)
    record = kind + len(_text(_KIND)) + 8
    (size,) = struct.unpack_from("<Q", blob, record - 8)
    if kind < 0 or record != start or record + size != code + len(source):
        raise CodegenError("TVM embeds kernels in another way than it did", reason="embedding")
    signatures = blob[record + len(_text(_SOURCES)) : code]
    fresh = _text(_MACHINE_CODE) + signatures + _text(kernels.cubin)
    body = blob[8 : record - 8] + struct.pack("<Q", len(fresh)) + fresh + blob[record + size :]
    return struct.pack("<Q", len(body)) + body


def _text(value: bytes) -> bytes:
    return struct.pack("<Q", len(value)) + value


def _modules(module: Any) -> Iterator[Any]:
    yield module
    for imported in module.imports:
        yield from _modules(imported)
