"""`relaxd opt`: passes on a saved module."""

import json
from pathlib import Path

import numpy as np
import pytest
from tvm import relax
from typer.testing import CliRunner

from compiler.passes.framework.saved import SavedModule, read_module, write_module
from relaxd.cli.app import app
from tests.compiler.conftest import build_module

runner = CliRunner()


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """A product with the transpose of a constant."""
    weights = relax.const(np.ones((8, 4), "float32"))
    module = build_module(
        lambda builder, x: relax.op.matmul(x, relax.op.permute_dims(weights)),
        {"x": (("n", 4), "float32")},
    )
    write_module(tmp_path / "m.json", SavedModule(module, "x86-64-v3", {}))
    return tmp_path / "m.json"


def test_passes_run_in_order_and_the_result_is_printed(saved: Path) -> None:
    before = runner.invoke(app, ["opt", str(saved), "-p", "drop_empty"])
    assert before.exit_code == 0, before.output
    assert "R.permute_dims" in before.stdout
    done = runner.invoke(app, ["opt", str(saved), "-p", "CanonicalizeBindings,fold_layout"])
    assert done.exit_code == 0, done.output
    assert "R.permute_dims" not in done.stdout
    assert "R.matmul" in done.stdout


def test_a_result_that_is_written_can_be_read_again(saved: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    done = runner.invoke(app, ["opt", str(saved), "-p", "fold_layout", "-o", str(out)])
    assert (done.exit_code, done.stdout) == (0, "")
    assert read_module(out).target == "x86-64-v3"
    script = tmp_path / "out.py"
    again = runner.invoke(app, ["opt", str(out), "-p", "pack_matmul", "-o", str(script)])
    assert again.exit_code == 0, again.output
    assert "panel_matmul" in script.read_text()


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["-p", "fold_layuot"], 2, "did you mean fold_layout"),
        (["-p", "ToNonDataflow,CallTIRRewrite"], 1, "CallTIRRewrite requires tensor_programs"),
        ([], 2, "give a file and the passes to run"),
    ],
)
def test_mistakes_are_named(saved: Path, arguments: list[str], code: int, message: str) -> None:
    done = runner.invoke(app, ["opt", str(saved), *arguments, "--json"])
    assert done.exit_code == code
    error = json.loads(done.stdout)["error"]
    assert message in f"{error['message']}: {error['hint']}"


def test_files_that_hold_no_module_are_named(tmp_path: Path) -> None:
    (tmp_path / "m.json").write_text("{}")
    done = runner.invoke(app, ["opt", str(tmp_path / "m.json"), "-p", "fold_layout", "--json"])
    assert done.exit_code == 2
    assert "holds no module" in json.loads(done.stdout)["error"]["message"]
    done = runner.invoke(app, ["opt", str(tmp_path / "none.json"), "-p", "x", "--json"])
    assert done.exit_code == 2
    assert "there is no file" in json.loads(done.stdout)["error"]["message"]


def test_passes_are_listed_with_what_they_require_and_ensure() -> None:
    done = runner.invoke(app, ["opt", "--list", "--target", "x86-64-v3", "--json"])
    assert done.exit_code == 0, done.output
    rows = {row["name"]: row for row in json.loads(done.stdout)["passes"]}
    assert rows["fold_layout"]["summary"] == "Replaces layout operators on constants by constants"
    assert rows["FuseOps"]["requires"] == ["op_patterns"]
    assert rows["flatten_buffers"]["ensures"] == ["flat_buffers"]
    assert {"make_c_functions", "name_checks"} <= rows.keys()
    text = runner.invoke(app, ["opt", "--list"]).stdout
    assert "  fold_layout: Replaces layout operators" in text
    assert "      requires no_blocks\n      ensures flat_buffers\n" in text
