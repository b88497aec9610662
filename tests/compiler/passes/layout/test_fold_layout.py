"""Constants that are moved at compile time."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax

from compiler.passes.layout.fold_layout import FoldLayout
from tests.compiler.conftest import build_module

op = relax.op
C = np.arange(6, dtype="float32").reshape(2, 3)


def add(constant: Callable[[], Any]) -> tvm.IRModule:
    """x + constant()."""
    return build_module(lambda builder, x: op.add(x, constant()), {"x": (("n", 3, 2), "float32")})


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (lambda: op.permute_dims(relax.const(C)), C.T),
        (lambda: op.permute_dims(relax.const(C.reshape(1, 2, 3)), [0, 2, 1]), C.T.reshape(1, 3, 2)),
        (lambda: op.reshape(relax.const(C), [3, 2]), C.reshape(3, 2)),
        (lambda: op.expand_dims(relax.const(C.reshape(3, 2)), 0), C.reshape(1, 3, 2)),
        (lambda: op.squeeze(relax.const(C.reshape(1, 3, 2)), 0), C.reshape(3, 2)),
        (lambda: op.reshape(op.permute_dims(relax.const(C)), [1, 3, 2]), C.T.reshape(1, 3, 2)),
    ],
    ids=["permute_dims", "axes", "reshape", "expand_dims", "squeeze", "chain"],
)
def test_constants(before: Callable[[], Any], after: np.ndarray[Any, Any]) -> None:
    tidy = tvm.transform.Sequential(
        [relax.transform.CanonicalizeBindings(), relax.transform.DeadCodeElimination()]
    )
    folded = tidy(FoldLayout().apply(add(before)))
    tvm.ir.assert_structural_equal(folded, add(lambda: relax.const(np.ascontiguousarray(after))))


def test_what_is_no_constant_stays() -> None:
    module = build_module(lambda builder, x: op.permute_dims(x), {"x": (("n", 3), "float32")})
    tvm.ir.assert_structural_equal(FoldLayout().apply(module), module)


@pytest.mark.parametrize("dtype", ["int64", "float64"])
def test_numbers_of_64_bits_stay_what_they_are(dtype: str) -> None:
    values = np.array([[1, -1]], dtype) * (2**40 + 1)
    builder = relax.BlockBuilder()
    with builder.function("main", []):
        constant = relax.const(tvm.runtime.tensor(values))
        builder.emit_func_output(builder.emit(op.permute_dims(constant)))
    moved = FoldLayout().apply(builder.get())
    (binding,) = moved["main"].body.blocks[0].bindings
    assert str(binding.value.ty.dtype) == dtype
    np.testing.assert_array_equal(binding.value.value.numpy(), values.T)
