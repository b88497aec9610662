import ctypes
import dataclasses
from pathlib import Path

import pytest

from compiler import targets
from compiler.errors import LinkError
from compiler.link import library
from compiler.toolchain import zig

HOST = targets.resolve("native")


def compile_unit(folder: Path, source: str) -> Path:
    (folder / "unit.c").write_text(source)
    zig.compile_with_zig(
        "-c",
        "-O1",
        "-o",
        str(folder / "unit.o"),
        str(folder / "unit.c"),
        triple=HOST.platform.linker,
    )
    return folder / "unit.o"


def test_objects_become_a_library_that_loads(tmp_path: Path) -> None:
    library.link_objects(
        [compile_unit(tmp_path, "int answer(void) { return 42; }")], tmp_path / "lib.so", HOST
    )
    assert ctypes.CDLL(str(tmp_path / "lib.so")).answer() == 42


def test_the_same_objects_give_the_same_bytes(tmp_path: Path) -> None:
    unit = compile_unit(tmp_path, "int answer(void) { return 42; }")
    for name in ("one.so", "two.so"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        library.link_objects([unit], tmp_path / name, HOST)
    assert (tmp_path / "one.so").read_bytes() == (tmp_path / "two.so").read_bytes()
    assert str(tmp_path).encode() not in (tmp_path / "one.so").read_bytes()


def test_a_broken_object_is_a_typed_error(tmp_path: Path) -> None:
    (tmp_path / "bad.o").write_bytes(b"not an object")
    with pytest.raises(LinkError) as caught:
        library.link_objects([tmp_path / "bad.o"], tmp_path / "lib.so", HOST)
    assert caught.value.code == "link.failed"
    assert caught.value.failure.details["output"]


def test_an_unknown_architecture_is_a_typed_error(tmp_path: Path) -> None:
    unit = compile_unit(tmp_path, "int x;")
    platform = dataclasses.replace(HOST.platform, linker="vax-linux-gnu")
    with pytest.raises(LinkError, match="status"):
        library.link_objects(
            [unit], tmp_path / "lib.so", dataclasses.replace(HOST, platform=platform)
        )
