"""The sandbox's level, found out by a process that tries."""

import tempfile
from pathlib import Path

import pytest

from compiler.isolation import probe
from compiler.isolation.level import Level


def test_the_level_is_found_out_below_a_long_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The path of a socket has room for 107 bytes."""
    usual = probe.level()
    deep = tmp_path / ("deep" * 30)
    deep.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(deep))
    probe.level.cache_clear()
    assert probe.level() is usual
    assert usual in Level
