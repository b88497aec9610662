"""Builds the site into build/site/html; fails on any warning, such as a link that leads nowhere."""

import shutil
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tools.site.sources import ROOT, assemble

CONFIG = Path(__file__).parent / "zensical.toml"


def main() -> int:
    """Returns the exit status."""
    folder = ROOT / "build" / "site"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    assemble(folder / "source")
    if misplaced := find_misplaced(folder / "source"):
        print(f"{CONFIG}: each page stands once in the navigation, but not {misplaced}")
        return 1
    shutil.copyfile(CONFIG, folder / CONFIG.name)
    command = (sys.executable, "-m", "zensical", "build", "--strict", "-f", CONFIG.name)
    return subprocess.run(command, cwd=folder, check=False).returncode


def find_misplaced(sources: Path) -> list[str]:
    """Pages below `sources` that the navigation lacks or has twice, and its entries without one."""
    navigation = tomllib.loads(CONFIG.read_text(encoding="utf-8"))["project"]["nav"]
    counts = Counter(_list_pages(navigation))
    counts.subtract(path.relative_to(sources).as_posix() for path in sources.rglob("*.md"))
    return sorted(page for page, count in counts.items() if count)


def _list_pages(position: Any) -> Iterator[str]:
    """The files that a part of the navigation names."""
    if isinstance(position, str):
        yield position
        return
    for below in position.values() if isinstance(position, dict) else position:
        yield from _list_pages(below)


if __name__ == "__main__":
    sys.exit(main())
