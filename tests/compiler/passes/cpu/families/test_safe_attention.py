"""Attention whose weights become zeros where they are NaN, as PyTorch exports
scaled_dot_product_attention with a mask.
"""

from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper
from tvm import relax

from compiler.ir import import_model
from compiler.passes.cpu.families.attention import program
from compiler.passes.fusion import fuse_attention
from compiler.passes.fusion.fuse_attention import FuseAttention
from compiler.passes.manager import to_kernels
from relaxd.contract.request import CompileRequest
from tests.compiler.conftest import HOST, build_module
from tests.compiler.ir.onnx.running import model_of, session_of
from tests.compiler.passes.lowered import assert_like_onnxruntime, build
from tests.compiler.passes.split_heads import split_heads
from tests.support.geometries import GEOMETRIES, geometry

op = relax.op
HEADS = 2
EXTENTS = (
    *((1, 1, 1), (1, 2, 2), (2, 3, 3), (1, 13, 13), (1, 37, 37), (2, 64, 31), (1, 131, 48)),
    *((1, 2, 600), (3, 1, 257), (2, 9, 530), (1, 40, 33)),
)
"""(batch, queries, keys), around the kernel's groups of rows, panels, parts and tasks."""


def export(depth: int, width: int, zero: float = 0.0, **changed: str) -> onnx.ModelProto:
    """Heads split from one axis, the root of a scale on both sides, a mask, heads joined again;
    changed: other inputs of nodes, by name.
    """
    nodes, constants = split_heads(HEADS, depth, width)
    constants |= {"root": np.float32(0.5), "zero": np.float32(zero)}
    nodes += [
        helper.make_node("Mul", ["q2", "root"], ["q3"]),
        helper.make_node("Mul", ["k2", "root"], ["k3"]),
        helper.make_node("MatMul", ["q3", "k3"], ["s"]),
        helper.make_node("Add", ["s", "mask"], ["masked"]),
        helper.make_node("Softmax", ["masked"], ["p"], axis=-1),
        helper.make_node("IsNaN", [changed.get("isnan", "p")], ["nan"]),
        helper.make_node("Where", ["nan", "zero", changed.get("where", "p")], ["w"]),
        helper.make_node("MatMul", ["w", "v2"], ["o"]),
        helper.make_node("Transpose", ["o"], ["t"], perm=[0, 2, 1, 3]),
        helper.make_node("Reshape", ["t", "joined"], ["y"]),
    ]
    inputs = {
        "q": f"float32[b,m,{HEADS * depth}]",
        "k": f"float32[b,n,{HEADS * depth}]",
        "v": f"float32[b,n,{HEADS * width}]",
        "mask": "float32[b,1,m,n]",
    }
    return model_of(nodes, inputs, constants, outputs=["y", *changed.get("outputs", "").split()])


def feed_of(
    draw: np.random.Generator, depth: int, width: int, extents: tuple[int, int, int]
) -> dict[str, np.ndarray]:
    """Rows that are hidden whole, in part or not at all, with +inf or NaN, at the ends, too."""
    b, m, n = extents
    mask = np.where(draw.random((b, 1, m, n)) < 0.4, -np.inf, 0).astype("float32")
    for position, kind in zip(np.ndindex(b, m), draw.integers(0, 7, b * m), strict=True):
        row = mask[position[0], 0, position[1]]
        column = int(draw.choice([0, n - 1, int(draw.integers(n))]))
        if kind < 2:
            row[:] = (-np.inf, 0)[kind]
        elif kind < 6:
            row[column] = (np.inf, np.nan, 0, np.inf)[kind - 2]
            row[:column] = -np.inf if kind == 5 else row[:column]
    return {
        "q": draw.standard_normal((b, m, HEADS * depth), "float32"),
        "k": draw.standard_normal((b, n, HEADS * depth), "float32"),
        "v": draw.standard_normal((b, n, HEADS * width), "float32"),
        "mask": mask,
    }


def feeds_of(draw: np.random.Generator, depth: int, width: int) -> list[dict[str, np.ndarray]]:
    """Those of all extents, with values that are numbers and with some that are none."""
    outputs = []
    for extents in EXTENTS:
        feed = feed_of(draw, depth, width, extents)
        values = feed["v"].copy()
        for strange in (np.nan, np.inf, -np.inf):
            values[:, draw.integers(extents[2]), draw.integers(HEADS * width)] = strange
        outputs += [feed, {**feed, "v": values}]
    return outputs


