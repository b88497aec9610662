"""Dims are defined before they are used, whatever order fusion left."""

from typing import Any

import pytest
import tvm
from tvm import relax, tirx

from compiler.passes.tvm_fixes.define_first import DefineFirst


def module(order: list[int]) -> tvm.IRModule:
    """x [n] as a shape that defines m, a constant of m elements, and what adds its last axis;
    bindings in the order given.
    """
    n, m = tirx.Var("n", "int64"), tirx.Var("m", "int64")
    x = relax.Var("x", relax.TensorType([2], "int64"))
    y = relax.Var("y", relax.TensorType([n], "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x, y]):
        with builder.dataflow():
            shape = builder.emit(relax.op.tensor_to_shape(x))
            builder.match_cast(shape, relax.ShapeType([n, m]))
            ones = builder.emit(relax.op.ones([m], "float32"))
            result = builder.emit_output(relax.op.add(ones, ones))
        builder.emit_func_output(result)
    before = builder.get()
    func = before["main"]
    bindings = [func.body.blocks[0].bindings[index] for index in order]
    body = relax.SeqExpr([relax.DataflowBlock(bindings)], func.body.body)
    return tvm.IRModule(
        {"main": relax.Function(func.params, body, func.ret_ty, func.is_pure, func.attrs)}
    )


def names(ordered: tvm.IRModule) -> list[Any]:
    return [binding.var.name for binding in ordered["main"].body.blocks[0].bindings]


@pytest.mark.parametrize("order", [[0, 1, 2, 3], [2, 0, 1, 3], [2, 3, 1, 0], [3, 2, 1, 0]])
def test_order(order: list[int]) -> None:
    ordered = DefineFirst().apply(module(order))
    assert names(ordered) == names(module([0, 1, 2, 3]))
    relax.analysis.well_formed(relax.transform.Normalize()(ordered))


def test_an_order_that_holds_is_kept() -> None:
    ordered = module([0, 1, 2, 3])
    assert DefineFirst().apply(ordered).same_as(ordered)
