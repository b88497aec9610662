"""Dims that are parameters of their own, in the order of their use."""

import numpy as np
import tvm
from tvm import relax, te, tirx

from compiler.passes import manager
from compiler.passes.framework.base import Phase
from compiler.passes.framework.observers import Observer
from compiler.passes.tvm_fixes.order_dims import OrderDims
from tests.compiler.conftest import HOST, Compiled, build_module

op = relax.op


def program(*order: str) -> tirx.PrimFunc:
    """y[i, j] = x[i, j] over [(h - 1) // 2, (w - 1) // 2], its dims as parameters in the order."""
    dims = {name: tirx.Var(name, "int64") for name in "hw"}
    extents = [(dims[name] - 1) // 2 for name in "hw"]
    x = te.placeholder(extents, name="x")
    y = te.compute(extents, lambda i, j: x[i, j], name="y")
    return te.create_prim_func([x, *(dims[name] for name in order), y], "int64")


def calling(func: tirx.PrimFunc, *order: str) -> tvm.IRModule:
    """main(x, shape) = program(x, dims in the order)."""
    dims = {name: tirx.Var(name, "int64") for name in "hw"}
    shape = [(dims[name] - 1) // 2 for name in "hw"]
    x = relax.Var("x", relax.TensorType(shape, "float32"))
    extents = relax.Var("given", relax.ShapeType([dims["h"], dims["w"]]))
    builder = relax.BlockBuilder()
    with builder.function("main", [extents, x]):
        with builder.dataflow():
            gvar = builder.add_func(func.without_attr("global_symbol"), "copied")
            call = relax.call_tir(
                gvar, [x, *(dims[name] for name in order)], relax.TensorType(shape, "float32")
            )
            result = builder.emit_output(call)
        builder.emit_func_output(result)
    return builder.get()


def test_both_orders_become_one() -> None:
    turned = OrderDims().apply(calling(program("w", "h"), "w", "h"))
    tvm.ir.assert_structural_equal(turned, calling(program("h", "w"), "h", "w"))


def test_a_program_in_order_stays() -> None:
    module = calling(program("h", "w"), "h", "w")
    assert OrderDims().apply(module).same_as(module)


def test_a_program_that_is_handed_on_as_a_value_stays() -> None:
    before = calling(program("w", "h"), "w", "h")
    gvar = before.get_global_var("copied")
    builder = relax.BlockBuilder(before)
    with builder.function("other", []):
        called = relax.call_pure_packed(
            "takes_a_function", gvar, ty_args=relax.TensorType([1], "float32")
        )
        builder.emit_func_output(builder.emit(called))
    module = builder.get()
    assert OrderDims().apply(module).same_as(module)


def test_a_program_over_dims_of_its_own_computes_what_it_did() -> None:
    def graph(builder, x):
        halved = builder.emit(op.nn.avg_pool2d(x, (2, 2), (2, 2), ceil_mode=True))
        return op.add(halved, relax.const(1.0))

    module = build_module(graph, {"x": (("n", 3, "h", "w"), "float32")})
    steps = []

    class Watch(Observer):
        def after(self, step, module):
            steps.append((step.name, step.phase))

    manager.to_kernels(module, HOST, {}, (Watch(),))
    assert ("order_dims", Phase.TENSOR_PROGRAMS) in steps
    x = np.random.default_rng(0).standard_normal((2, 3, 4, 6)).astype("float32")
    want = x.reshape(2, 3, 2, 2, 3, 2).mean((3, 5)) + 1
    np.testing.assert_allclose(Compiled(module)(x), want, rtol=1e-6, atol=1e-6)
