"""Programs whose kernels are known, and what tells their keys apart."""

from dataclasses import dataclass, field
from typing import Any

import tvm
from tvm import relax, te, tirx

from compiler.passes.cpu.recall import RecallKernels, StoredKernel
from compiler.passes.cpu.schedule import ScheduleKernels
from compiler.passes.framework.attributes import OBJECT
from compiler.passes.framework.kernel_notes import (
    REMEMBERED,
    DropKernelNotes,
    KernelNote,
    kernel_table,
)
from compiler.runtimes import canonical
from compiler.targets import Target, resolve
from compiler.targets.vector_unit import VectorUnit
from relaxd.contract.dims.dims import Dim
from tests.compiler.conftest import HOST
from tests.compiler.ranges import ranges_of

NOTE = KernelNote("generic", "8 lanes", {"matmul": "no sum", "pooling": "no window: none"})


@dataclass
class Memory:
    """Knows the programs whose names it is given; the keys are what they are made of."""

    known: frozenset[str] = frozenset()
    keys: dict[str, str] = field(default_factory=dict)

    def key(self, name: str, program: tirx.PrimFunc, context: str, target: Target) -> str | None:
        form = canonical.digest(program, canonical.library())
        assert form is not None
        self.keys[name] = f"{name} {context} {target.name} {form.hex()}"
        return f"key of {name}"

    def find(self, key: str) -> StoredKernel | None:
        name = key.removeprefix("key of ")
        return StoredKernel(NOTE, f"object of {name}") if name in self.known else None


def scale_program(factor: float, name: str = "out", dim: str = "n") -> tirx.PrimFunc:
    """x * factor over [n]; name: of the result's block."""
    n = tirx.Var(dim, "int64")
    x = te.placeholder((n,), name="x")
    return te.create_prim_func([x, te.compute((n,), lambda i: x[i] * factor, name=name)])


def module_of(**programs: tirx.PrimFunc) -> tvm.IRModule:
    """A main that calls each program with x of [m]."""
    m = tirx.Var("m", "int64")
    x = relax.Var("x", relax.TensorType([m], "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        value: Any = x
        for name, program in programs.items():
            called = builder.add_func(program, name)
            ty = relax.TensorType([m], "float32")
            value = builder.emit(relax.call_tir(called, relax.Tuple([value]), ty))
        builder.emit_func_output(value)
    return builder.get()


def recall(module: tvm.IRModule, memory: Memory, *dims: Dim, target: Target = HOST) -> Any:
    return RecallKernels(memory, target, ranges_of(module, *dims)).apply(module)


def key_of(program: tirx.PrimFunc, *dims: Dim, target: Target = HOST) -> str:
    memory = Memory()
    recall(module_of(kernel=program), memory, *dims, target=target)
    return memory.keys["kernel"]


def test_a_known_program_becomes_a_stub_with_its_note() -> None:
    module = module_of(one=scale_program(2.0), two=scale_program(3.0))
    result = recall(module, Memory(frozenset({"one"})))
    one, two = result["one"], result["two"]
    assert str(one.attrs[OBJECT]) == "object of one"
    assert str(one.attrs[REMEMBERED]) == "key of one"
    assert isinstance(one.body.block.body, tirx.Evaluate)
    assert [param.ty for param in one.params] == [param.ty for param in module["one"].params]
    assert KernelNote.of(one) == NOTE
    assert OBJECT not in two.attrs
    tvm.ir.assert_structural_equal(two.without_attr(REMEMBERED), module["two"])
    tvm.ir.assert_structural_equal(result["main"], module["main"])


def test_later_passes_leave_stubs_and_their_notes_alone() -> None:
    result = recall(
        module_of(one=scale_program(2.0), two=scale_program(3.0)), Memory(frozenset({"one"}))
    )
    scheduled = ScheduleKernels(VectorUnit.of(HOST)).apply(result)
    assert scheduled["one"].same_as(result["one"])
    assert [row["family"] for row in kernel_table(scheduled)] == ["generic", "generic"]
    # Code generation writes the notes of those that are scheduled now into records.
    dropped = DropKernelNotes().apply(scheduled)
    assert KernelNote.of(dropped["two"]) == KernelNote.of(scheduled["two"]) != KernelNote("generic")


def test_the_names_of_variables_make_no_other_key() -> None:
    assert key_of(scale_program(2.0, dim="n")) == key_of(scale_program(2.0, dim="rows"))


def test_the_names_of_blocks_make_another_key() -> None:
    """Families tell programs apart by them, and structural equality does not."""
    tvm.ir.assert_structural_equal(scale_program(2.0, "out"), scale_program(2.0, "other"))
    assert key_of(scale_program(2.0, "out")) != key_of(scale_program(2.0, "other"))


def test_the_bounds_of_dims_make_another_key() -> None:
    declared = ((), (Dim("m", 1, 8),), (Dim("m", 2, 8),), (Dim("m", 1, 9),))
    assert len({key_of(scale_program(2.0), *dims) for dims in declared}) == len(declared)


def test_the_vector_unit_makes_another_key() -> None:
    assert key_of(scale_program(2.0), target=HOST) != key_of(
        scale_program(2.0), target=resolve("aarch64")
    )
