"""The gate lets lowered modules through and names what is not."""

import pytest
from tvm import relax, tirx

from compiler.errors import PassError
from compiler.passes.check_lowered import CheckLowered


def _module(shape, emit):
    bb = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(shape, "float32"))
    with bb.function("main", [x]):
        with bb.dataflow():
            out = bb.emit_output(emit(bb, x))
        bb.emit_func_output(out)
    return bb.finalize()


def test_an_operator_that_survived_is_named():
    n = tirx.Var("n", "int64")
    with pytest.raises(PassError, match=r"relax\.exp") as caught:
        CheckLowered().apply(_module([n, 4], lambda bb, x: bb.emit(relax.op.exp(x))))
    assert caught.value.failure.code == "pass.not_lowered"


def test_a_lowered_module_passes():
    n = tirx.Var("n", "int64")
    module = relax.transform.LegalizeOps()(_module([n, 4], lambda bb, x: bb.emit(relax.op.exp(x))))
    CheckLowered().apply(module)


def test_a_lost_shape_is_named():
    bare = relax.Var("x", relax.TensorType(None, "float32", ndim=2))
    bb = relax.BlockBuilder()
    with bb.function("main", [bare]):
        with bb.dataflow():
            out = bb.emit_output(
                relax.op.call_pure_packed(
                    "f", bare, ty_args=relax.TensorType(None, "float32", ndim=2)
                )
            )
        bb.emit_func_output(out)
    with pytest.raises(PassError) as caught:
        CheckLowered().apply(bb.finalize())
    assert caught.value.failure.code == "pass.unknown_shape"
