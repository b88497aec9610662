"""Commands whose packages are not installed say which, and what to do."""

import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from relaxd.client import extras
from relaxd.client.extras import ExtraMissing

BLOCKED = """
import sys
sys.modules[{module!r}] = None
from relaxd.cli import main
sys.argv = ["relaxd", {command!r}, {bundle!r}]
main()
"""


@pytest.mark.parametrize("command", ["run", "bench"])
def test_an_image_without_numpy_says_so(tmp_path: Path, command: str) -> None:
    program = BLOCKED.format(module="numpy", command=command, bundle=str(tmp_path))
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert "numpy, which is not installed" in " ".join(done.stderr.split())


def test_the_package_is_named_as_it_is_installed() -> None:
    with pytest.raises(ExtraMissing, match="needs apache-tvm-ffi") as missing, extras.runtime():
        raise ModuleNotFoundError(name="tvm_ffi")
    assert missing.value.hint


def test_another_module_that_is_missing_is_our_own_mistake() -> None:
    with pytest.raises(ModuleNotFoundError), extras.runtime():
        raise ModuleNotFoundError(name="relaxd.loader.gone")


def test_wheels_of_different_versions_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    versions = {"relaxd": "0.1.0", "relaxd-server": "0.2.0"}
    monkeypatch.setattr(metadata, "version", versions.__getitem__)
    with pytest.raises(ExtraMissing, match=r"relaxd is 0\.1\.0, and relaxd-server 0\.2\.0"):
        extras.load("compiler.targets", extra="compiler")
    versions["relaxd-server"] = "0.1.0"
    assert extras.load("compiler.targets", extra="compiler").__name__ == "compiler.targets"
