"""Compiles a driver and links it with its kernels into a library that needs no runtime."""

import json
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

from compiler.link import dll
from compiler.runtimes import linux, wasm
from compiler.targets import ObjectFormat, Target
from compiler.targets.architectures import board_of
from compiler.toolchain import zig

FUNCTIONS = (
    "size",
    "open",
    "bind",
    "arena",
    "run",
    "shape",
    "output",
    "failure",
    "interface",
    "close",
)
"""What a library exports, behind its prefix."""

ALLOCATOR = ("allocate", "release")
"""What a WebAssembly module exports beside it."""

_STACK = 256 << 10
_SHARED = (
    *("--import-memory", "--export-memory", "--shared-memory", f"--max-memory={4 << 30}"),
    "--export=__stack_pointer",
)
"""Flags for a module of which several instances compute in one memory, each on a stack that its
loader gives it.
"""

_COMPILED = (
    "-std=gnu11",
    "-g0",
    "-fPIC",
    "-ffunction-sections",
    "-fdata-sections",
    "-fvisibility=hidden",
    "-fno-unwind-tables",
    "-fno-asynchronous-unwind-tables",
    "-fno-stack-protector",
)

_ELF = ("--gc-sections", "--hash-style=gnu")
"""Of the two tables by which loaders find symbols, GNU's alone: glibc reads it since 2.5, Android
since 6.
"""

_SCRIPT = """VERSION { { global: @NAMES@ local: *; }; }
SECTIONS { /DISCARD/ : { *(.comment) } } INSERT AFTER .text;
"""
"""A library exports these names alone, and has no section in which compilers name themselves."""

_MACHO = ("-s", "-Wl,-dead_strip", "-Wl,-install_name,@rpath/model.dylib")


Compiled = Callable[[str, Callable[[], bytes]], bytes]
"""Gives the object of a source, which a text describes whole: by compiling it, or from an earlier
build.
"""


def compiled_now(described: str, compile_source: Callable[[], bytes]) -> bytes:
    """The object, compiled whether or not an earlier build did."""
    return compile_source()


@dataclass(frozen=True)
class Parts:
    """The parts that are linked: the driver's source, its header, the objects of the kernels that
    are machine code, and the file of weights if the source includes it; exports: what the library
    exports beside FUNCTIONS, behind the same prefix; included: other files that the source
    includes, by name.
    """

    prefix: str
    source: str
    header: str
    kernels: Sequence[Path]
    weights: Path | None = None
    exports: tuple[str, ...] = ()
    included: Mapping[str, bytes] = field(default_factory=dict)

    @property
    def names(self) -> list[str]:
        """The symbols that the library exports."""
        return [f"{self.prefix}_{function}" for function in (*FUNCTIONS, *self.exports)]

    @property
    def read(self) -> dict[str, bytes]:
        """The files that the compiler of the driver reads, by name."""
        own = {"model.c": self.source.encode(), "model.h": self.header.encode()}
        return {**own, **self.included}

    def objects(self, driver: Path) -> list[Path]:
        """The compiled driver and the kernels."""
        return [driver, *self.kernels]


def link_standalone(
    parts: Parts, folder: Path, target: Target, compiled: Compiled = compiled_now
) -> Path:
    """Writes the library and `model.h` into the folder, and gives the library; raises LinkError."""
    output = folder / target.platform.library
    (folder / "model.h").write_text(parts.header, encoding="utf-8")
    with tempfile.TemporaryDirectory() as workspace:
        objects = parts.objects(_driver(parts, Path(workspace), target, compiled))
        if target.platform.object_format is ObjectFormat.WASM:
            _module(parts, objects, output, target)
        elif target.platform.archived:
            _archive(objects, output, target)
        else:
            _share(parts, objects, output, target)
    return output


