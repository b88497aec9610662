"""Builds the site into build/site/html; fails on any warning, such as a link that leads nowhere."""

import shutil
import subprocess
import sys
from pathlib import Path

from tools.site.sources import ROOT, assemble

CONFIG = Path(__file__).parent / "zensical.toml"


def main() -> int:
    """Returns the exit status."""
    folder = ROOT / "build" / "site"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    assemble(folder / "source")
    shutil.copyfile(CONFIG, folder / CONFIG.name)
    command = (sys.executable, "-m", "zensical", "build", "--strict", "-f", CONFIG.name)
    return subprocess.run(command, cwd=folder, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
