"""Functions of mathematics and of memory that modules for WebAssembly call."""

from pathlib import Path

import pytest

from compiler import targets
from compiler.errors import LinkError
from compiler.runtimes import linux, wasm
from compiler.toolchain import zig

TARGET = targets.resolve("wasm32")
INSTRUCTIONS = {"roundeven", "roundevenf"}
"""What LLVM makes no call of, as the machine has it."""


def link(folder: Path, source: str) -> Path:
    (folder / "unit.c").write_text(source)
    zig.compile_with_zig(
        *("-c", "-O1", "-fno-builtin", "-o", str(folder / "unit.o"), str(folder / "unit.c")),
        triple=TARGET.platform.linker,
    )
    module = folder / "unit.wasm"
    wasm.link(["--no-entry", "--export=all", "-o", str(module), str(folder / "unit.o")], TARGET)
    return module


def test_every_function_is_there(tmp_path: Path) -> None:
    """Our code is known to call those of the libraries for Linux. A module imports nothing."""
    names = sorted({*linux._MATHEMATICS, *linux._MEMORY} - INSTRUCTIONS)
    declared = "".join(f"extern void {name}(void);" for name in names)
    taken = "".join(f"*into = (void *){name};" for name in names)
    module = link(tmp_path, f"{declared} void all(void *volatile *into) {{ {taken} }}")
    assert b"wasi" not in module.read_bytes()


def test_what_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(LinkError) as caught:
        link(
            tmp_path,
            "extern int no_such_function(int); int all(int x) { return no_such_function(x); }",
        )
    assert "undefined symbol: no_such_function" in str(caught.value.failure.details)