def _driver(parts: Parts, workspace: Path, target: Target, compiled: Compiled) -> Path:
    flags, triple = (*_COMPILED, *_flags_of(target)), target.platform.linker
    driver = workspace / "driver.o"

    def compile_source() -> bytes:
        for name, content in parts.read.items():
            (workspace / name).write_bytes(content)
        if parts.weights is not None:
            (workspace / "weights.bin").symlink_to(parts.weights.absolute())
        source = str(workspace / "model.c")
        zig.compile_with_zig(*flags, "-c", "-o", str(driver), source, triple=triple)
        return driver.read_bytes()

    if parts.weights is not None:
        # As large as the weights, and of no use to a model that has others.
        compile_source()
    else:
        read = {name: sha256(content).hexdigest() for name, content in parts.read.items()}
        described = json.dumps([flags, triple, read], sort_keys=True)
        driver.write_bytes(compiled(described, compile_source))
    return driver


def _flags_of(target: Target) -> tuple[str, ...]:
    """Where a driver gets memory (from malloc, in WebAssembly by growing its own, and without an
    operating system from its caller alone), and whether it is compiled to few bytes: it is mostly
    calls in a row, but in WebAssembly it runs its own threads. On x86 its few calls of C's
    functions take less by way of addresses than of a table of jumps.
    """
    if target.platform.bare:
        return (board_of(target).processor(target), "-fno-pic", "-O2")
    if target.platform.object_format is not ObjectFormat.WASM:
        return ("-DRD_LIBC", "-Os", *_processor_flags(target))
    return ("-DRD_GROWS", "-O2", "-mcpu=" + "".join(("generic", *_wasm_features(target))))


def _processor_flags(target: Target) -> tuple[str, ...]:
    if target.arch == "armv7l":
        # lld gives an archive for ARM the attributes of its first object, the driver.
        return ("-mcpu=baseline" + "".join(target.features),)
    return ("-fno-plt",) if target.arch == "x86_64" else ()


def _wasm_features(target: Target) -> list[str]:
    """zig's spelling of the target's features."""
    return [feature.replace("-", "_") for feature in target.features]


def _module(parts: Parts, objects: list[Path], output: Path, target: Target) -> None:
    """Links a WebAssembly module that imports nothing but what its driver declares so, and its
    memory where that is shared.
    """
    names = [*parts.names, *(f"{parts.prefix}_{function}" for function in ALLOCATOR)]
    linked = objects[0].parent / output.name
    flags = ("--no-entry", "--gc-sections", "-s", "-O2", "-z", f"stack-size={_STACK}")
    exported = [f"--export={name}" for name in names]
    shared = _SHARED if target.threads else ()
    wasm.link(
        [*flags, *shared, "--stack-first", *exported, "-o", str(linked), *map(str, objects)], target
    )
    output.write_bytes(linked.read_bytes())


def _archive(objects: list[Path], output: Path, target: Target) -> None:
    """TVM describes kernels for debuggers, which doubles them. Apple's linker leaves that out of a
    program by itself.
    """
    if target.platform.object_format is ObjectFormat.ELF:
        merged = objects[0].parent / "model.o"
        zig.merge(objects, merged)
        objects = [merged]
    zig.archive(objects, output)


def _share(parts: Parts, objects: list[Path], output: Path, target: Target) -> None:
    workspace, names = objects[0].parent, parts.names
    if target.platform.object_format is ObjectFormat.COFF:
        dll.link(objects, output, target, exports=names)
        return
    if target.platform.object_format is ObjectFormat.ELF:
        script = workspace / "link.ld"
        script.write_text(_SCRIPT.replace("@NAMES@", " ".join(f"{name};" for name in names)))
        linux.link(objects, output, target, (*_ELF, "-T", str(script)))
        return
    linked = workspace / output.name
    zig.compile_with_zig(
        *("-shared", "-o", str(linked), *_MACHO, *map(str, objects), "-lm"),
        triple=target.platform.linker,
    )
    output.write_bytes(linked.read_bytes())
