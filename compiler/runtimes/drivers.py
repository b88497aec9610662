"""OpenCL's driver for another processor, with which libraries for its GPUs run under an emulator:
Debian's packages of pocl, in a folder of their own.
"""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from compiler.errors import ToolchainMissing
from compiler.runtimes import folder
from compiler.toolchain.packages import folder_of

COMMAND = "python -m compiler.runtimes driver"
_PACKAGES = ("pocl-opencl-icd", "ocl-icd-libopencl1", "libstdc++6")
_ARCHITECTURES = {"aarch64": "arm64"}
"""Debian's names of processors."""
_UNUSED = ("usr/bin", "usr/include", "usr/share/doc", "usr/lib/gcc", "usr/lib/llvm-*/bin")
_LINKER = """\
#!/bin/sh
# The kernels' C library is in the program that loads them.
for word; do
  shift
  case $word in -l* | -L*) ;; *) set -- "$@" "$word" ;; esac
done
exec "${{0%/*}}/{zig}" ld.lld "$@"
"""


@dataclass(frozen=True)
class Driver:
    """The folders of a driver: `root`, which programs see in place of the machine's own; its
    `libraries` and those of C and C++ that belong to it; its `registry`; and `linkers`, where the
    driver finds what links its kernels.
    """

    root: Path

    @property
    def libraries(self) -> Path:
        """The folder of shared libraries."""
        return self.root / "usr" / "lib" / f"{self.root.name}-linux-gnu"

    @property
    def registry(self) -> Path:
        """The folder in which OpenCL's loader looks for drivers."""
        return self.root / "etc" / "OpenCL" / "vendors"

    @property
    def linkers(self) -> Path:
        """The folder of the kernels' linker, which runs on this machine."""
        return self.root / "linkers"

    @property
    def complete(self) -> bool:
        """True if the driver was fetched."""
        return (self.linkers / "ld").is_file()


def architectures() -> Sequence[str]:
    """The processors for which there is a driver to fetch."""
    return tuple(_ARCHITECTURES)


def find(arch: str) -> Driver | None:
    """The driver for the processor, None where none was fetched."""
    driver = Driver(folder() / "opencl" / arch)
    return driver if driver.complete else None


def fetch(arch: str) -> Path:
    """The folder with the driver for the processor, which appears complete or not at all; raises
    ToolchainMissing.

    Takes the packages from the archives that this machine's apt trusts, and installs none: 90 MB.
    """
    destination = Driver(folder() / "opencl" / arch)
    if destination.complete:
        return destination.root
    if lacking := [name for name in ("apt-get", "dpkg-deb") if shutil.which(name) is None]:
        raise ToolchainMissing(
            f"OpenCL's driver for {arch} comes from Debian's packages, and {lacking[0]} is not "
            "installed",
            reason="fetch_failed",
            hint="run it on Debian or Ubuntu",
        )
    destination.root.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=destination.root.parent) as scratch:
        fetched = Driver(Path(scratch, arch))
        _unpack(_download(arch, Path(scratch)), fetched.root)
        _write_linker(fetched, destination)
        shutil.rmtree(destination.root, ignore_errors=True)
        fetched.root.rename(destination.root)
    return destination.root


def _download(arch: str, scratch: Path) -> list[Path]:
    """The packages and all that they depend on, as if nothing were installed."""
    status, state, cache = (scratch / name for name in ("status", "state", "cache"))
    status.touch()
    (state / "lists" / "partial").mkdir(parents=True)
    (cache / "archives" / "partial").mkdir(parents=True)
    settings = {
        "Dir::State": state,
        "Dir::State::status": status,
        "Dir::Cache": cache,
        "APT::Architecture": _ARCHITECTURES[arch],
        "APT::Architectures": _ARCHITECTURES[arch],
        # The user that apt downloads as may not enter this folder.
        "APT::Sandbox::User": "root",
        "Debug::NoLocking": 1,
    }
    apt = [
        "apt-get",
        "-qq",
        *(word for key in settings for word in ("-o", f"{key}={settings[key]}")),
    ]
    _run([*apt, "update"])
    _run([*apt, "install", "-y", "--no-install-recommends", "--download-only", *_PACKAGES])
    return sorted((cache / "archives").glob("*.deb"))


def _unpack(packages: Sequence[Path], root: Path) -> None:
    """Unpack the packages, and remove what no program of ours opens."""
    root.mkdir()
    for package in packages:
        _run(["dpkg-deb", "-x", str(package), str(root)])
    # Releases differ in which of the two has a library; systems have one, under both names.
    if (root / "lib").is_dir():
        shutil.copytree(root / "lib", root / "usr" / "lib", symlinks=True, dirs_exist_ok=True)
        shutil.rmtree(root / "lib")
    (root / "lib").symlink_to("usr/lib")
    for pattern in _UNUSED:
        for path in root.glob(pattern):
            shutil.rmtree(path)


def _write_linker(fetched: Driver, destination: Driver) -> None:
    """Write what the driver calls to link a kernel: zig's linker, at its place in this
    environment.
    """
    zig = folder_of("ziglang") / "zig"
    fetched.linkers.mkdir()
    script = fetched.linkers / "ld"
    script.write_text(_LINKER.format(zig=os.path.relpath(zig, destination.linkers)))
    script.chmod(0o755)


def _run(command: Sequence[str]) -> None:
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
        env={**os.environ, "LC_ALL": "C", "DEBIAN_FRONTEND": "noninteractive"},
    )
    if done.returncode:
        raise ToolchainMissing(
            f"{command[0]} failed with status {done.returncode}: {done.stderr.strip()[-500:]}",
            reason="fetch_failed",
            hint="the archives in /etc/apt must have packages for that processor, as Debian's do",
        )
