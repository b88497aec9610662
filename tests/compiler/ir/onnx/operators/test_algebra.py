"""Einstein sums, determinants and running sums at several shapes."""

import numpy as np
import pytest
from onnx import helper

from compiler.errors import ImportFailed
from tests.compiler.ir.onnx.running import (
    assert_close,
    assert_like_onnxruntime,
    build,
    model_of,
    normal,
)

NODE = helper.make_node


@pytest.mark.parametrize(
    ("equation", "shapes"),
    [
        ("ij,jk->ik", ["n,m", "m,k"]),
        ("bhqd,bhkd->bhqk", ["b,h,q,d", "b,h,k,d"]),
        ("bhqk,bhkd->bqhd", ["b,h,q,k", "b,h,k,d"]),
        ("...ij,...jk->...ik", ["b,n,m", "m,k"]),
        ("ii->i", ["n,n"]),
        ("ii", ["n,n"]),
        ("ij->ji", ["n,m"]),
        ("ij->", ["n,m"]),
        ("i,j->ij", ["n", "m"]),
        ("i,i", ["n", "n"]),
        ("ij,jk,kl->il", ["n,m", "m,k", "k,q"]),
        ("bij,bj->bi", ["b,n,m", "b,m"]),
        ("ij,kj", ["n,m", "k,m"]),
        ("abc,cd->abd", ["a,b,c", "c,d"]),
    ],
)
def test_einsum(equation: str, shapes: list[str]) -> None:
    names = [f"x{index}" for index in range(len(shapes))]
    model = model_of(
        [NODE("Einsum", names, ["y"], equation=equation)],
        {n: f"float32[{s}]" for n, s in zip(names, shapes, strict=True)},
    )
    built = build(model)
    for seed, least in ((0, 2), (1, 1), (2, 0)):
        extents = {
            axis: least + index % 3
            for index, axis in enumerate(sorted({a for s in shapes for a in s.split(",")}))
        }
        feed = {
            n: normal(*(extents[a] for a in s.split(",")), seed=seed)
            for n, s in zip(names, shapes, strict=True)
        }
        assert_close(built.run(feed), [np.asarray(np.einsum(equation, *feed.values()))], ["y"])


def test_einsum_that_does_not_fit_is_refused() -> None:
    with pytest.raises(ImportFailed, match="do not name the axes"):
        build(model_of([NODE("Einsum", ["x"], ["y"], equation="ijk->i")], {"x": "float32[n,m]"}))


def test_determinants() -> None:
    built = build(model_of([NODE("Det", ["x"], ["y"])], {"x": "float32[b,n,n]"}))
    singular = np.array([[[0, 0], [1, 2]], [[0, 1], [1, 0]]], np.float32)
    for x in (normal(3, 5, 5), normal(1, 1, 1), singular, normal(2, 0, 0)):
        assert_close(built.run({"x": x}), [np.linalg.det(x)], ["y"])


@pytest.mark.parametrize(("exclusive", "reverse"), [(0, 0), (1, 0), (0, 1), (1, 1)])
def test_cumsum_along_a_run_time_axis(exclusive: int, reverse: int) -> None:
    node = NODE("CumSum", ["x", "axis"], ["y"], exclusive=exclusive, reverse=reverse)
    model = model_of([node], {"x": "float32[a,b,c]", "axis": "int32[]"})
    feeds = [
        {"x": normal(*shape), "axis": np.array(axis, np.int32)}
        for shape in ((2, 3, 5), (1, 1, 1))
        for axis in (0, 1, -1)
    ]
    assert_like_onnxruntime(model, feeds)


def test_cumprod() -> None:
    built = build(
        model_of(
            [NODE("CumProd", ["x", "axis"], ["y"])],
            {"x": "float64[a,b]"},
            {"axis": np.array(1)},
            opset=26,
        )
    )
    x = normal(2, 7, dtype="float64")
    assert_close(built.run({"x": x}), [np.cumprod(x, 1)], ["y"])
