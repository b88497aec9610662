"""Tensors without elements, by their declared extents and by those of a run, through every pass."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import pytest
import tvm
from onnx import helper
from tvm import relax

from compiler.passes.simplify.drop_empty import DropEmpty
from tests.compiler.conftest import build_module
from tests.compiler.ir.onnx.running import Arrays, assert_close, model_of, session_of
from tests.compiler.passes.lowered import build

node = helper.make_node
RANDOM = np.random.default_rng(0)
EXTENTS = (0, 1, 5)


@dataclass(frozen=True)
class Case:
    """want: what a run gives, where ONNX Runtime refuses it, ends the process or is wrong."""

    nodes: list[onnx.NodeProto]
    inputs: dict[str, str]
    constants: Arrays = field(default_factory=dict)
    outputs: tuple[str, ...] = ("y",)
    want: Callable[[Arrays], list[np.ndarray]] | None = None
    opset: int = 19


def floats(*shape: int) -> np.ndarray:
    return RANDOM.standard_normal(shape).astype("float32")


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def make_image_cases(axis: str, shape: str) -> dict[str, Case]:
    """Operators over images of 16 channels, of which an axis is e."""
    image, weight = {"x": f"float32[{shape}]"}, floats(20, 16, 3, 3)
    pads = [1, 1, 1, 1]

    def case(*nodes: onnx.NodeProto, **constants: Any) -> Case:
        return Case(list(nodes), image, constants, (nodes[-1].output[0],))

    return {
        f"{name} of {axis}": result
        for name, result in {
            "Conv": case(node("Conv", ["x", "w", "b"], ["y"], pads=pads), w=weight, b=floats(20)),
            "Conv and Relu": case(
                node("Conv", ["x", "w"], ["h"]),
                node("Relu", ["h"], ["y"]),
                w=floats(20, 16, 1, 1),
            ),
            "depthwise Conv": case(
                node("Conv", ["x", "w"], ["y"], pads=pads, group=16), w=floats(16, 1, 3, 3)
            ),
            "Conv in groups": case(
                node("Conv", ["x", "w"], ["y"], pads=pads, group=4), w=floats(20, 4, 3, 3)
            ),
            "ConvTranspose": case(
                node("ConvTranspose", ["x", "w"], ["y"], strides=[2, 2]),
                w=floats(16, 8, 2, 2),
            ),
            "MaxPool": case(node("MaxPool", ["x"], ["y"], kernel_shape=[2, 2])),
            "AveragePool": case(node("AveragePool", ["x"], ["y"], kernel_shape=[2, 2])),
            "GlobalAveragePool": case(node("GlobalAveragePool", ["x"], ["y"])),
            "InstanceNormalization": case(
                node("InstanceNormalization", ["x", "s", "b"], ["y"]),
                s=floats(16),
                b=floats(16),
            ),
            "Resize": case(
                node("Resize", ["x", "", "scales"], ["y"], mode="linear"),
                scales=np.array([1, 1, 2, 2], "float32"),
            ),
        }.items()
    }


def reduce(name: str, axis: int) -> Case:
    """Over axis 1 nothing is combined, over axis 0 there are no results."""
    return Case(
        [node(name, ["x", "axes"], ["y"], keepdims=0)],
        {"x": "float32[3,e]"},
        {"axes": ints(axis)},
    )


def recur(cell: str, gates: int, shape: str) -> Case:
    def want(feed: Arrays) -> list[np.ndarray]:
        steps, batch, _ = feed["x"].shape
        return [np.zeros((steps, 1, batch, 6), "float32"), np.zeros((1, batch, 6), "float32")]

    return Case(
        [node(cell, ["x", "w", "r"], ["y", "last"], hidden_size=6)],
        {"x": f"float32[{shape}]"},
        {"w": floats(1, gates * 6, 5), "r": floats(1, gates * 6, 6)},
        ("y", "last"),
        want,
    )


ATTENTION = [
    node("Transpose", ["k"], ["turned"], perm=[0, 2, 1]),
    node("MatMul", ["q", "turned"], ["products"]),
    node("Mul", ["products", "half"], ["scores"]),
    node("Softmax", ["scores"], ["shares"]),
    node("MatMul", ["shares", "v"], ["y"]),
]


def attend(queries: str, keys: str) -> Case:
    inputs = {"q": queries, "k": keys, "v": keys}
    shapes = {name: f"float32[2,{extent},8]" for name, extent in inputs.items()}

    def want(feed: Arrays) -> list[np.ndarray]:
        q, k, v = (feed[name].astype("float64") for name in "qkv")
        scores = np.exp(q @ k.swapaxes(1, 2) / 2)
        return [(scores / scores.sum(-1, keepdims=True) @ v).astype("float32")]

    # What a query without keys gives is left open: here there are none of either, or keys.
    return Case(ATTENTION, shapes, {"half": np.float32(0.5)}, want=want)


def rows(op: str, shape: str, **attributes: Any) -> Case:
    return Case([node(op, ["x"], ["y"], **attributes)], {"x": f"float32[{shape}]"})


def matmul(left: str, right: str | np.ndarray) -> Case:
    inputs, is_input = {"x": f"float32[{left}]"}, isinstance(right, str)
    return Case(
        [node("MatMul", ["x", "w"], ["y"])],
        {**inputs, "w": f"float32[{right}]"} if is_input else inputs,
        {} if is_input else {"w": right},
    )


CASES = {
    **make_image_cases("no images", "e,16,8,8"),
    **{f"{name} over nothing": reduce(name, 1) for name in (
        "ReduceSum", "ReduceMean", "ReduceProd", "ReduceL1", "ReduceL2", "ReduceSumSquare",
    )},
    **{f"{name} of no rows": reduce(name, 0) for name in ("ReduceSum", "ReduceMax", "ReduceMean")},
    "ArgMax of no rows": rows("ArgMax", "3,e", axis=0),
    "MatMul of no rows": matmul("e,16", floats(16, 24)),
    "MatMul of no batches": matmul("e,5,16", floats(16, 24)),
    "MatMul to no columns": matmul("e,4", floats(4, 0)),
    "MatMul of two tensors": matmul("2,e,8", "2,8,5"),
    "MatMul over nothing": matmul("3,e", "e,4"),
    "Gemm": Case(
        [node("Gemm", ["x", "w", "b"], ["y"], transB=1)],
        {"x": "float32[e,16]"},
        {"w": floats(24, 16), "b": floats(24)},
    ),
    "Gemm over nothing": Case(
        [node("Gemm", ["x", "w", "b"], ["y"])],
        {"x": "float32[3,e]", "w": "float32[e,5]"},
        {"b": floats(5)},
    ),
    "Softmax of no rows": rows("Softmax", "e,7"),
    "Softmax over nothing": rows("Softmax", "3,e"),
    "LogSoftmax over nothing": rows("LogSoftmax", "e,3", axis=0),
    "LayerNormalization": Case(
        [node("LayerNormalization", ["x", "s", "b"], ["y"])],
        {"x": "float32[e,7]"},
        {"s": floats(7), "b": floats(7)},
    ),
    "attention of no queries": attend("e", "5"),
    **{f"{cell} of no rows": recur(cell, gates, "4,e,5") for cell, gates in (
        ("LSTM", 4), ("GRU", 3), ("RNN", 1),
    )},
    "Concat of an empty part": Case(
        [node("Concat", ["x", "z"], ["y"], axis=0)], {"x": "float32[e,4]", "z": "float32[3,4]"}
    ),
    "Concat of an empty constant": Case(
        [node("Concat", ["c", "x"], ["y"], axis=0)], {"x": "float32[e,4]"}, {"c": floats(0, 4)}
    ),
    "Slice to nothing": Case(
        [node("Slice", ["x", "at", "at", "axis"], ["y"])],
        {"x": "float32[e,5]"},
        {"at": ints(3), "axis": ints(1)},
    ),
    "Slice to nothing and MatMul": Case(
        [node("Slice", ["x", "at", "at", "axis"], ["h"]), node("MatMul", ["h", "w"], ["y"])],
        {"x": "float32[e,16]"},
        {"at": ints(2), "axis": ints(0), "w": floats(16, 8)},
    ),
    "Gather of none": Case(
        [node("Gather", ["x", "i"], ["y"])], {"x": "float32[5,4]", "i": "int64[e]"}
    ),
    "Gather by no constant": Case(
        [node("Gather", ["x", "i"], ["y"])], {"x": "float32[e,4]"}, {"i": np.zeros(0, np.int64)}
    ),
    "Gather of no columns": Case(
        [node("Gather", ["w", "i"], ["y"])], {"i": "int64[2,e]"}, {"w": floats(7, 0)}
    ),
    "ScatterND of none": Case(
        [node("ScatterND", ["x", "i", "u"], ["y"])],
        {"x": "float32[3,5]", "i": "int64[e,1]", "u": "float32[e,5]"},
    ),
    "TopK of no rows": Case(
        [node("TopK", ["x", "k"], ["y", "j"])], {"x": "float32[e,5]"}, {"k": ints(2)}, ("y", "j")
    ),
    "TopK of nothing": Case(
        [node("TopK", ["x", "k"], ["y", "j"])], {"x": "float32[e,5]"}, {"k": ints(0)}, ("y", "j")
    ),
    "CumSum": Case(
        [node("CumSum", ["x", "a"], ["y"])], {"x": "float32[3,e,2]"}, {"a": np.array(0)}
    ),
    "DepthToSpace": rows("DepthToSpace", "e,8,2,2", blocksize=2),
    "Transpose": rows("Transpose", "e,3,4", perm=[2, 0, 1]),
    "NonZero": rows("NonZero", "3,e"),
    "Trilu": rows("Trilu", "2,e,3"),
    "Unique": rows("Unique", "e"),
    "Split": Case(
        [node("Split", ["x", "sizes"], ["y", "none", "z"], axis=1)],
        {"x": "float32[e,5]"},
        {"sizes": ints(2, 0, 3)},
        ("y", "none", "z"),
    ),
    "dynamic quantization": Case(
        [
            node("DynamicQuantizeLinear", ["x"], ["q", "s", "zero"]),
            node("MatMulInteger", ["q", "w", "zero"], ["sums"]),
            node("Cast", ["sums"], ["wide"], to=1),
            node("Mul", ["wide", "s"], ["y"]),
        ],
        {"x": "float32[e,16]"},
        {"w": RANDOM.integers(-9, 9, (16, 8)).astype("int8")},
    ),
}  # fmt: skip


def feed_of(case: Case, extent: int) -> dict[str, np.ndarray]:
    feed = {}
    for name, spec in case.inputs.items():
        dtype, axes = spec.rstrip("]").split("[")
        shape = [extent if axis == "e" else int(axis) for axis in axes.split(",")]
        values = RANDOM.integers(0, 2, shape) if dtype == "int64" else RANDOM.standard_normal(shape)
        feed[name] = values.astype(dtype)
    return feed


@pytest.mark.parametrize("declared", [0, (0, 9)], ids=["known", "by a run"])
@pytest.mark.parametrize("name", CASES)
def test_like_onnxruntime(name: str, declared: Any) -> None:
    case = CASES[name]
    model = model_of(
        case.nodes, case.inputs, case.constants, opset=case.opset, outputs=case.outputs
    )
    built = build(model, {"e": declared})
    for extent in EXTENTS[:1] if declared == 0 else EXTENTS:
        feed = feed_of(case, extent)
        got = built.run(feed)
        recurrence = case.nodes[0].op_type in ("LSTM", "GRU", "RNN")
        if case.want is not None and (extent == 0 or not recurrence):
            want = case.want(feed)
        else:
            want = session_of(model).run(None, feed)
        assert_close(got, want, case.outputs)


def test_nothing_is_computed_of_what_is_empty() -> None:
    op = relax.op

    def graph(builder: Any, x: Any, y: Any) -> Any:
        lhs = builder.emit(op.matmul(x, relax.const(floats(8, 4))))
        joined = builder.emit(op.concat([lhs, y], 0))
        return op.add(joined, builder.emit(op.mean(lhs, 0, True)))

    def wanted(builder: Any, x: Any, y: Any) -> Any:
        nan = builder.emit(op.broadcast_to(relax.const(np.full((1, 1), np.nan, "float32")), (1, 4)))
        return op.add(y, nan)

    inputs: dict[str, Any] = {"x": ((0, 8), "float32"), "y": (("n", 4), "float32")}
    dropped = DropEmpty().apply(build_module(graph, inputs))
    tvm.ir.assert_structural_equal(dropped, build_module(wanted, inputs), map_free_vars=True)


def test_other_modules_stay() -> None:
    module = build_module(lambda b, x: relax.op.exp(x), {"x": (("n", 4), "float32")})
    assert DropEmpty().apply(module).same_as(module)
