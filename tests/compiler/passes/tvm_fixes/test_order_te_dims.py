"""Tensor programs from TE whose dims come in the order of their use."""

import pytest
from tvm import relax, te, tirx

from compiler.passes.tvm_fixes.order_te_dims import OrderedSet, dims_in_order


def test_an_ordered_set_does_what_a_set_does() -> None:
    ordered = OrderedSet()
    ordered.add("b")
    ordered.update(["c", "a", "b"])
    other = OrderedSet()
    other.add("c")
    assert list(ordered) == ["b", "c", "a"]
    assert list(ordered - other) == ["b", "a"]


@pytest.mark.parametrize("turn", range(4))
def test_tvm_collects_dims_in_the_order_of_their_use(turn: int) -> None:
    names = [f"d{index}" for index in range(8)]
    padding = [tirx.Var("pad", "int64") for _ in range(turn)]  # other addresses in every turn
    dims = [tirx.Var(name, "int64") for name in names]
    x = relax.Var("x", relax.TensorType([dim + 1 for dim in dims], "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]), dims_in_order():
        with builder.dataflow():
            result = builder.emit_output(
                builder.call_te(lambda x: te.compute(x.shape, lambda *indices: x(*indices)), x)
            )
        builder.emit_func_output(result)
    (func,) = (one for one in builder.get().functions.values() if isinstance(one, tirx.PrimFunc))
    collected = [param.name for param in func.params if not hasattr(param.ty, "shape")]
    assert collected == names
    assert len(padding) == turn
