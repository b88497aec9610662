"""Extents in one form each, so that programs match what they are called with."""

from itertools import product
from typing import Any

import numpy as np
import pytest
import tvm
import tvm_ffi
from onnx import NodeProto, helper
from tvm import relax, te, tirx

from compiler.passes.simplify.simplify_extents import SimplifyExtents
from tests.compiler.ir.onnx.running import model_of
from tests.compiler.passes.lowered import assert_like_onnxruntime

CHANNELS = 8
node = helper.make_node


def calling(extent: Any) -> tvm.IRModule:
    """main(x) = x + 1 in a program of its own, over an extent of the dim n."""
    n = tirx.Var("n", "int64")
    x = relax.Var("x", relax.TensorType([n], "float32"))
    y = relax.Var("y", relax.TensorType([extent(n)], "float32"))
    placeholder = te.placeholder([extent(n)], name="a")
    shifted = te.compute([extent(n)], lambda i: placeholder[i] + 1.0, name="b")
    program = te.create_prim_func([placeholder, n, shifted], "int64")
    builder = relax.BlockBuilder()
    with builder.function("main", [x, y]):
        with builder.dataflow():
            gvar = builder.add_func(program.without_attr("global_symbol"), "shifted")
            call = relax.call_tir(gvar, [y, n], relax.TensorType([extent(n)], "float32"))
            result = builder.emit_output(call)
        builder.emit_func_output(result)
    return builder.get()


@pytest.mark.parametrize(
    "extent",
    [lambda n: 2 + n, lambda n: n + 4 - 2, lambda n: (n * 2 + 4) // 2],
    ids=["constant first", "sum of constants", "exact quotient"],
)
def test_an_extent_has_one_form(extent: Any) -> None:
    """In the graph and in the program."""
    simplified = SimplifyExtents().apply(calling(extent))
    tvm.ir.assert_structural_equal(simplified, calling(lambda n: n + 2))


def test_simple_functions_stay() -> None:
    module = calling(lambda n: n)
    for gvar, func in SimplifyExtents().apply(module).functions.items():
        assert tvm_ffi.structural_equal(func, module[gvar])


def parts_of(kinds: str, axes: tuple[str, ...]) -> tuple[dict[str, str], dict[str, Any]]:
    """Inputs and constants of a concatenation along the last axis: x and y are streams of dims of
    their own, c a cache of two columns, k a constant of three.
    """
    inputs: dict[str, str] = {}
    constants: dict[str, Any] = {}
    lead = ",".join(("1", str(CHANNELS), *axes))
    for index, kind in enumerate(kinds):
        if kind == "k":
            shape = (1, CHANNELS, *map(int, axes), 3)
            constants[f"k{index}"] = np.linspace(-1, 1, int(np.prod(shape))).reshape(shape)
        else:
            extent = {"x": "t", "y": "s", "c": "2"}[kind]
            inputs[f"{kind}{index}"] = f"float32[{lead},{extent}]"
    return inputs, {name: value.astype("float32") for name, value in constants.items()}


EPILOGUES: dict[str, list[NodeProto]] = {
    "none": [],
    "relu": [node("Relu", ["h"], ["y"])],
    "clip": [node("Clip", ["h", "zero", "six"], ["y"])],
    "batch norm": [node("BatchNormalization", ["h", "scale", "shift", "shift", "scale"], ["y"])],
    "instance norm": [node("InstanceNormalization", ["h", "scale", "shift"], ["y"])],
    "residual": [node("Add", ["h", "other"], ["y"])],
    "gate": [node("Sigmoid", ["h"], ["gate"]), node("Mul", ["h", "gate"], ["y"])],
    "hard-swish": [node("HardSwish", ["h"], ["y"])],
}
PARTS = ("cx", "xc", "kx", "xk", "cxc", "kcx", "kxc", "xy", "cxy", "xyk")
GROUPS = (1, CHANNELS, 4)
STRIDES_DILATIONS_PADS = ((1, 1, 0), (2, 1, 1), (1, 2, 0), (2, 2, 1))
CASES = [
    (parts, epilogue, rank, GROUPS[index % 3], *STRIDES_DILATIONS_PADS[index // 3 % 4])
    for index, (parts, epilogue, rank) in enumerate(product(PARTS, EPILOGUES, (1, 2)))
    # Each value of each option occurs: all products would take minutes.
    if index % 7 == 0
]


@pytest.mark.parametrize(
    ("parts", "epilogue", "rank", "groups", "stride", "dilation", "pad"), CASES
)
def test_a_convolution_behind_a_concatenation(
    parts: str,
    epilogue: str,
    rank: int,
    groups: int,
    stride: int,
    dilation: int,
    pad: int,
    draw: np.random.Generator,
) -> None:
    """Streaming and causal convolutions are like this: the last columns go into the next cache."""
    inputs, constants = parts_of(parts, ("5",) * (rank - 1))
    window: dict[str, Any] = {
        "kernel_shape": [1] * (rank - 1) + [3],
        "group": groups,
        "strides": [1] * (rank - 1) + [stride],
        "dilations": [1] * (rank - 1) + [dilation],
        "pads": ([0] * (rank - 1) + [pad]) * 2,
    }
    weight = (CHANNELS, CHANNELS // groups, *window["kernel_shape"])
    nodes = [
        node("Concat", list(inputs | constants), ["joined"], axis=-1),
        node("Conv", ["joined", "weight", "shift"], ["h"], **window),
        node("Conv", ["joined", "weight"], ["other"], **window),
        *EPILOGUES[epilogue],
        node("Slice", ["joined", "from", "to", "axis"], ["cache"]),
    ]
    constants |= {
        "weight": draw.standard_normal(weight).astype("float32"),
        "shift": draw.standard_normal(CHANNELS).astype("float32"),
        "scale": draw.uniform(0.5, 2, CHANNELS).astype("float32"),
        "zero": np.float32(0),
        "six": np.float32(6),
        "from": np.array([-2]),
        "to": np.array([2**31 - 1]),
        "axis": np.array([-1]),
    }
    outputs = ["y" if EPILOGUES[epilogue] else "h", "cache"]
    model = model_of(nodes, inputs, constants, outputs=outputs)
    feeds = [
        {
            name: draw.standard_normal(
                [{"t": t, "s": s}.get(axis) or int(axis) for axis in spec[8:-1].split(",")]
            ).astype("float32")
            for name, spec in inputs.items()
        }
        for t, s in ((4, 1), (7, 9), (17, 16), (64, 31))
    ]
    dims = {"t": (4, 64), "s": (1, 31)} if "y" in parts else {"t": (4, 64)}
    assert_like_onnxruntime(model, feeds, dims)
