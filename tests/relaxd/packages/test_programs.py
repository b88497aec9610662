"""Packages built and run by the tools of their ecosystems: each example alone, and one program with
two models, whose answers and errors are the same in every language.
"""

import json
import os
import shutil
import subprocess
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from typer.testing import CliRunner

from relaxd.cli.app import app
from tests.relaxd.packages.models import mlp
from tests.support.tools import is_usable

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]
CLIENT = ROOT / "clients/js"
PROGRAMS = Path(__file__).parent / "programs"
MODELS = ("mlp", "odd")
LIBRARIES = [f"-lrelaxd_{name}" for name in MODELS]
ERRORS = [
    "1 n = 9, it must be 1 to 8",
    "5 bind the dims before a run",
    "5 x has 256 elements, it must have 64",
]
ODD = {
    "return 2 4": [1, 0, 2, 0, 0, 0, 0, 0],
    "N 2": [6, 7],
    "where 2 3": [0, 0, 1, 0, 2, 1],
    "return 2 0": [],
    "where 2 0": [],
}


def run(*command: object, cwd: Path, **environment: str) -> str:
    """The output of a command; fails where it warns or ends by an error."""
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def package(bundle: Path, kind: str, output: Path, *options: str) -> None:
    ended = CliRunner().invoke(
        app, ["package", str(bundle), "--as", kind, "-o", str(output), *options]
    )
    assert ended.exit_code == 0, ended.output


def check_example(printed: str) -> None:
    """The first row of the model's output on 0, 1/8 ... 7/8 is in what an example printed."""
    x = np.arange(32) % 8 / 8
    name, *numbers = printed.translate(str.maketrans("[],", "   ")).split()
    assert (name.lower(), numbers[:2]) == ("y", ["1", "7"])
    np.testing.assert_allclose(
        [float(number) for number in numbers[2:]], expected_row(x), atol=1e-5
    )


def expected_row(x: np.ndarray) -> np.ndarray:
    (weights,) = mlp().graph.initializer
    return np.maximum(x @ numpy_helper.to_array(weights).astype(np.float64), 0)


def check_two(printed: str) -> None:
    """The output of the programs with two models."""
    lines = printed.splitlines()
    check_numbers(lines[:4], lines[8:-1])
    assert [line.lower() for line in lines[4:7]] == ERRORS
    assert lines[7].startswith("5 ")
    assert lines[-1] == "1 seq-len = 6, it must be 0 to 64, a multiple of 4"


def check_numbers(mlp_lines: list[str], odd_lines: list[str]) -> None:
    """The outputs of both models."""
    expected = expected_row(np.arange(32) / 32)
    for line, n in zip(mlp_lines, (1, 2, 8, 3), strict=True):
        name, _, values = line.partition(":")
        assert name == f"y {n} 7"
        numbers = np.array(values.split(), np.float64).reshape(n, 7)
        np.testing.assert_allclose(numbers, np.tile(expected, (n, 1)), atol=2e-6)
    parts = (line.partition(":") for line in odd_lines)
    assert {name: list(map(float, text.split())) for name, _, text in parts} == ODD


def need(*programs: str) -> None:
    for program in programs:
        if not is_usable(program):
            pytest.skip(f"{program} is not installed")


def test_the_models_are_what_the_programs_expect() -> None:
    onnx.checker.check_model(mlp())
    assert expected_row(np.arange(32) / 32).max() > 1


