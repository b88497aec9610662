"""Constants that are computed with at compile time."""

import numpy as np
import tvm
from tvm import relax

from compiler.passes.simplify.fold_constants import FoldConstants
from tests.compiler.conftest import build_module

op = relax.op
C = np.arange(6, dtype="float32").reshape(2, 3)
INPUTS = {"x": (("n", 2, 3), "float32"), "s": (("n", 3), "float32")}


def test_what_reads_constants_alone_is_computed() -> None:
    def before(builder: relax.BlockBuilder, x: relax.Var, s: relax.Var) -> relax.Expr:
        root = builder.emit(op.sqrt(relax.const(C)))
        return op.add(x, builder.emit(op.add(root, relax.const(C))))

    folded = FoldConstants().apply(build_module(before, INPUTS))
    wanted = build_module(lambda b, x, s: op.add(x, relax.const(np.sqrt(C) + C)), INPUTS)
    tidy = relax.transform.DeadCodeElimination()
    tvm.ir.assert_structural_equal(tidy(folded), wanted)


def test_a_module_without_such_calls_is_given_back() -> None:
    def before(builder: relax.BlockBuilder, x: relax.Var, s: relax.Var) -> relax.Expr:
        return op.add(builder.emit(op.multiply(x, relax.const(C))), builder.emit(op.sum(x)))

    module = build_module(before, INPUTS)
    assert FoldConstants().apply(module).same_as(module)


def test_the_module_given_back_is_what_tvm_makes_of_it() -> None:
    """A sequence of operators over fixed and open extents, none of which reads constants alone."""

    def before(builder: relax.BlockBuilder, x: relax.Var, s: relax.Var) -> relax.Expr:
        rows = builder.emit(op.reshape(x, (-1, 3)))
        return op.concat([rows, builder.emit(op.nn.softmax(s))], axis=0)

    module = build_module(before, INPUTS)
    tvm.ir.assert_structural_equal(
        FoldConstants().apply(module), relax.transform.FoldConstant()(module)
    )
