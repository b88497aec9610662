"""Gives negations a form that leaves comparisons with NaN as they are."""

from typing import Any

from tvm import relax, te, tirx


def legalize_not(builder: relax.BlockBuilder, call: Any) -> Any:
    """The tensor program of a `relax.logical_not`, whose operand is bool.

    TVM simplifies `not (a < b)` to `b <= a` and `not (a == b)` to an ordered `a != b`, which are
    false where an operand is NaN. A choice between constants it leaves alone, and LLVM turns it
    into the unordered comparison.
    """
    false, true = tirx.const(False, "bool"), tirx.const(True, "bool")

    def negate(x: te.Tensor) -> te.Tensor:
        return te.compute(x.shape, lambda *i: tirx.Select(x(*i), false, true), name="logical_not")

    return builder.call_te(negate, call.args[0], primfunc_name_hint="logical_not")