@pytest.fixture(scope="module")
def prefix(two: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A prefix with the packages of both models, for CMake and for pkg-config."""
    folder = tmp_path_factory.mktemp("prefix")
    for name in MODELS:
        for kind in ("cmake", "pkg-config"):
            package(two / name, kind, folder / f"{name}-{kind}")
            shutil.copytree(folder / f"{name}-{kind}", folder / "prefix", dirs_exist_ok=True)
    return folder / "prefix"


@pytest.mark.parametrize("name", MODELS)
def test_the_example_of_cmake(two: Path, prefix: Path, name: str, tmp_path: Path) -> None:
    need("cmake", "c++", "make")
    example = prefix / f"share/relaxd_{name}/example"
    run("cmake", "-S", example, "-B", tmp_path, f"-DCMAKE_PREFIX_PATH={prefix}", cwd=tmp_path)
    run("cmake", "--build", tmp_path, cwd=tmp_path)
    run("ctest", "--output-on-failure", cwd=tmp_path)
    if name == "mlp":
        weights = prefix / "share/relaxd_mlp/weights.bin"
        check_example(run(tmp_path / "example", weights, cwd=tmp_path))


def test_the_example_of_pkg_config(prefix: Path) -> None:
    need("pkg-config", "c++", "make")
    printed = run(
        *("make", "-s", "run"),
        cwd=prefix / "share/relaxd_mlp/example",
        PKG_CONFIG_PATH=str(prefix / "lib/pkgconfig"),
    )
    check_example(printed)


def test_two_models_in_one_program_of_cpp(prefix: Path, tmp_path: Path) -> None:
    need("c++")
    strict = ("-std=c++17", "-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Werror")
    where = (f"-I{prefix}/include", f"-L{prefix}/lib", f"-Wl,-rpath,{prefix}/lib")
    run("c++", *strict, PROGRAMS / "two.cpp", *where, *LIBRARIES, "-o", "two", cwd=tmp_path)
    check_two(run("./two", prefix / "share/relaxd_mlp/weights.bin", cwd=tmp_path))


@pytest.fixture(scope="module")
def crates(two: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    need("cargo")
    folder = tmp_path_factory.mktemp("crates")
    for name in MODELS:
        package(two / name, "cargo", folder / name)
    return folder


def cargo(crates: Path, folder: str, *command: str) -> str:
    environment = {"CARGO_TARGET_DIR": str(crates / "target"), "RUSTFLAGS": "-D warnings"}
    return run("cargo", *command, "--quiet", "--offline", cwd=crates / folder, **environment)


def test_the_example_of_a_crate(crates: Path) -> None:
    check_example(cargo(crates, "mlp", "run", "--example", "run"))
    assert "where_ [2, 3] [0, 0, 0, 1, 2, 3]" in cargo(crates, "odd", "run", "--example", "run")


def test_two_models_in_one_program_of_rust(crates: Path) -> None:
    dependencies = "".join(f'relaxd_{name} = {{ path = "../{name}" }}\n' for name in MODELS)
    (crates / "two/src").mkdir(parents=True)
    (crates / "two/Cargo.toml").write_text(
        '[package]\nname = "two"\nversion = "0.1.0"\nedition = "2021"\n\n[dependencies]\n'
        + dependencies
    )
    shutil.copy(PROGRAMS / "two.rs", crates / "two/src/main.rs")
    check_two(cargo(crates, "two", "run"))


@pytest.fixture(scope="module")
def modules(two: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    need("go", "cc")
    folder = tmp_path_factory.mktemp("modules")
    for name in MODELS:
        package(two / name, "go", folder / name)
    return folder


def test_the_example_of_a_go_module(modules: Path) -> None:
    assert run("gofmt", "-l", "mlp", "odd", cwd=modules) == ""
    run("go", "vet", "./...", cwd=modules / "odd")
    check_example(run("go", "run", "./example", "weights.bin", cwd=modules / "mlp"))


def test_two_models_in_one_program_of_go(modules: Path) -> None:
    folder = modules / "two"
    folder.mkdir()
    lines = [f"require models.local/{name} v0.0.0" for name in MODELS]
    lines += [f"replace models.local/{name} => ../{name}" for name in MODELS]
    (folder / "go.mod").write_text("\n\n".join(["module two", "go 1.18", *lines]) + "\n")
    shutil.copy(PROGRAMS / "two.go", folder / "main.go")
    check_two(run("go", "run", ".", "../mlp/weights.bin", cwd=folder))


@pytest.fixture(scope="module")
def nuget(two: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with both packages, whose libraries lie where Mono looks for them."""
    need("mcs", "mono")
    folder = tmp_path_factory.mktemp("nuget")
    for name in MODELS:
        package(two / name, "nuget", folder / name)
        (library,) = (folder / name).glob("runtimes/linux-*/native/*.so")
        shutil.copy(library, folder)
    return folder


def test_the_example_of_a_nuget_package(nuget: Path) -> None:
    for name, weights in (
        ("mlp", ["mlp/contentFiles/any/any/relaxd_mlp.weights.bin"]),
        ("odd", []),
    ):
        source = f"{name}/contentFiles/cs/any/{name.capitalize()}.cs"
        run(
            "mcs",
            "-warnaserror",
            f"-out:{name}.exe",
            source,
            f"{name}/example/Program.cs",
            cwd=nuget,
        )
        printed = run("mono", f"{name}.exe", *weights, cwd=nuget, LD_LIBRARY_PATH=str(nuget))
        if name == "mlp":
            check_example(printed)
        else:
            assert "Where [2 3] [0 0 0 1 2 3]" in printed


def test_two_models_in_one_program_of_csharp(nuget: Path) -> None:
    sources = [f"{name}/contentFiles/cs/any/{name.capitalize()}.cs" for name in MODELS]
    run("mcs", "-r:System.Core", "-out:two.exe", PROGRAMS / "two.cs", *sources, cwd=nuget)
    weights = "mlp/contentFiles/any/any/relaxd_mlp.weights.bin"
    check_two(run("mono", "two.exe", weights, cwd=nuget, LD_LIBRARY_PATH=str(nuget)))


def test_a_nuspec_names_files_that_it_has(nuget: Path) -> None:
    root = ElementTree.parse(nuget / "mlp/relaxd_mlp.nuspec").getroot()
    space = "{http://schemas.microsoft.com/packaging/2013/05/nuspec.xsd}"
    metadata = root.find(f"{space}metadata")
    assert metadata is not None
    fields = {child.tag.removeprefix(space) for child in metadata}
    assert {"id", "version", "authors", "description", "license", "contentFiles"} == fields
    for files in metadata.iter(f"{space}files"):
        assert (nuget / "mlp/contentFiles" / files.attrib["include"]).is_file()
    for file in root.findall(f"{space}files/{space}file"):
        assert list((nuget / "mlp").glob(file.attrib["src"]))


@pytest.fixture(scope="module")
def site(web: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which both npm packages are installed, with relaxd's as their dependency."""
    need("node", "npm")
    folder = tmp_path_factory.mktemp("site")
    for name in MODELS:
        package(web / name, "npm", folder / name, "--package", f"file:{CLIENT}")
    (folder / "package.json").write_text('{"name": "site", "private": true}')
    quiet = ("--no-audit", "--no-fund", "--offline", "--install-links")
    run("npm", "install", *quiet, *(f"./{name}" for name in MODELS), cwd=folder)
    return folder


def test_the_example_of_an_npm_package(site: Path) -> None:
    check_example(run("node", "node_modules/relaxd-mlp/example.mjs", cwd=site))
    assert "where [2 3] 0 0 0 1 2 3" in run("node", "node_modules/relaxd-odd/example.mjs", cwd=site)


def test_two_models_in_one_program_of_javascript(site: Path) -> None:
    shutil.copy(PROGRAMS / "two.mjs", site)
    lines = run("node", "two.mjs", cwd=site).splitlines()
    check_numbers(lines[:4], lines[6:-1])
    assert lines[4] == "run.input n = 9, it must be 1 to 8"
    assert lines[5].startswith("run.input input x has 256 values, it must have 64")
    assert lines[-1] == "run.input seq-len = 6, it must be 0 to 64, a multiple of 4"


def test_the_types_of_an_npm_package(site: Path) -> None:
    need("tsc")
    shutil.copy(PROGRAMS / "typed.mts", site)
    strict = ("--noEmit", "--strict", "--module", "nodenext", "--target", "es2022")
    run("tsc", *strict, "typed.mts", cwd=site)


def test_without_a_url_no_registry_is_asked_for_relaxd(web: Path, tmp_path: Path) -> None:
    package(web / "mlp", "npm", tmp_path / "mlp")
    document = json.loads((tmp_path / "mlp/package.json").read_text())
    assert "dependencies" not in document
    assert document["peerDependenciesMeta"] == {"relaxd": {"optional": True}}
