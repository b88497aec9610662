"""Fetches the pinned wheels with pip, which checks their hashes, and keeps the runtime libraries
and licences.
"""

import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path, PurePosixPath

from compiler.errors import ToolchainMissing
from compiler.runtimes import directory
from compiler.runtimes.pins import Pin

_LICENSES = frozenset({"LICENSE", "NOTICE"})
_PYTHON = "3.11"


def fetch(pin: Pin) -> Path:
    """The folder with the platform's libraries, which appears complete or not at all; raises
    ToolchainMissing.
    """
    destination = directory(pin)
    if all((destination / name).is_file() for name in pin.libraries):
        return destination
    destination.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{pin.name}-", dir=destination.parent) as scratch:
        wheels, libraries = Path(scratch) / "wheels", Path(scratch) / "kept"
        libraries.mkdir()
        _download(pin, wheels)
        for wheel in wheels.glob("*.whl"):
            _extract(pin, wheel, libraries)
        if missing := [name for name in pin.libraries if not (libraries / name).is_file()]:
            raise ToolchainMissing(
                f"the wheels for {pin.name} hold no {', '.join(missing)}", reason="runtime_missing"
            )
        shutil.rmtree(destination, ignore_errors=True)
        libraries.rename(destination)
    return destination


def _download(pin: Pin, into: Path) -> None:
    pinned = into.with_suffix(".txt")
    pinned.write_text(
        "".join(
            f"{wheel.package}=={wheel.version} --hash=sha256:{wheel.sha256}\n"
            for wheel in pin.wheels
        )
    )
    choice = (
        "--platform",
        pin.tag,
        "--python-version",
        _PYTHON,
        "--only-binary=:all:",
        "--no-deps",
        "--require-hashes",
    )
    quiet = ("-q", "--disable-pip-version-check", "--no-input")
    command = [
        sys.executable,
        "-m",
        "pip",
        "download",
        *quiet,
        *choice,
        "-d",
        str(into),
        "-r",
        str(pinned),
    ]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    if done.returncode:
        raise ToolchainMissing(
            f"pip could not fetch the runtime for {pin.name}: {done.stderr.strip()[-500:]}",
            reason="fetch_failed",
            hint="the package index must be reachable while a worker's environment is built",
        )


def _extract(pin: Pin, wheel: Path, into: Path) -> None:
    package = wheel.name.partition("-")[0]
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            path = PurePosixPath(name)
            if path.name in pin.libraries and path.parent.name == "lib":
                (into / path.name).write_bytes(archive.read(name))
            elif path.name in _LICENSES and len(path.parts) == 2:
                (into / f"{package}-{path.name}").write_bytes(archive.read(name))
