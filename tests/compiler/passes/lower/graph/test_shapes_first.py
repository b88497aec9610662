"""Values that are read as shapes come first, and everything else keeps its order."""

from collections.abc import Sequence

import pytest
import tvm
from tvm import relax, tirx

from compiler.passes.lower.graph.shapes_first import ShapesFirst

op = relax.op


def module(order: Sequence[str]) -> tvm.IRModule:
    """Bindings in the order given: `twice` and `thrice` of x; `extent`, computed of `given`, as the
    shape `read`, which `matched` says is [m]; `ones` of m elements, and a `sum` of all.
    """
    n, m = tirx.Var("n", "int64"), tirx.Var("m", "int64")
    x = relax.Var("x", relax.TensorType([n], "float32"))
    source = relax.Var("given", relax.TensorType([1], "int64"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x, source]):
        with builder.dataflow():
            values = {
                "twice": builder.emit(op.add(x, x), "twice"),
                "extent": builder.emit(op.add(source, source), "extent"),
            }
            values["read"] = builder.emit(op.tensor_to_shape(values["extent"]), "read")
            values["matched"] = builder.match_cast(values["read"], relax.ShapeType([m]), "matched")
            values["thrice"] = builder.emit(op.add(values["twice"], x), "thrice")
            values["ones"] = builder.emit(op.ones([m], "float32"), "ones")
            total = op.add(op.sum(values["thrice"]), op.sum(values["ones"]))
            values["sum"] = builder.emit_output(total, "sum")
        builder.emit_func_output(values["sum"])
    func = builder.get()["main"]
    (block,) = func.body.blocks
    by_name = {binding.var.name: binding for binding in block.bindings}
    others = [binding for binding in block.bindings if binding.var.name not in order]
    body = relax.SeqExpr(
        [relax.DataflowBlock([*(by_name[name] for name in order), *others])], func.body.body
    )
    return tvm.IRModule({"main": relax.Function(func.params, body, func.ret_ty)})


def names(ordered: tvm.IRModule) -> list[str]:
    (block,) = ordered["main"].body.blocks
    wanted = ("twice", "thrice", "extent", "read", "matched", "ones")
    return [binding.var.name for binding in block.bindings if binding.var.name in wanted]


@pytest.mark.parametrize(
    "order",
    [
        ["twice", "extent", "read", "matched", "thrice", "ones"],
        ["twice", "thrice", "extent", "read", "matched", "ones"],
        ["extent", "twice", "read", "thrice", "matched", "ones"],
    ],
)
def test_a_shape_comes_with_all_that_it_needs(order: list[str]) -> None:
    ordered = ShapesFirst().apply(module(order))
    assert names(ordered) == ["extent", "read", "matched", "twice", "thrice", "ones"]
    relax.analysis.well_formed(relax.transform.Normalize()(ordered))


def test_an_order_that_holds_is_kept() -> None:
    ordered = module(["extent", "read", "matched", "twice", "thrice", "ones"])
    assert ShapesFirst().apply(ordered).same_as(ordered)
