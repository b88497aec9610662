"""Reshapes that stand alone: views inside, copies at the end, at extents that divide each other."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax, tirx

from compiler.passes.layout.views import Views, legalize_reshape


def blocks(builder: relax.BlockBuilder, x: Any) -> Any:
    """x [n, c, h, w] in blocks of two by two, whose extents TVM cannot multiply back together."""
    n, c, h, w = x.ty.shape.values
    split = builder.emit(relax.op.reshape(x, [n, c, h // 2, 2, w // 2, 2]))
    moved = builder.emit(relax.op.permute_dims(split, [0, 3, 5, 1, 2, 4]))
    return relax.op.reshape(moved, [n, c * 4, h // 2, w // 2])


SIGNATURE = {"x": (("n", "c", "h", "w"), "float32")}


@pytest.mark.parametrize("shape", [(1, 1, 2, 2), (2, 3, 6, 4), (0, 3, 4, 4), (3, 70, 66, 34)])
def test_numbers(compile_graph: Callable[..., Any], shape: tuple[int, ...]) -> None:
    n, c, h, w = shape
    x = np.arange(n * c * h * w, dtype=np.float32).reshape(shape)
    wanted = (
        x.reshape(n, c, h // 2, 2, w // 2, 2)
        .transpose(0, 3, 5, 1, 2, 4)
        .reshape(n, c * 4, h // 2, w // 2)
    )
    np.testing.assert_array_equal(compile_graph(blocks, SIGNATURE)(x), wanted)


def test_only_what_is_returned_is_copied() -> None:
    n, c, h, w = (tirx.Var(name, "int64") for name in "nchw")
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType([n, c, h, w], "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            result = builder.emit_output(blocks(builder, x))
        builder.emit_func_output(result)
    module = relax.transform.LegalizeOps({"relax.reshape": legalize_reshape})(builder.get())
    assert _calls(module) == ["call_tir", "call_tir", "call_tir"]
    assert _calls(Views().apply(module)) == ["reshape", "call_tir", "call_tir"]


def _calls(module: tvm.IRModule) -> list[str]:
    bindings = module["main"].body.blocks[0].bindings
    return [
        binding.value.op.name.removeprefix("relax.")
        for binding in bindings
        if isinstance(binding.value, tvm.ir.Call)
    ]


@pytest.mark.parametrize("returned", [False, True], ids=["read", "read and returned"])
def test_what_a_later_block_reads_is_a_view_unless_it_is_returned(returned: bool) -> None:
    n, m = (tirx.Var(name, "int64") for name in "nm")
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType([n, 4], "float32"))
    count = relax.Var("count", relax.TensorType((1,), "int64"))
    with builder.function("main", [x, count]):
        with builder.dataflow():
            flat = builder.emit_output(relax.op.reshape(x, [n * 4]))
            extents = builder.emit_output(relax.op.tensor_to_shape(count))
        builder.match_cast(extents, relax.ShapeType([m]))
        with builder.dataflow():
            ends = [
                builder.emit_output(value)
                for value in (relax.op.exp(flat), relax.op.zeros(relax.ShapeExpr([m]), "float32"))
            ]
        builder.emit_func_output(relax.Tuple([*ends, *([flat] if returned else [])]))
    module = relax.transform.LegalizeOps({"relax.reshape": legalize_reshape})(builder.get())
    assert _calls(module)[0] == "call_tir"
    assert _calls(Views().apply(module))[0] == ("call_tir" if returned else "reshape")
