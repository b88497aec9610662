"""Sections are left out of what an object is linked into."""

import subprocess
from pathlib import Path

import pytest

from compiler.codegen.standalone.elf import without
from compiler.toolchain import zig

_SOURCE = "int other(int); int twice(int x) { return 2 * other(x); }\n"
_PLATFORMS = {"x86_64-linux-gnu.2.28": ".eh_frame", "thumb-freestanding-eabihf": ".comment"}


def _sections(path: Path) -> dict[str, str]:
    printed = subprocess.run(
        ["readelf", "-SW", str(path)], capture_output=True, text=True, check=True
    ).stdout
    rows = [line.partition("]")[2].split() for line in printed.splitlines() if "]" in line]
    return {row[0]: " ".join(row[6:]) for row in rows if len(row) > 6}


@pytest.mark.parametrize("triple", _PLATFORMS)
def test_a_section_is_marked_for_the_linker(triple: str, tmp_path: Path) -> None:
    source, compiled, edited = (tmp_path / name for name in ("a.c", "a.o", "b.o"))
    source.write_text(_SOURCE)
    flags = ("-O1", "-funwind-tables", "-c", "-o", str(compiled))
    zig.compile_with_zig(*flags, str(source), triple=triple)
    name = _PLATFORMS[triple]
    edited.write_bytes(without(compiled.read_bytes(), name.encode()))
    before, after = _sections(compiled), _sections(edited)
    assert "E" not in before[name].split()[0]
    assert "E" in after[name].split()[0]
    assert {key: flags for key, flags in before.items() if key != name} == {
        key: flags for key, flags in after.items() if key != name
    }
    assert len(edited.read_bytes()) == compiled.stat().st_size


def test_other_formats_are_left_as_they_are() -> None:
    assert without(b"\xcf\xfa\xed\xfe .eh_frame", b".eh_frame") == b"\xcf\xfa\xed\xfe .eh_frame"
