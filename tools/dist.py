"""Builds the wheels of both distributions into dist/: `relaxd`, and `relaxd-server` with the
compiler and the service.
"""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
PACKAGES = ("relaxd", "service", "compiler", "artifacts")
PROJECTS = (".", "wheels/server")
_FILES = ("pyproject.toml", "README.md", "LICENSE")


def build(folder: Path) -> list[Path]:
    """The wheels, in `folder`, built from copies of the sources, since setuptools takes what an
    earlier build left beside them.
    """
    with tempfile.TemporaryDirectory(prefix="relaxd-dist-") as scratch:
        source = Path(scratch)
        without = shutil.ignore_patterns("__pycache__", "build", "*.egg-info")
        for name in (*PACKAGES, "wheels"):
            shutil.copytree(ROOT / name, source / name, ignore=without)
        for name in _FILES:
            shutil.copy(ROOT / name, source / name)
        command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check"]
        command += ["--no-deps", "--no-build-isolation", "--wheel-dir", str(folder)]
        subprocess.run([*command, *(str(source / project) for project in PROJECTS)], check=True)
    return sorted(folder.glob("relaxd*.whl"))


def main() -> None:
    """Prints the paths of the wheels."""
    for wheel in build(ROOT / "dist"):
        print(wheel.relative_to(ROOT))


if __name__ == "__main__":
    main()
