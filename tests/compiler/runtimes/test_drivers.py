"""OpenCL's driver for another processor is fetched whole or not at all."""

import subprocess
from pathlib import Path

import pytest

from compiler import runtimes
from compiler.errors import ToolchainMissing
from compiler.runtimes import drivers
from compiler.toolchain import zig

_APT = """\
#!/bin/sh
case "$*" in *update*) exit 0;; esac
for word; do
  case $word in Dir::Cache=*) cache=${word#*=} ;; APT::Architecture=*) arch=${word#*=} ;; esac
done
[ "$arch" = arm64 ] || exit 3
touch "$cache/archives/pocl.deb"
"""
_DPKG = """\
#!/bin/sh
[ "$1" = -x ] || exit 4
mkdir -p "$3/lib/aarch64-linux-gnu" "$3/usr/lib/aarch64-linux-gnu" "$3/usr/include"
touch "$3/lib/aarch64-linux-gnu/libc.so.6" "$3/usr/lib/aarch64-linux-gnu/libpocl.so.2"
"""


@pytest.fixture(autouse=True)
def _folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(drivers, "folder", lambda: tmp_path / "kept")


def _install(monkeypatch: pytest.MonkeyPatch, folder: Path, **programs: str) -> None:
    """Put shell scripts of these names ahead of the path."""
    folder.mkdir()
    for name, text in programs.items():
        (folder / name.replace("_", "-")).write_text(text)
        (folder / name.replace("_", "-")).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")


def test_packages_become_one_root(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    _install(monkeypatch, tmp_path / "bin", apt_get=_APT, dpkg_deb=_DPKG)
    assert drivers.find("aarch64") is None
    root = drivers.fetch("aarch64")
    driver = drivers.find("aarch64")
    assert driver is not None
    assert driver.root == root
    names = {path.name for path in driver.libraries.iterdir()}
    assert names == {"libc.so.6", "libpocl.so.2"}
    assert (root / "lib" / "aarch64-linux-gnu" / "libc.so.6").exists()
    assert not (root / "usr" / "include").exists()
    monkeypatch.setenv("PATH", "/nothing")
    assert drivers.fetch("aarch64") == root, "it is there already"


def test_a_failure_leaves_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    refusing = "#!/bin/sh\necho 'E: no such package' >&2\nexit 100\n"
    _install(monkeypatch, tmp_path / "bin", apt_get=refusing, dpkg_deb=_DPKG)
    with pytest.raises(ToolchainMissing, match="status 100: E: no such package") as caught:
        drivers.fetch("aarch64")
    assert caught.value.hint is not None
    assert drivers.find("aarch64") is None
    assert not list((tmp_path / "kept" / "opencl").iterdir())


def test_a_machine_without_debians_tools(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nothing")
    with pytest.raises(ToolchainMissing, match="apt-get is not installed"):
        drivers.fetch("aarch64")


def test_the_linker_of_kernels_takes_no_libraries(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The driver names libraries that are in its root alone, whose symbols the program has."""
    _install(monkeypatch, tmp_path / "bin", apt_get=_APT, dpkg_deb=_DPKG)
    linker = drivers.Driver(drivers.fetch("aarch64")).linkers / "ld"
    source, compiled, linked = (tmp_path / name for name in ("two words.c", "a.o", "a b.so"))
    source.write_text("float sinf(float); float kernel(float x) { return sinf(x); }\n")
    triple = "aarch64-linux-gnu.2.28"
    zig.compile_with_zig("-c", "-fPIC", "-o", str(compiled), str(source), triple=triple)
    command: list[str | Path] = [
        linker,
        "-m",
        "aarch64linux",
        "-shared",
        "-L/nowhere",
        "-o",
        linked,
        compiled,
        "-lm",
    ]
    subprocess.run(command, check=True)
    content = linked.read_bytes()
    assert content[:4] == b"\x7fELF"
    assert content[18] == 183, "not for aarch64"
    assert runtimes.folder() not in linker.parents, "the test wrote into the environment"
