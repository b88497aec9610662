"""Statements of functions that compute extents, in the order of their slots."""

import tvm
from tvm import relax, tirx

from compiler.passes.tvm_fixes.order_slots import OrderSlots

HEAP = tirx.decl_buffer([8], "int64", name="H")


def const(value: int) -> tirx.IntImm:
    return tirx.IntImm("int64", value)


def slot(index: int) -> tirx.BufferLoad:
    return tirx.BufferLoad(HEAP, [const(index)])


def module(*statements: tuple[int, tvm.ir.Expr], host: bool = True) -> tvm.IRModule:
    body = tirx.SeqStmt(
        [tirx.BufferStore(HEAP, value, [const(index)]) for index, value in statements]
    )
    func = tirx.PrimFunc([HEAP], body)
    return tvm.IRModule({"f": func.with_attr("tirx.is_host_func", True) if host else func})


FOUR = (4, slot(0) + const(1))
TWO = (2, slot(1) * const(2))


def test_independent_statements_are_sorted() -> None:
    tvm.ir.assert_structural_equal(OrderSlots().apply(module(FOUR, TWO)), module(TWO, FOUR))


def test_a_statement_that_reads_another_ones_slot_stays() -> None:
    before = module(FOUR, (2, slot(4) + const(1)))
    tvm.ir.assert_structural_equal(OrderSlots().apply(before), before)


def test_a_slot_that_is_written_twice_keeps_its_order() -> None:
    before = module(FOUR, (4, slot(0)), TWO)
    tvm.ir.assert_structural_equal(OrderSlots().apply(before), before)


def test_other_functions_stay() -> None:
    before = module(FOUR, TWO, host=False)
    tvm.ir.assert_structural_equal(OrderSlots().apply(before), before)


def test_equal_functions_become_one_whatever_the_order_of_their_statements() -> None:
    def lowered(*orders: tuple[tuple[int, tvm.ir.Expr], ...]) -> tvm.IRModule:
        builder = relax.BlockBuilder()
        names = [
            builder.add_func(next(iter(module(*order).functions.values())), "shape_func")
            for order in orders
        ]
        heap = relax.Var("heap", relax.TensorType([8], "int64"))
        with builder.function("main", [heap]):
            for name in names:
                builder.emit(relax.Call(name, [heap], ty_args=[relax.TupleType([])]))
            builder.emit_func_output(heap)
        return OrderSlots().apply(builder.get())

    other = (6, slot(0))
    shared = lowered((TWO, FOUR), (TWO, FOUR), (other, TWO))
    names = {name.name_hint for name in shared.functions}
    assert names == {"main", "shape_func", "shape_func1"}
    tvm.ir.assert_structural_equal(lowered((TWO, FOUR), (FOUR, TWO), (other, TWO)), shared)
