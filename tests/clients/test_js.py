"""The npm package `relaxd`, by node's own test runner: on a bundle whose library is written by hand
in C with the interface of a standalone library.
"""

import gzip
import hashlib
import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest

from compiler.toolchain import zig
from tests.support.servers import missing

HERE = Path(__file__).parent / "js"
PACKAGE = Path(__file__).parents[2] / "clients" / "js"
PAGE = Path(__file__).parents[2] / "docs" / "howto" / "browser.md"
HOSTS = {
    "node": ("node",),
    "bun": ("bun",),
    "deno": ("deno", "run", "--allow-read", "--node-modules-dir=manual"),
}
"""How each engine runs a program, as the page says."""
SMALL, FULL = 8_300, 17_300
"""Bytes after gzip: of what every page loads, and of it all, with WebGPU, threads and states."""
MANIFEST = {
    "schema_version": 1,
    "name": "byhand",
    "flavour": "standalone",
    "entry": "relaxd_byhand",
    "library": "model.wasm",
    "inputs": [
        {"name": "x", "dtype": "float32", "shape": ["2 * n", 3]},
        {"name": "bias", "dtype": "int64", "shape": [], "default": 0},
    ],
    "outputs": [
        {"name": "y", "dtype": "float32", "shape": ["2 * n", 3]},
        {"name": "kept", "dtype": "float32", "shape": ["m"]},
    ],
    "dims": {"n": {"min": 1, "max": 65536}},
    "load": {"arch": "wasm32"},
    "weights": [{"dtype": "float32", "shape": [3], "offset": 0}],
    "weights_file": "weights.bin",
}


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bundle")
    zig.compile_with_zig(
        *("-O2", "-mcpu=generic+bulk_memory", "-c"),
        *("-o", str(folder / "model.o"), str(HERE / "model.c")),
        triple="wasm32-freestanding",
    )
    zig.link_wasm(
        *("--no-entry", "-s", "-z", f"stack-size={16 << 20}"),
        *("-o", str(folder / "model.wasm"), str(folder / "model.o")),
    )
    (folder / "weights.bin").write_bytes(np.array([0.5, 2, -1], "<f4").tobytes())
    entries = {
        name: {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data)}
        for name in ("model.wasm", "weights.bin")
        for data in [(folder / name).read_bytes()]
    }
    (folder / "manifest.json").write_text(json.dumps({**MANIFEST, "files": entries}))
    return folder


def run_node(folder: Path, bundle: Path, *arguments: str) -> str:
    """Run node as `run_script` does."""
    return run_script(folder, bundle, "node", *arguments)


def run_script(folder: Path, bundle: Path, *command: str) -> str:
    """Run an engine of JavaScript, and return what it prints, in a folder where the package is
    installed; fails with its errors.
    """
    if shutil.which(command[0]) is None:
        if command[0] != "node":
            pytest.skip(f"{command[0]} is not installed; npm install --global {command[0]}")
        missing("node", "apt-get install nodejs")
    # Programs import the package by its name, as its users do.
    (folder / "node_modules").mkdir()
    (folder / "node_modules" / "relaxd").symlink_to(PACKAGE)
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, "RELAXD_BUNDLE": str(bundle)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("file", sorted(HERE.glob("*.test.mjs")), ids=lambda path: path.stem)
def test_node(file: Path, bundle: Path, tmp_path: Path) -> None:
    shutil.copytree(HERE, tmp_path / "tests" / "clients" / "js")
    (tmp_path / "clients").symlink_to(PACKAGE.parent)
    run_node(tmp_path, bundle, "--test", f"tests/clients/js/{file.name}")


PRINTED = {
    "node.mjs": "[ 2, 3 ] Float32Array(3) [ 0.5, 2, -1 ]\n"
    "[ 10, 3 ] Float32Array(3) [ 0.5, 2, -1 ]\n",
    "contexts.mjs": "0.5 0.5\n1 1\nrun.input\n",
}


@pytest.mark.parametrize("host", HOSTS)
@pytest.mark.parametrize("name", PRINTED)
def test_programs_of_the_page_run(name: str, host: str, bundle: Path, tmp_path: Path) -> None:
    (program,) = re.findall(rf"```js {re.escape(name)}\n(.*?)```", PAGE.read_text(), re.DOTALL)
    (tmp_path / name).write_text(program)
    (tmp_path / "package.json").write_text('{"dependencies": {"relaxd": "*"}}')
    (tmp_path / "out").symlink_to(bundle.resolve())
    assert run_script(tmp_path, bundle, *HOSTS[host], name) == PRINTED[name]


def test_the_package_is_small_and_needs_nothing() -> None:
    package = json.loads((PACKAGE / "package.json").read_text())
    assert not {"dependencies", "peerDependencies", "optionalDependencies"} & package.keys()
    sources = sorted((PACKAGE / "src").glob("*.js"))
    loaded = _loaded_with("index.js", frozenset())
    assert loaded < {path.name for path in sources}
    assert _packed(PACKAGE / "src" / name for name in sorted(loaded)) < SMALL
    assert _packed(sources) < FULL
    imports = [
        line for path in sources for line in path.read_text().splitlines() if "from '" in line
    ]
    assert not [line for line in imports if "from './" not in line]


def _loaded_with(name: str, before: frozenset[str]) -> frozenset[str]:
    """The module and what it imports before it runs."""
    result = before | {name}
    text = (PACKAGE / "src" / name).read_text()
    for other in re.findall(r"from '\./([^']*)'", text):
        if other not in result:
            result |= _loaded_with(other, result)
    return result


def _packed(files: Iterable[Path]) -> int:
    return len(gzip.compress(b"".join(path.read_bytes() for path in files)))