def kernels_of(model: onnx.ModelProto) -> set[str]:
    imported = import_model(model, CompileRequest.of(dims=dict.fromkeys("bmn", (1, 64))))
    scheduled = to_kernels(imported.module, HOST, imported.ranges)
    return {gvar.name_hint for gvar in scheduled.get_global_vars()}


@pytest.mark.parametrize("name", GEOMETRIES)
@pytest.mark.parametrize(("depth", "width"), [(16, 16), (8, 40), (14, 9)])
def test_like_onnxruntime(depth: int, width: int, name: str, draw: np.random.Generator) -> None:
    """Many queries and few of them by parts of the keys."""
    feeds = feeds_of(draw, depth, width)
    assert_like_onnxruntime(export(depth, width), feeds, target=geometry(name))


@pytest.mark.parametrize("name", GEOMETRIES)
def test_in_one_order(
    monkeypatch: pytest.MonkeyPatch, draw: np.random.Generator, name: str
) -> None:
    """Libraries with KV caches compute any number of queries in parts."""

    def steady(*arguments: Any) -> program.Attention:
        return replace(program.Attention(*arguments), steady=True)

    monkeypatch.setattr(fuse_attention, "Attention", steady)
    feeds = feeds_of(draw, 16, 16)
    assert_like_onnxruntime(export(16, 16), feeds, target=geometry(name))


def test_queries_and_keys_that_are_no_numbers(draw: np.random.Generator) -> None:
    """A query makes one row NaN, a key all of a head."""
    model = export(16, 16)
    built, session = build(model), session_of(model)
    for extents in EXTENTS:
        for name in "qk":
            for strange in (np.nan, np.inf):
                feed = feed_of(draw, 16, 16, extents)
                feed[name][0, -1, 3] = strange
                (got,), (want,) = built.run(feed), session.run(None, feed)
                np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
                if name == "q":
                    assert not got[0, -1, :16].any()


def test_every_weight_of_such_a_row_is_zero() -> None:
    """Element by element: the weights of a row are all NaN or none is, and a value that is NaN or
    infinite comes through weights of 0.
    """
    model, built = export(16, 16), build(export(16, 16))
    session = session_of(export(16, 16, outputs="p"))
    draw = np.random.default_rng(5)
    for extents in EXTENTS:
        feed = feed_of(draw, 16, 16, extents)
        feed["v"][:, -1, 4] = np.nan
        _, weights = session.run(None, feed)
        undefined = np.isnan(weights)
        assert (undefined.any(-1) == undefined.all(-1)).all()
        assert (undefined[:, 0].all(-1) >= np.isneginf(feed["mask"][:, 0]).all(-1)).all()
        (got,) = built.run(feed)
        assert np.isnan(got[..., 4]).all()
        assert not np.delete(got, 4, axis=-1)[..., :15][undefined[:, 0].all(-1)].any()
    assert kernels_of(model).isdisjoint({"softmax", "matmul"})


def test_forms_that_are_fused_and_not() -> None:
    assert "attention" in kernels_of(export(16, 16))
    # Others than zeros, another tensor's NaN, another choice, and weights that are read as well.
    for model in (
        export(16, 16, zero=1.0),
        export(16, 16, zero=-0.0),
        export(16, 16, isnan="masked"),
        export(16, 16, where="masked"),
        export(16, 16, outputs="p"),
        export(16, 16, outputs="nan"),
    ):
        assert "attention" not in kernels_of(model)


@pytest.mark.parametrize("turned", [False, True])
def test_the_operator_is_read_as_its_program_is(turned: bool) -> None:
    def graph(builder: Any, q: Any, k: Any, v: Any) -> Any:
        scores = builder.emit(op.matmul(q, builder.emit(op.permute_dims(k, [0, 2, 1]))))
        weights = builder.emit(op.nn.softmax(scores))
        sides = (weights, relax.const(0.0)) if turned else (relax.const(0.0), weights)
        chosen = builder.emit(op.where(builder.emit(op.isnan(weights)), *sides))
        return builder.emit(op.matmul(chosen, v))

    module = build_module(graph, dict.fromkeys("qkv", (("b", "n", 16), "float32")))
    fused = FuseAttention().apply(module)
    assert ("attention" in {gvar.name_hint for gvar in fused.functions}) is not turned
