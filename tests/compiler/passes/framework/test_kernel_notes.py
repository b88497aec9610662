"""Notes of kernels: written when loops are, read from the module, and gone before code is made."""

import numpy as np
import pytest
import tvm
from tvm import relax, tirx

from compiler import targets
from compiler.passes import manager
from compiler.passes.cpu.families.table import FAMILIES
from compiler.passes.framework.attributes import FAMILY
from compiler.passes.framework.kernel_notes import (
    DECLINED,
    TILE,
    DropKernelNotes,
    KernelNote,
    kernel_table,
)
from tests.compiler.conftest import HOST, build_module

op = relax.op


def dense(builder, x):
    weight = relax.const(np.ones((64, 48), "float32"))
    return builder.emit(op.nn.softmax(builder.emit(op.matmul(x, weight)), -1))


@pytest.fixture(scope="module")
def module():
    return build_module(dense, {"x": (("n", 64), "float32")})


def test_a_note_survives_the_trip_through_a_function():
    bare = tirx.PrimFunc([], tirx.Evaluate(0))
    note = KernelNote("matmul", "6x16, depth 64 a pass", {"copy": "it is: none", "int8": "b"})
    assert KernelNote.of(note.onto(bare)) == note
    assert list(KernelNote.of(note.onto(bare)).declined) == ["copy", "int8"]
    assert KernelNote.of(bare) == KernelNote("given")


def test_every_kernel_names_its_family_and_those_before_it_that_declined(module):
    rows = {row["name"]: row for row in kernel_table(manager.to_kernels(module, HOST, {}))}
    assert {name: row["family"] for name, row in rows.items()} == {
        "panel_matmul": "matmul",
        "softmax": "generic",
    }
    order = [family.name for family in FAMILIES]
    assert list(rows["panel_matmul"]["declined"]) == order[: order.index("matmul")]
    assert list(rows["softmax"]["declined"]) == order[:-1]
    assert all(reason for row in rows.values() for reason in row["declined"].values())


def test_the_rules_of_grids_are_named_too(module):
    kernels = manager.to_kernels(module, targets.resolve("opencl"), {})
    families = {row["name"]: row["family"] for row in kernel_table(kernels)}
    assert families
    assert "given" not in families.values()


def test_nothing_but_the_family_reaches_the_code_generators(module):
    lowered = manager.lower(module, HOST, {})
    kernels = [func for func in lowered.functions.values() if isinstance(func, tirx.PrimFunc)]
    assert kernels
    assert not any({TILE, DECLINED} & set(func.attrs.keys()) for func in kernels)


def test_dropping_notes_leaves_functions_as_they_were():
    bare = tirx.PrimFunc([], tirx.Evaluate(0)).with_attr("tirx.is_scheduled", True)
    noted = KernelNote("generic", "", {"copy": "no"}).onto(bare)
    dropped = DropKernelNotes().apply(tvm.IRModule({"k": noted}))["k"]
    tvm.ir.assert_structural_equal(dropped, bare.with_attr(FAMILY, "generic"))
