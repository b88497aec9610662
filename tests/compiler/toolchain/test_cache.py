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
