"""Both distributions as wheels: what each holds, and that a bundle needs the small one alone."""

import json
import subprocess
import sys
import zipfile
from email.message import Message
from email.parser import Parser
from pathlib import Path

import numpy
import pytest
from packaging.requirements import Requirement

from compiler import compile_model
from tests.support.models.small import WIDTH, perceptron
from tools import dist

pytestmark = pytest.mark.slow

USER = """
import json, sys
sys.path[:] = [sys.argv[1], *(path for path in sys.path if "site-packages" not in path)]
sys.path.append(sys.argv[2])
import numpy, relaxd
model = relaxd.load(sys.argv[3])
y = model.run({"x": numpy.ones((2, 5, int(sys.argv[4])), "float32")})["y"]
from relaxd.cli.app import app
from typer.testing import CliRunner
helped = CliRunner().invoke(app, ["--help"])
lacking = CliRunner().invoke(app, ["serve"])
own = {name.partition(".")[0] for name in sys.modules} & set(sys.argv[5].split())
print(json.dumps({"sum": float(y.sum()), "own": sorted(own), "file": relaxd.__file__,
                  "version": relaxd.__version__, "help": helped.exit_code,
                  "serve": lacking.output}))
"""


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    built = dist.build(tmp_path_factory.mktemp("wheels"))
    return {path.name.partition("-")[0]: path for path in built}


def tops(wheel: Path) -> set[str]:
    names = zipfile.ZipFile(wheel).namelist()
    return {name.partition("/")[0] for name in names if ".dist-info/" not in name}


def metadata(wheel: Path) -> Message:
    archive = zipfile.ZipFile(wheel)
    (name,) = (name for name in archive.namelist() if name.endswith("METADATA"))
    return Parser().parsestr(archive.read(name).decode())


def test_each_package_is_in_one_wheel_with_its_files(wheels: dict[str, Path]) -> None:
    assert tops(wheels["relaxd"]) == {"relaxd"}
    assert tops(wheels["relaxd_server"]) == {"artifacts", "compiler", "service"}
    stored = {name for wheel in wheels.values() for name in zipfile.ZipFile(wheel).namelist()}
    for package in dist.PACKAGES:
        there = (path for path in (dist.ROOT / package).rglob("*") if path.is_file())
        retained = {
            str(path.relative_to(dist.ROOT)) for path in there if "__pycache__" not in path.parts
        }
        assert retained <= stored
    # What verifies in a page runs what users' pages run.
    modules = {path.name for path in (dist.ROOT / "clients" / "js" / "src").glob("*.js")}
    assert {f"compiler/verify/emulation/npm/{name}" for name in modules} <= stored


def test_no_wheel_requires_one_of_ours_by_a_name_that_an_index_may_have(
    wheels: dict[str, Path],
) -> None:
    own, server = (metadata(wheels[name]) for name in ("relaxd", "relaxd_server"))
    assert own["Version"] == server["Version"]
    assert server.get_all("Requires-Dist") is None
    ours = [
        wanted
        for wanted in map(Requirement, own.get_all("Requires-Dist") or [])
        if wanted.name.startswith("relaxd")
    ]
    # Of itself, which is installed: an extra that names others.
    assert {wanted.name for wanted in ours} == {"relaxd"}
    assert all(wanted.extras and not wanted.specifier for wanted in ours)


def test_the_small_one_runs_a_bundle(wheels: dict[str, Path], tmp_path: Path) -> None:
    """An audit of this environment sees what a package index would give it, and none of our
    packages.
    """
    options = {"verify": False, "profile": False}
    compile_model(perceptron(), output=tmp_path / "out", options=options)
    zipfile.ZipFile(wheels["relaxd"]).extractall(tmp_path / "installed")
    others = Path(numpy.__file__).parents[1]
    done = subprocess.run(
        [
            *(sys.executable, "-S", "-P", "-c", USER, str(tmp_path / "installed"), str(others)),
            *(str(tmp_path / "out"), str(WIDTH), "service compiler artifacts tvm torch onnx"),
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["sum"] == pytest.approx(2 * 5, rel=1e-5), "each row of a softmax sums to 1"
    assert (result["own"], result["help"]) == ([], 0)
    assert result["file"].startswith(str(tmp_path / "installed"))
    assert result["version"] == metadata(wheels["relaxd"])["Version"]
    assert "pip install './relaxd-VERSION-py3-none-any.whl[server]'" in " ".join(
        result["serve"].split()
    )
