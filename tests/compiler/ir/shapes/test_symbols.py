"""Axis expressions to TVM's expressions and back."""

from typing import Any

import tvm
from hypothesis import assume, given
from hypothesis import strategies as st
from tvm import tirx

from compiler.ir.shapes import extents as ex
from compiler.ir.shapes.symbols import axis_of, extent_of
from compiler.tir.exprs import substitute
from relaxd.contract.dims.axes import Axis
from relaxd.errors import DeclarationError

VALUES = {"n": 7, "seq": 12}


def axes() -> st.SearchStrategy[str]:
    leaves = st.sampled_from(["n", "seq", "1", "3", "8"])

    def grown(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
        signs = st.tuples(inner, st.sampled_from("+-*"), inner)
        parts = st.tuples(inner, st.sampled_from(["//", "%"]), st.sampled_from("248"))
        calls = st.tuples(st.sampled_from(["min", "max"]), inner, inner)
        infix = (signs | parts).map(lambda part: "({} {} {})".format(*part))
        return infix | calls.map(lambda part: "{}({}, {})".format(*part))

    return st.recursive(leaves, grown, max_leaves=6)


def value_of(extent: Any, variables: dict[str, tirx.Var]) -> int:
    bound = {var: tirx.IntImm("int64", VALUES[name]) for name, var in variables.items()}
    return int(tvm.sym.Analyzer().simplify(substitute(ex.prim(extent), bound)))


@given(text=axes())
def test_an_axis_means_the_same_as_an_expression(text: str) -> None:
    variables = {name: tirx.Var(name, "int64") for name in VALUES}
    try:
        axis = Axis(text)
    except DeclarationError:  # a constant that is no extent, such as 1 - 3
        assume(False)
    extent = extent_of(axis, variables.__getitem__)
    assert value_of(extent, variables) == axis.evaluate(VALUES)
    back = axis_of(extent)
    assert back is not None
    assert back.evaluate(VALUES) == axis.evaluate(VALUES)


def test_what_the_contract_cannot_spell_has_no_axis() -> None:
    n = tirx.Var("n", "int64")
    assert axis_of(tirx.Select(n > 3, n, n + 1)) is None
    assert axis_of(ex.add(tirx.truncdiv(n, tirx.IntImm("int64", 2)), 1)) is None
    assert axis_of(5) == Axis("5")
