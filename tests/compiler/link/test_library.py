import ctypes
import dataclasses
import os
import select
import sys
from pathlib import Path

import pytest

from compiler import targets
from compiler.errors import LinkError
from compiler.link import library
from compiler.toolchain import cache, zig

HOST = targets.resolve("native")


@pytest.fixture(autouse=True, scope="module")
def _warm() -> None:
    zig.warm_up(HOST.platform.linker)


def compiled(folder: Path, source: str) -> Path:
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
        [compiled(tmp_path, "int answer(void) { return 42; }")], tmp_path / "lib.so", HOST
    )
    assert ctypes.CDLL(str(tmp_path / "lib.so")).answer() == 42


def test_the_same_objects_give_the_same_bytes(tmp_path: Path) -> None:
    unit = compiled(tmp_path, "int answer(void) { return 42; }")
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
    unit = compiled(tmp_path, "int x;")
    platform = dataclasses.replace(HOST.platform, linker="vax-linux-gnu")
    with pytest.raises(LinkError, match="status"):
        library.link_objects(
            [unit], tmp_path / "lib.so", dataclasses.replace(HOST, platform=platform)
        )


def test_the_cache_is_where_one_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(cache.VARIABLE, str(tmp_path / "chosen"))
    assert cache.directory() == tmp_path / "chosen"
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(cache.VARIABLE, "below")
    assert cache.directory() == tmp_path / "below"
    monkeypatch.delenv(cache.VARIABLE)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache.directory() == tmp_path / "relaxd"


def test_a_warm_cache_is_not_warmed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zig, "_zig", lambda *arguments: pytest.fail("linked again"))
    zig.warm_up(HOST.platform.linker)


def test_the_linker_does_not_know_where_its_caller_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It names its own files relative to a folder above them, and what it has cached goes by their
    names.
    """
    spy = tmp_path / "python"
    spy.write_text(f"#!/bin/sh\npwd > {tmp_path / 'folder'}\n")
    spy.chmod(0o755)
    prefix = Path(sys.prefix)
    monkeypatch.setattr(sys, "executable", str(spy))
    monkeypatch.chdir(prefix.parent)
    zig.compile_with_zig("-c", "unit.c", triple=HOST.platform.linker)
    stood = Path((tmp_path / "folder").read_text().strip())
    assert stood not in (prefix, *prefix.parents)


def test_past_its_time_nothing_of_the_linker_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.mkfifo(tmp_path / "alive")
    slow = tmp_path / "python"
    slow.write_text(f"#!/bin/sh\nsleep 600 > {tmp_path / 'alive'} &\nwait\n")
    slow.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(slow))
    with open(os.open(tmp_path / "alive", os.O_RDONLY | os.O_NONBLOCK), "rb") as alive:
        with pytest.raises(LinkError) as caught:
            zig.compile_with_zig("-c", "unit.c", triple=HOST.platform.linker, seconds=1)
        assert caught.value.code == "link.timeout"
        # A pipe ends when the last process that could write to it is gone.
        assert select.select([alive], [], [], 30)[0]
        assert alive.read() == b""
