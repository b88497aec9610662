"""The programs of docs/howto/other-languages.md, built and run by the page's commands."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import onnx
import pytest

from tests.docs.blocks import ROOT, Kind, blocks_of
from tests.docs.models import rows
from tests.support.tools import is_usable

pytestmark = pytest.mark.slow

PAGE = ROOT / "docs/howto/other-languages.md"
HERE = "tests/docs/test_other_languages.py"
TOOLS = {
    "cmake": "C++",
    "pkg-config": "C++",
    "c++": "C++",
    "cargo": "Rust",
    "go": "Go",
    "npm": "J",
    "mcs": "C#",
    "mono": "C#",
}


def section_of(line: int) -> str:
    """The heading above a line of the page."""
    lines = PAGE.read_text().splitlines()[:line]
    return next(text for text in reversed(lines) if text.startswith("## "))[3:]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page's files, with `relaxd` and the model beside them."""
    folder = tmp_path_factory.mktemp("languages")
    onnx.save(rows(32, 7), folder / "mlp.onnx")
    shutil.copytree(ROOT / "clients/js", folder / "clients/js")
    for block in blocks_of(PAGE):
        if block.info:
            path = folder / block.info
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.body)
    (folder / "bin").mkdir()
    (folder / "bin/relaxd").write_text(f'#!/bin/sh\nexec {sys.executable} -m relaxd "$@"\n')
    (folder / "bin/relaxd").chmod(0o755)
    return folder


@pytest.mark.parametrize("section", ["C++", "Rust", "Go", "C#", "JavaScript and TypeScript"])
def test_a_program_in_each_language(folder: Path, section: str) -> None:
    for tool, language in TOOLS.items():
        if section.startswith(language) and not is_usable(tool):
            pytest.skip(f"{tool} is not installed")
    consoles = [block for block in blocks_of(PAGE) if block.marks.get(Kind.ELSEWHERE) == HERE]
    first, *others = consoles
    commands = [] if (folder / "out").exists() else first.commands
    commands += [c for block in others if section_of(block.line) == section for c in block.commands]
    assert len(commands) > 3
    environment = {
        **os.environ,
        "PATH": f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "PKG_CONFIG_PATH": str(folder / "mlp-pc/lib/pkgconfig"),
        "COLUMNS": "200",
    }
    for command in commands:
        done = subprocess.run(
            ["bash", "-c", command.line],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, command.line + done.stdout + done.stderr
        assert not list(command.missing_lines(done.stdout)), (command.line, done.stdout)


def test_a_page_shows_every_kind() -> None:
    from relaxd.packages.kinds import _LAYOUTS

    pages = (PAGE, PAGE.with_name("micro-controllers.md"), PAGE.with_name("phone.md"))
    shown = {kind for page in pages for kind in re.findall(r"--as ([a-z-]+)", page.read_text())}
    assert shown == {str(kind) for kind in _LAYOUTS}
