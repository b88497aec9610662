"""The table of signatures, and the room's own imports."""

import subprocess
import sys
from pathlib import Path

from compiler.ir.pt2 import signature_table
from compiler.ir.pt2.__main__ import render
from compiler.ir.pt2.signatures import why_not
from tests.compiler.ir.pt2.running import export, save
from tests.compiler.ir.pt2.test_models import Mlp

ROOT = Path(__file__).parents[4]


def test_the_table_is_of_the_operators_that_the_importer_has() -> None:
    """After a change of the operators: python -m compiler.ir.pt2 --write."""
    assert Path(signature_table.__file__).read_text() == render()


def test_why_operators_are_refused() -> None:
    assert why_not("aten::add") is None
    assert why_not("aten::add_") is None
    assert "random numbers" in str(why_not("aten::rand"))
    assert "random numbers" in str(why_not("aten::uniform_"))
    assert "custom operator" in str(why_not("mine::op"))
    assert "higher-order operator strict_mode" in str(why_not("higher_order::strict_mode"))
    assert "of sizes" in str(why_not("python::_operator.methodcaller"))


def test_an_inspection_needs_neither_torch_nor_tvm_nor_numpy(tmp_path: Path) -> None:
    import torch

    model = save(export(Mlp(), (torch.ones(2, 4),)), tmp_path / "m.pt2")
    code = f"""
import sys
from pathlib import Path
from compiler.ir import inspect_exported
from relaxd.contract.request import CompileRequest
report = inspect_exported(Path({str(model)!r}), CompileRequest.of())
print(report["supported"], {{"torch", "tvm", "numpy"}} & set(sys.modules))
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["True", "set()"]
