"""Parts of one axis are recognised with their exact bounds, and nothing else is."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tvm import relax

from compiler.ir.graph.programs import call_program
from compiler.ir.graph.values import Tensor
from compiler.passes.match.axis_parts import Part, read_part
from tests.compiler.conftest import build_module

op = relax.op


def last_call(module: Any) -> Any:
    return module["main"].body.blocks[0].bindings[-1].value


def read_slice(axes: list[int], begin: list[int], end: list[int], shape: tuple[Any, ...]) -> Any:
    module = build_module(
        lambda b, x: b.emit(op.strided_slice(x, axes, begin, end)), {"x": (shape, "float32")}
    )
    return read_part(module, module["main"].body.blocks[0].bindings[0].value)


@given(extent=st.integers(2, 20), data=st.data())
def test_a_slice_of_one_axis(extent: int, data: st.DataObject) -> None:
    first = data.draw(st.integers(0, extent - 1))
    count = data.draw(st.integers(1, extent - first))
    part = read_slice([1], [first], [first + count], ("n", extent, 3))
    if count == extent:
        assert part is None
    else:
        assert part is not None
        assert part[1] == Part(1, first, count)


@pytest.mark.parametrize(
    ("axes", "begin", "end", "shape"),
    [
        ([0, 1], [1, 1], [3, 3], (4, 4)),
        ([0], [1], [3], ("n", 4)),
        ([0], [-2], [4], (4, 4)),
    ],
    ids=["two axes", "an extent that is not known", "counted from the end"],
)
def test_other_slices(axes: list[int], begin: list[int], end: list[int], shape: Any) -> None:
    assert read_slice(axes, begin, end, shape) is None


@pytest.mark.parametrize("first", [0, 5])
def test_the_importers_copy_of_a_part(first: int) -> None:
    from tvm import te

    def graph(b: relax.BlockBuilder, x: Any) -> Any:
        call, _ = call_program(
            b,
            lambda source: te.compute((2, 3), lambda i, j: source[i, j + first]),
            [Tensor(x, (2, 9), "float32")],
            "part",
            [],
        )
        return b.emit(call)

    module = build_module(graph, {"x": ((2, 9), "float32")})
    part = read_part(module, module["main"].body.blocks[0].bindings[0].value)
    assert part is not None
    assert part[1] == Part(1, first, 3)


def test_a_stride_is_no_part() -> None:
    module = build_module(
        lambda b, x: b.emit(op.strided_slice(x, [1], [0], [8], [2])), {"x": ((2, 8), "float32")}
    )
    assert read_part(module, module["main"].body.blocks[0].bindings[0].value) is None
