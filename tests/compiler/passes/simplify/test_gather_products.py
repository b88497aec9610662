"""Products of gathered rows are gathered products, where more rows are gathered than there are."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper
from tvm import relax

from compiler.ir import import_model
from compiler.passes.simplify.gather_products import GatherProducts
from compiler.tir.exprs import op_name
from relaxd.contract.request import CompileRequest
from tests.compiler.ir.onnx.running import Arrays, model_of
from tests.compiler.passes import lowered
from tests.support.geometries import GEOMETRIES, geometry

NODE, EDGE, OUT = 24, 5, 19
DIMS = {"n": (1, 40), "e": (0, 160)}
INPUTS = {
    "x": f"float32[n,{NODE}]",
    "other": f"float32[40,{NODE}]",
    "sources": "int64[e]",
    "targets": "int64[e]",
    "pairs": "int32[e,2]",
    "features": f"float32[e,{EDGE}]",
}
RANDOM = np.random.default_rng(7)

ENDS = [("x", "sources"), "features", ("x", "targets")]
"""Both ends of an edge, and the edge."""

LEFTS: dict[str, list[Any]] = {
    "ends": ENDS,
    "one end": [("x", "sources")],
    "two tables": [("x", "sources"), ("other", "targets")],
    "pairs": [("x", "pairs")],
}


def model(parts: list[Any], out: int = OUT, axis: int = 0, along: int = -1) -> onnx.ModelProto:
    """concat(parts, along) @ weight, and a bias; a part is an input, or a table and its index."""
    nodes, names, depth = [], [], 0
    for number, part in enumerate(parts):
        if isinstance(part, tuple):
            nodes.append(helper.make_node("Gather", list(part), [f"part{number}"], axis=axis))
        names.append(part if isinstance(part, str) else f"part{number}")
        depth += EDGE if part == "features" else NODE
    used = {name for part in parts for name in ([part] if isinstance(part, str) else part)}
    weight = np.random.default_rng(3).standard_normal((depth, out)).astype("float32")
    nodes += [
        helper.make_node("Concat", names, ["left"], axis=along),
        helper.make_node("MatMul", ["left", "weight"], ["product"]),
        helper.make_node("Add", ["product", "bias"], ["biased"]),
        helper.make_node("Relu", ["biased"], ["y"]),
    ]
    constants = {"weight": weight, "bias": np.linspace(-1, 1, out, dtype="float32")}
    inputs = {name: spec for name, spec in INPUTS.items() if name in used}
    return model_of(nodes, inputs, constants, outputs=["y"])


def rows_multiplied(gnn: onnx.ModelProto, dims: Mapping[str, Any] = DIMS) -> list[str]:
    """The first extent of the left side of every matmul that the pass leaves."""
    names = {axis for info in gnn.graph.input for axis in axes_of(info)}
    declared = {name: dims[name] for name in names}
    imported = import_model(gnn, CompileRequest.of(dims=declared))
    main = GatherProducts(imported.ranges).apply(imported.module)["main"]
    calls = [one.value for block in main.body.blocks for one in block.bindings]
    return [str(one.args[0].ty.shape.values[0]) for one in calls if op_name(one) == "relax.matmul"]


def axes_of(info: onnx.ValueInfoProto) -> list[str]:
    return [axis.dim_param for axis in info.type.tensor_type.shape.dim if axis.dim_param]


@pytest.mark.parametrize(
    ("left", "rows"),
    [
        ("ends", ["n", "e"]),
        ("one end", ["n"]),
        ("two tables", ["n", "T.int64(40)"]),
        ("pairs", ["n"]),
    ],
)
def test_rows_are_multiplied_before(left: str, rows: list[str]) -> None:
    assert rows_multiplied(model(LEFTS[left])) == rows


def test_the_ends_of_an_edge_are_one_matmul_and_one_gather() -> None:
    imported = import_model(model(ENDS), CompileRequest.of(dims=DIMS))
    main = GatherProducts(imported.ranges).apply(imported.module)["main"]
    calls = [one.value for block in main.body.blocks for one in block.bindings]
    matmuls = [one for one in calls if op_name(one) == "relax.matmul"]
    assert [int(one.ty.shape.values[1]) for one in matmuls] == [2 * OUT, OUT]
    programs = [one for one in calls if isinstance(one, relax.Call) and "call_tir" in op_name(one)]
    assert sum("gather_products" in str(one.args[0]) for one in programs) == 1


@pytest.mark.parametrize(
    ("gnn", "dims"),
    [
        (model(ENDS), {"n": (1, 40), "e": (0, 79)}),
        (model(ENDS), {"n": (1, None), "e": (0, 160)}),
        (model(ENDS), {"n": (1, 40), "e": (0, None)}),
        (model(ENDS, out=NODE + 1), DIMS),
        (model(["features"]), DIMS),
    ],
    ids=["few edges", "any nodes", "any edges", "wide weight", "nothing gathered"],
)
def test_others_stay(gnn: onnx.ModelProto, dims: Mapping[str, Any]) -> None:
    assert rows_multiplied(gnn, dims) == ["e"]


def test_columns_and_concatenated_rows_stay() -> None:
    rows = model([("x", "sources"), ("x", "targets")], along=0)
    rows.graph.initializer[0].CopyFrom(
        onnx.numpy_helper.from_array(np.ones((NODE, OUT), "float32"), "weight")
    )
    assert rows_multiplied(rows) == ["e * T.int64(2)"]
    columns = model_of(
        [
            helper.make_node("Gather", ["square", "sources"], ["left"], axis=1),
            helper.make_node("MatMul", ["left", "weight"], ["y"]),
        ],
        {"square": "float32[n,64]", "sources": "int64[64]"},
        {"weight": np.ones((64, OUT), "float32")},
    )
    assert rows_multiplied(columns) == ["n"]


def feed(nodes: int, edges: int) -> Arrays:
    """Indices that count from the end among others."""
    return {
        "x": RANDOM.standard_normal((nodes, NODE)).astype("float32"),
        "other": RANDOM.standard_normal((40, NODE)).astype("float32"),
        "sources": RANDOM.integers(-nodes, nodes, edges),
        "targets": RANDOM.integers(0, nodes, edges),
        "pairs": RANDOM.integers(-nodes, nodes, (edges, 2)).astype("int32"),
        "features": RANDOM.standard_normal((edges, EDGE)).astype("float32"),
    }


@pytest.mark.parametrize("out", [1, OUT])
@pytest.mark.parametrize("left", LEFTS)
@pytest.mark.parametrize("unit", [*GEOMETRIES, "native"])
def test_like_onnxruntime(unit: str, left: str, out: int) -> None:
    """One node and no edge, fewer edges than nodes, and primes and powers of two around tiles."""
    gnn = model(LEFTS[left], out)
    inputs = [info.name for info in gnn.graph.input]
    points = [(1, 1), (16, 0), (16, 2), (7, 33), (31, 127), (32, 128), (33, 129), (40, 160)]
    feeds = [{name: all_[name] for name in inputs} for all_ in (feed(*point) for point in points)]
    lowered.assert_like_onnxruntime(gnn, feeds, DIMS, geometry(unit))
