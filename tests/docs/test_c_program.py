"""The C program of docs/howto/standalone.md, compiled by the page's line and run."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from compiler import compile_model
from tests.docs.blocks import ROOT, Kind, blocks_of
from tests.docs.models import rows

PAGE = ROOT / "docs/howto/standalone.md"
HERE = "tests/docs/test_c_program.py"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page's program, built by the page's first command."""
    folder = tmp_path_factory.mktemp("program")
    onnx.save(rows(32, 7), folder / "mlp.onnx")
    compile_model(
        folder / "mlp.onnx", output=folder / "out", dims={"n": "1:8"}, options={"profile": False}
    )
    blocks = list(blocks_of(PAGE))
    (program,) = (block.body for block in blocks if "int main(" in block.body)
    (console,) = (block for block in blocks if block.marks.get(Kind.ELSEWHERE) == HERE)
    (folder / "predict.c").write_text(program)
    programs = folder / "bin"
    programs.mkdir()
    if shutil.which("cc") is None:
        (programs / "cc").write_text(f'#!/bin/sh\nexec {sys.executable} -m ziglang cc "$@"\n')
        (programs / "cc").chmod(0o755)
    build, _ = (command.line for command in console.commands)
    path = f"{programs}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", f"{build} -Wall -Wextra -Werror"],
        cwd=folder,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return folder


def run(folder: Path, count: int) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["./predict", str(count)], cwd=folder, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("count", [1, 2, 7, 8])
def test_it_prints_what_the_model_computes(folder: Path, count: int) -> None:
    done = run(folder, count)
    assert done.returncode == 0, done.stderr
    printed = np.array([line.split() for line in done.stdout.splitlines()], np.float64)
    (weights,) = onnx.load(folder / "mlp.onnx").graph.initializer
    x = np.tile(np.arange(32) / 32, (count, 1))
    expected = np.maximum(x @ numpy_helper.to_array(weights).astype(np.float64), 0)
    np.testing.assert_allclose(printed, expected, atol=2e-6)


@pytest.mark.parametrize("count", [0, 9])
def test_a_size_outside_of_the_range_is_a_sentence(folder: Path, count: int) -> None:
    done = run(folder, count)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"n = {count}, it must be 1 to 8\n"
