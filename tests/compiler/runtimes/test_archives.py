"""The sources that the static runtime is built from: complete, and with every header that they
name.
"""

import re
from pathlib import Path

import pytest

from compiler import targets
from compiler.runtimes import archives

_INCLUDE = re.compile(r'^#include (?:"|<(?=tvm/))(.+)[">]', re.MULTILINE)


def test_every_header_is_there(tmp_path: Path) -> None:
    folders = (*archives.include_folders(), *archives._own_headers(tmp_path / "support"))
    for source in (path for unit in archives.UNITS for path in archives.sources(unit)):
        for name in _INCLUDE.findall(source.read_text()):
            assert any((folder / name).is_file() for folder in (source.parent, *folders)), (
                f"{source.name} includes {name}"
            )


def test_the_virtual_machine_and_sorting_are_among_them() -> None:
    names = {path.name for unit in archives.UNITS for path in archives.sources(unit)}
    assert {"vm.cc", "executable.cc", "library_module_system_lib.cc", "sort.cc"} <= names


def test_an_archive_of_another_recipe_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    platform = targets.resolve("riscv64").platform
    before = archives.path_of(platform)
    monkeypatch.setattr(archives, "_FLAGS", ("-O3",))
    archives._recipe.cache_clear()
    assert archives.path_of(platform) != before
    monkeypatch.undo()
    archives._recipe.cache_clear()
    assert archives.path_of(platform) == before
