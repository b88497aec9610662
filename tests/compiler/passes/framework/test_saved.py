"""Modules in files come back as they were."""

import json
from pathlib import Path

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import relax

from compiler.passes import manager
from compiler.passes.framework.saved import SavedModule, read_module, write_module
from relaxd.contract.dims.dims import Dim
from relaxd.errors import DeclarationError
from tests.compiler.conftest import HOST, build_module

op = relax.op


def dense(builder, x):
    weights = np.array([[np.inf, 1.5], [np.nan, -0.0]], "float32")
    result = builder.emit(op.matmul(x, relax.const(weights)))
    return builder.emit(op.nn.softmax(op.astype(result, "float16")))


@pytest.fixture(scope="module")
def module():
    return build_module(dense, {"x": (("n", 2), "float32")})


def write_and_read(module: tvm.IRModule, folder: Path) -> SavedModule:
    (dim,) = module["main"].params[0].ty.shape.values[:1]
    write_module(folder / "m.json", SavedModule(module, "x86-64-v3", {dim: Dim.of("n", "1:64%2")}))
    return read_module(folder / "m.json")


def test_every_phase_comes_back(module, tmp_path):
    kernels = manager.to_kernels(module, HOST, {})
    machine = manager.to_machine(kernels, HOST, {})
    for state in (module, kernels, machine):
        saved = write_and_read(module if state is machine else state, tmp_path)
        assert saved.target == "x86-64-v3"
        ((variable, dim),) = saved.ranges.items()
        assert dim == Dim.of("n", "1:64%2")
        assert variable.same_as(saved.module["main"].params[0].ty.shape.values[0])
        write_module(tmp_path / "again.json", SavedModule(state, "native", {}))
        # Constants are compared by their bits: NaN is no number that equals itself.
        again = read_module(tmp_path / "again.json").module
        assert tvm_ffi.structural_equal(again, state)
        assert again.script() == state.script()


def test_numbers_that_are_not_finite_come_back(tmp_path):
    values = [float("inf"), float("-inf"), -0.0]
    stores = [tvm.tirx.Evaluate(tvm.tirx.FloatImm("float32", value)) for value in values]
    module = tvm.IRModule({"main": tvm.tirx.PrimFunc([], tvm.tirx.SeqStmt(stores))})
    write_module(tmp_path / "m.json", SavedModule(module, "native", {}))
    body = read_module(tmp_path / "m.json").module["main"].body
    assert [str(stmt.value.value) for stmt in body.seq] == ["inf", "-inf", "-0.0"]


def test_a_module_in_tvmscript_is_read(tmp_path):
    module = build_module(lambda builder, x: op.add(x, x), {"x": (("n", 4), "float32")})
    (tmp_path / "m.py").write_text(module.script())
    saved = read_module(tmp_path / "m.py", "aarch64")
    tvm.ir.assert_structural_equal(saved.module, module)
    assert (saved.target, saved.ranges) == ("aarch64", {})


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("m.json", "{"),
        ("m.json", json.dumps({"format": "another"})),
        ("m.json", json.dumps({"format": "relaxd.module.v1", "module": 1, "dims": []})),
        ("m.py", "def f("),
        ("m.py", "x = 1"),
    ],
)
def test_other_files_are_refused(name, text, tmp_path):
    (tmp_path / name).write_text(text)
    with pytest.raises(DeclarationError, match="holds no module that can be read"):
        read_module(tmp_path / name)
