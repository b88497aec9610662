"""The dump of a pipeline: one file a phase, one a kernel, and what a failing pass was given."""

import json
from dataclasses import dataclass

import numpy as np
import pytest
import tvm
from tvm import relax

from compiler.codegen.generate import generate
from compiler.errors import PassError
from compiler.passes import manager
from compiler.passes.framework.base import ModulePass, Phase
from compiler.passes.framework.dump import Dump
from compiler.passes.pipelines import pipeline
from relaxd.contract.bundle.manifest import DUMP_START
from tests.compiler.conftest import HOST, build_module

op = relax.op


def dense(builder, x):
    return builder.emit(op.matmul(x, relax.const(np.ones((64, 48), "float32"))))


@pytest.fixture(scope="module")
def module():
    return build_module(dense, {"x": (("n", 64), "float32")})


def test_every_phase_and_kernel_has_a_file(module, tmp_path):
    dump = Dump(tmp_path / "dump")
    dump.write_start(module)
    generate(manager.lower(module, HOST, {}, (dump,)), HOST, observers=(dump,))
    assert sorted(path.name for path in (tmp_path / "dump").glob("*.py")) == [
        DUMP_START,
        "10_graph.py",
        "20_pack.py",
        "30_tensor_programs.py",
        "40_loops.py",
        "50_memory_plan.py",
        "60_virtual_machine.py",
    ]
    texts = {path.name: path.read_text() for path in (tmp_path / "dump").glob("*.py")}
    assert "R.matmul" in texts[DUMP_START]
    assert "R.matmul" not in texts["20_pack.py"]
    assert '"relaxd.family": "matmul"' in texts["40_loops.py"]
    assert "R.builtin.alloc_tensor" not in texts["40_loops.py"]
    assert "R.builtin.alloc_tensor" in texts["50_memory_plan.py"]
    assert "relaxd.declined" not in texts["60_virtual_machine.py"]
    kernel = (tmp_path / "dump" / "kernels" / "panel_matmul.py").read_text()
    assert '"relaxd.family": "matmul"' in kernel
    (row,) = json.loads((tmp_path / "dump" / "kernels.json").read_text())
    assert (row["name"], row["family"]) == ("panel_matmul", "matmul")
    passes = json.loads((tmp_path / "dump" / "passes.json").read_text())
    assert [row["pass"] for row in passes] == [step.name for step in pipeline(HOST, {})]
    assert {row["phase"] for row in passes} == {
        phase.value for phase in Phase if phase is not Phase.DEVICE_FUNCTIONS
    }
    loops = (tmp_path / "dump" / "70_lowered_loops" / "panel_matmul.py").read_text()
    assert "T.sblock" not in loops
    assert "T.vectorized" not in loops
    function = (tmp_path / "dump" / "80_functions" / "panel_matmul.py").read_text()
    assert '"calling_conv"' in function


def test_constants_are_named_and_not_written_out(module, tmp_path):
    Dump(tmp_path).write_start(module)
    text = (tmp_path / DUMP_START).read_text()
    assert 'metadata["' in text
    assert len(text) < 4096


@dataclass(frozen=True)
class Failing(ModulePass):
    name = "failing"
    phase = Phase.PACK

    def apply(self, module: tvm.IRModule) -> tvm.IRModule:
        raise ValueError("no")


def test_a_failing_pass_leaves_the_module_that_it_was_given(module, tmp_path):
    with pytest.raises(PassError):
        manager.run((Failing(),), module, (Dump(tmp_path),))
    assert "R.matmul" in (tmp_path / "20_before_failing.py").read_text()
    assert json.loads((tmp_path / "passes.json").read_text()) == []


def test_what_tvm_cannot_print_does_not_fail_the_build(module, tmp_path, monkeypatch):
    def fail(*arguments, **options):
        raise RuntimeError("no printer")

    monkeypatch.setattr(tvm.IRModule, "script", fail)
    Dump(tmp_path).write_start(module)
    assert (tmp_path / DUMP_START).read_text() == "# TVM cannot print this: no printer\n"


def test_names_of_kernels_fit_into_a_file_system(tmp_path):
    name = "fused_" + "_".join(f"add{index}" for index in range(60))
    kernel = tvm.tirx.PrimFunc([], tvm.tirx.Evaluate(0))
    Dump(tmp_path).phase_ended(Phase.LOOPS, tvm.IRModule({name: kernel}))
    (path,) = (tmp_path / "kernels").iterdir()
    assert path.name.startswith(name[:50])
    assert len(path.name) < 128
