from pathlib import Path

import pytest

from compiler.toolchain import cache


def test_the_cache_is_where_one_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(cache.VARIABLE, str(tmp_path / "chosen"))
    assert cache.directory() == tmp_path / "chosen"
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(cache.VARIABLE, "below")
    assert cache.directory() == tmp_path / "below"
    monkeypatch.delenv(cache.VARIABLE)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache.directory() == tmp_path / "relaxd"


def test_a_view_reads_what_is_shared_and_writes_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared, view = tmp_path / "shared", tmp_path / "view"
    files = {
        "zig/ours/x86_64/h/1.txt": "manifest",
        "zig/ours/x86_64/o/1/crt1.o": "object",
        "zig/ours/x86_64/z/1": "syntax",
        "zig/ours/x86_64/x86_64.warm": "",
        "zig/ours/aarch64/o/1/crt1.o": "another object",
        "zig/theirs/x86_64/o/1/crt1.o": "another installation's",
        "runtimes/0.1/x86_64/threads.so": "library",
    }
    for name, text in files.items():
        (shared / name).parent.mkdir(parents=True, exist_ok=True)
        (shared / name).write_text(text)
    (shared / "runtimes" / "0.1" / "half").mkdir()
    for name, value in cache.private_view(shared, view).items():
        monkeypatch.setenv(name, value)
    zig = cache.linker_folder("x86_64", "ours")
    assert zig == view / "zig" / "ours" / "x86_64"
    seen = {name for name in files if (view / name).is_file()}
    assert seen == files.keys() - {
        "zig/ours/x86_64/z/1",
        "zig/ours/aarch64/o/1/crt1.o",
        "zig/theirs/x86_64/o/1/crt1.o",
    }
    for path in ("h/1.txt", "h/2.txt", "o/1/new", "new"):
        (zig / path).write_text("poison")
    (view / "runtimes" / "0.1" / "other").write_text("poison")
    assert cache.linker_folder("x86_64", "ours") == zig
    assert not (view / "runtimes" / "0.1" / "half").is_symlink()
    assert {name: (shared / name).read_text() for name in files} == files


def test_a_view_of_no_cache_is_empty(tmp_path: Path) -> None:
    cache.private_view(tmp_path / "none", tmp_path / "view")
    assert not (tmp_path / "view").exists()
