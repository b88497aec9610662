import os
import select
import sys
from pathlib import Path

import pytest

from compiler import targets
from compiler.errors import LinkError
from compiler.toolchain import cache, zig

HOST = targets.resolve("native")
MACOS = targets.resolve("macos-arm64")


def test_a_warm_cache_is_not_warmed_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commands = []
    monkeypatch.setenv(cache.VARIABLE, str(tmp_path))
    monkeypatch.setattr(zig, "_zig", lambda *arguments, **settings: commands.append(arguments))
    for _ in range(2):
        zig.warm_up(MACOS.platform.linker)
    assert [flag for arguments in commands for flag in ("-c", "-shared") if flag in arguments] == [
        "-c",
        "-shared",
    ]


def test_the_linker_does_not_know_where_its_caller_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It names its own files relative to a folder above them, and what it has cached goes by their
    names.
    """
    spy = tmp_path / "zig"
    spy.write_text(f"#!/bin/sh\npwd > {tmp_path / 'folder'}\n")
    spy.chmod(0o755)
    prefix = Path(sys.prefix)
    monkeypatch.setattr(zig, "_program", lambda: spy)
    monkeypatch.chdir(prefix.parent)
    zig.compile_with_zig("-c", "unit.c", triple=HOST.platform.linker)
    stood = Path((tmp_path / "folder").read_text().strip())
    assert stood not in (prefix, *prefix.parents)


def test_past_its_time_nothing_of_the_linker_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.mkfifo(tmp_path / "alive")
    slow = tmp_path / "zig"
    slow.write_text(f"#!/bin/sh\nsleep 600 > {tmp_path / 'alive'} &\nwait\n")
    slow.chmod(0o755)
    monkeypatch.setattr(zig, "_program", lambda: slow)
    with open(os.open(tmp_path / "alive", os.O_RDONLY | os.O_NONBLOCK), "rb") as alive:
        with pytest.raises(LinkError) as caught:
            zig.compile_with_zig("-c", "unit.c", triple=HOST.platform.linker, seconds=1)
        assert caught.value.code == "link.timeout"
        # A pipe ends when the last process that could write to it is gone.
        assert select.select([alive], [], [], 30)[0]
        assert alive.read() == b""


def test_a_cache_that_cannot_be_written_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("x")
    monkeypatch.setenv("RELAXD_CACHE_DIR", str(tmp_path / "file"))
    with pytest.raises(LinkError, match="cannot be written") as caught:
        zig.warm_up(HOST.platform.linker)
    assert "RELAXD_CACHE_DIR" in (caught.value.hint or "")


def test_another_installation_of_zig_warms_the_cache_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """zig does not find what one at another place, or of other files, has built, and a sandbox
    cannot build it.
    """
    monkeypatch.setenv(cache.VARIABLE, str(tmp_path))
    for folder in ("one", "another", "another"):
        program = tmp_path / folder / "ziglang" / "zig"
        program.parent.mkdir(parents=True, exist_ok=True)
        # A new file, as an upgrade or a restored disk leaves it.
        (program.parent / "new").write_text(folder)
        (program.parent / "new").rename(program)
        monkeypatch.setattr(zig, "folder_of", lambda name, folder=folder: tmp_path / folder / name)
        for first in (True, False):
            with zig._warming("triple", "triple") as scratch:
                assert (scratch is not None) is first
