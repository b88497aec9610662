"""Flat offsets, strides, and axes that are walked as one."""

import numpy as np
import pytest
import tvm
from hypothesis import given
from hypothesis import strategies as st
from tvm import tirx

from compiler.tir.exprs import as_int, const, load, substitute
from compiler.tir.flat import Flattener, merge, mergeable, stride
from compiler.tir.stages import Axis


def axis(name: str, extent: int, *, reduce: bool = False) -> Axis:
    return Axis(tirx.Var(name, "int64"), const(extent), reduce)


@given(shape=st.lists(st.integers(1, 5), min_size=1, max_size=4), data=st.data())
def test_an_offset_is_row_major(shape: list[int], data: st.DataObject) -> None:
    index = [data.draw(st.integers(0, extent - 1)) for extent in shape]
    buffer = tirx.decl_buffer([const(extent) for extent in shape], "float32")
    variables = [tirx.Var(f"i{axis}", "int64") for axis in range(len(shape))]
    analyzer = tvm.sym.Analyzer()
    offset = Flattener().offset(buffer, list(variables), analyzer)
    position = substitute(offset, dict(zip(variables, map(const, index), strict=True)))
    assert as_int(analyzer.simplify(position)) == np.ravel_multi_index(index, shape)


def test_strides() -> None:
    i, j = tirx.Var("i", "int64"), tirx.Var("j", "int64")
    assert as_int(stride(i * 12 + j, i)) == 12
    assert as_int(stride(i * 12 + j, tirx.Var("k", "int64"))) in (0, None)
    assert stride(tirx.floordiv(i, const(2)), i) is None


@pytest.mark.parametrize(
    ("scale", "fine"),
    [(4, True), (5, False), (1, False)],
    ids=["rows", "padded rows", "overlapping"],
)
def test_axes_merge_where_rows_lie_end_to_end(scale: int, fine: bool) -> None:
    outer, inner = axis("i", 3), axis("j", 4)
    buffer = tirx.decl_buffer([const(60)], "float32")
    read = load(buffer, [outer.var * scale + inner.var])
    assert mergeable(outer, inner, [read]) is fine
    axes, (merged,) = merge((outer, inner), [read])
    assert [as_int(one.extent) for one in axes] == ([12] if fine else [3, 4])
    if fine:
        assert merged.indices[0].same_as(axes[0].var)


def test_axes_of_another_kind_or_used_alone_stay_apart() -> None:
    outer, inner = axis("i", 3), axis("j", 4, reduce=True)
    buffer = tirx.decl_buffer([const(12)], "float32")
    read = load(buffer, [outer.var * 4 + inner.var])
    assert len(merge((outer, inner), [read])[0]) == 2
    plain = axis("j", 4)
    read = load(buffer, [outer.var * 4 + plain.var])
    used = tirx.Cast("float32", plain.var) + read
    assert not mergeable(outer, plain, [used])
