"""Types of 8 bits and fewer in models: cast, moved, looped over and multiplied, beside onnx's own
evaluator.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from compiler.errors import ImportFailed
from compiler.ir.onnx.model.dtypes import DTYPES
from relaxd.contract.dims.tensors import STORAGE, storage_of
from tests.compiler.ir.onnx.running import assert_close, build, normal
from tests.compiler.ir.onnx.small_type_models import (
    CODES,
    Array,
    assert_equal,
    assert_same,
    bytes_of,
    evaluate,
    model_of,
    patterns,
    run,
)

NODE = helper.make_node


def casts(source: str, targets: Sequence[str], **attributes: Any) -> onnx.ModelProto:
    nodes = [NODE("Cast", ["x"], [to], to=CODES[to], **attributes) for to in targets]
    return model_of(nodes, {"x": (source, ["n"])}, {to: to for to in targets})


def feeds(x: Array) -> list[dict[str, Array]]:
    return [{"x": x}, {"x": x[:1]}, {"x": x[:0]}]


def assert_casts(x: Array, targets: Sequence[str]) -> None:
    """Equal to casts of the same numbers in float32, which holds all of them: ml_dtypes has no
    casts between its own types.
    """
    targets = [target for target in targets if target != x.dtype.name]
    built, plain = build(casts(x.dtype.name, targets)), casts("float32", targets)
    for feed in feeds(x):
        want = evaluate(plain, {"x": feed["x"].astype("f4")})
        assert_equal(built, run(built, feed), want)


@pytest.mark.parametrize("source", STORAGE)
def test_every_element_is_cast_to_every_type(source: str) -> None:
    """Small integers and powers of two have undefined casts; see the tests below."""
    standard = [t for t in DTYPES.values() if "float" in t or t == "bool"]
    targets = [*standard, *(t for t in STORAGE if "float" in t and t != "float8_e8m0fnu")]
    assert_casts(patterns(source), targets)


@pytest.mark.parametrize("source", STORAGE)
def test_elements_become_integers(source: str) -> None:
    targets = ["int8", "int16", "int32", "int64", *(t for t in STORAGE if "int" in t)]
    x = patterns(source)
    # A cast that overflows is not defined.
    assert_casts(x[np.abs(x.astype(np.float32)) < 128], targets)


@pytest.mark.parametrize("source", DTYPES.values())
@pytest.mark.parametrize("saturate", [0, 1])
def test_every_type_is_cast_to_small_floats(source: str, saturate: int) -> None:
    targets = [t for t in STORAGE if "float" in t and t != "float8_e8m0fnu"]
    model = casts(source, targets, saturate=saturate)
    values = normal(301, dtype="float64") * 2.0 ** np.linspace(-20, 20, 301)
    edges = [0.0, -0.0, 1e9, -1e9, 448, 464, 465, 57344, 61440, 240, 248, 5, 2.5, 1.75]
    if "float" in source:
        with np.errstate(over="ignore", invalid="ignore"):
            x = np.array([*values, *edges, np.nan, np.inf, -np.inf]).astype(source)
    else:
        low, high = (0, 1) if source == "bool" else (np.iinfo(source).min, np.iinfo(source).max)
        x = np.clip(np.array([*values, *edges]), max(low, -(2**40)), min(high, 2**40))
        x = x.astype(source)
    built = build(model)
    for feed in feeds(x):
        assert_same(built, model, feed)


@pytest.mark.parametrize("source", DTYPES.values())
def test_every_type_is_cast_to_small_integers(source: str) -> None:
    targets = [t for t in STORAGE if "int" in t]
    model = casts(source, targets)
    low = 0 if source.startswith(("uint", "bool")) else -40
    x = np.arange(low, 41)
    x = (x + 0.25 * np.sign(x) if "float" in source else x).astype(source)
    built = build(model)
    for feed in feeds(x):
        assert_same(built, model, feed)


@pytest.mark.parametrize("round_mode", ["up", "down", "nearest"])
@pytest.mark.parametrize("source", ["float32", "float16", "bfloat16", "int32"])
def test_powers_of_two_round_as_asked(source: str, round_mode: str) -> None:
    model = casts(source, ["float8_e8m0fnu"], round_mode=round_mode)
    with np.errstate(over="ignore"):
        x = np.array([1, 1.25, 1.5, 1.75, 2, 3, 100, 6e4, 0.001, 1e-5]).astype(source)
    x = x[x > 0]
    assert_same(build(model), model, {"x": x})


@pytest.mark.parametrize("like", STORAGE)
def test_cast_like(like: str) -> None:
    nodes = [NODE("CastLike", ["x", "like"], ["y"])]
    inputs = {"x": ("float32", ["n"]), "like": (like, ["m"])}
    model = model_of(nodes, inputs, {"y": like})
    x = np.abs(normal(31)) if like == "float8_e8m0fnu" else normal(31) * 3
    assert_same(build(model), model, {"x": x, "like": patterns(like)[:3]})


MOVES = [
    NODE("Identity", ["x"], ["a"]),
    NODE("Transpose", ["a"], ["b"], perm=[1, 0]),
    NODE("Reshape", ["b", "flat"], ["c"]),
    NODE("Unsqueeze", ["c", "zero"], ["d"]),
    NODE("Squeeze", ["d", "zero"], ["e"]),
    NODE("Concat", ["e", "c"], ["f"], axis=0),
    NODE("Slice", ["f", "zero", "two", "zero"], ["g"]),
    NODE("Gather", ["g", "order"], ["h"], axis=0),
    NODE("Split", ["f"], ["i", "j"], axis=0, num_outputs=2),
    NODE("Pad", ["h", "pads", "w"], ["k"]),
    NODE("Where", ["truth", "i", "w"], ["l"]),
    NODE("Flatten", ["x"], ["m"]),
    NODE("Tile", ["h", "two"], ["o"]),
    NODE("Expand", ["w", "wide"], ["p"]),
    NODE("Shape", ["f"], ["q"]),
    NODE("DepthToSpace", ["image"], ["r"], blocksize=2),
]


@pytest.mark.parametrize("dtype", STORAGE)
def test_elements_are_moved(dtype: str) -> None:
    """The padding and the other side of Where are a constant of the type."""
    outputs = dict.fromkeys("chijklmopr", dtype) | {"q": "int64"}
    constants = {
        "flat": np.array([-1]), "zero": np.array([0]), "two": np.array([2]),
        "order": np.array([1, 0, 1]), "pads": np.array([1, 2]), "wide": np.array([3, 2]),
        "w": np.array(1).astype(dtype), "truth": np.array([True, False, True]).repeat(2),
    }  # fmt: skip
    inputs = {"x": (dtype, ["n", 3]), "image": (dtype, [1, 4, "n", 1])}
    model = model_of(MOVES, inputs, outputs, constants)
    x = np.resize(patterns(dtype), (2, 3))
    image = np.resize(patterns(dtype), (1, 4, 2, 1))
    assert_same(build(model), model, {"x": x, "image": image})


def test_constants_of_a_type_are_outputs() -> None:
    value = helper.make_tensor("v", TensorProto.INT4, [1], [-3])
    eight = numpy_helper.from_array(np.array([1.5], "float8_e5m2"))
    nodes = [
        NODE("Shape", ["x"], ["shape"]),
        NODE("ConstantOfShape", ["shape"], ["y"], value=value),
        NODE("Constant", [], ["z"], value=eight),
        NODE("Identity", ["w"], ["v"]),
    ]
    outputs = {"y": "int4", "z": "float8_e5m2", "v": "uint2"}
    w = {"w": patterns("uint2")}
    model = model_of(nodes, {"x": ("float32", ["n", 3])}, outputs, w)
    assert_same(build(model), model, {"x": normal(5, 3)})


def branch_of(node: onnx.NodeProto, dtype: str) -> onnx.GraphProto:
    out = helper.make_tensor_value_info(node.output[0], CODES[dtype], None)
    return helper.make_graph([node], "branch", [], [out])


def looping_model(dtype: str, trips: str) -> onnx.ModelProto:
    """A Loop whose state turns and whose outputs stack, under an If that looks at the input."""
    info = helper.make_tensor_value_info
    state = info("s", CODES[dtype], [3])
    body = helper.make_graph(
        [
            NODE("Identity", ["c"], ["go"]),
            NODE("Gather", ["s", "turned"], ["t"], axis=0),
            NODE("Identity", ["t"], ["u"]),
        ],
        "body",
        [info("i", TensorProto.INT64, []), info("c", TensorProto.BOOL, []), state],
        [
            info("go", TensorProto.BOOL, []),
            info("t", CODES[dtype], [3]),
            info("u", CODES[dtype], [3]),
        ],
    )
    step = helper.make_graph(
        [NODE("Identity", ["k"], ["l"]), NODE("Identity", ["v"], ["o"])],
        "step",
        [info("k", CODES[dtype], [3]), info("v", CODES[dtype], [])],
        [info("l", CODES[dtype], [3]), info("o", CODES[dtype], [])],
    )
    nodes = [
        NODE("If", ["flag"], ["first"],
             then_branch=branch_of(NODE("Identity", ["x"], ["p"]), dtype),
             else_branch=branch_of(NODE("Identity", ["w"], ["q"]), dtype)),
        NODE("Loop", [trips, "yes", "first"], ["last", "stack"], body=body),
        NODE("Scan", ["first", "x"], ["kept", "copy"], body=step, num_scan_inputs=1),
    ]  # fmt: skip
    inputs = {"x": (dtype, [3]), "flag": ("bool", []), "n": ("int64", [])}
    constants = {
        "w": np.resize(patterns(dtype)[::-1], 3), "turned": np.array([2, 0, 1]),
        "four": np.array(4), "yes": np.array(True),
    }  # fmt: skip
    outputs = dict.fromkeys(("last", "stack", "kept", "copy"), dtype)
    return model_of(nodes, inputs, outputs, constants)


@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "int4"])
@pytest.mark.parametrize("trips", ["n", "four"])
def test_branches_and_loops_carry_them(dtype: str, trips: str) -> None:
    model = looping_model(dtype, trips)
    built = build(model)
    for flag in (True, False):
        x = patterns(dtype)[:3]
        assert_same(built, model, {"x": x, "flag": np.array(flag), "n": np.array(5)})


def test_numbers_are_compared() -> None:
    nodes = [
        NODE("IsNaN", ["x"], ["nan"]),
        NODE("IsInf", ["x"], ["inf"]),
        NODE("Equal", ["x", "y"], ["same"]),
    ]
    dtype = "float8_e5m2"
    outputs = dict.fromkeys(("nan", "inf", "same"), "bool")
    inputs = {"x": (dtype, ["n"]), "y": (dtype, ["n"])}
    model = model_of(nodes, inputs, outputs)
    x = patterns(dtype)
    y = np.where(np.arange(256) % 2, x, x[::-1])
    got = run(build(model), {"x": x, "y": y})
    np.testing.assert_array_equal(got["nan"], np.isnan(x.astype("f4")))
    np.testing.assert_array_equal(got["inf"], np.isinf(x.astype("f4")))
    np.testing.assert_array_equal(got["same"], x.astype("f4") == y.astype("f4"))


@pytest.mark.parametrize(
    ("source", "to"),
    [("int4", "uint4"), ("uint4", "int4"), ("int8", "float8_e4m3fn"), ("float8_e5m2", "int8"),
     ("float4_e2m1fn", "int4"), ("uint2", "int2"), ("float8_e4m3fn", "float8_e5m2")],
)  # fmt: skip
def test_bits_are_read_as_another_type(source: str, to: str) -> None:
    nodes = [NODE("BitCast", ["x"], ["y"], to=CODES[to])]
    model = model_of(nodes, {"x": (source, ["n"])}, {"y": to})
    model.opset_import[0].version = 26
    x = patterns(source) if source in STORAGE else np.arange(-128, 128).astype(source)
    (got,) = run(build(model), {"x": x}).values()
    bits = 2 if to.endswith("2") else 8 if "8" in to else 4
    mask = np.uint8((1 << bits) - 1)
    np.testing.assert_array_equal(got.view(np.uint8) & mask, bytes_of(x).view(np.uint8) & mask)
    assert got.dtype == storage_of(to)


@pytest.mark.parametrize("kind", ["int4", "uint4", "int2", "uint2"])
def test_weights_in_blocks(kind: str) -> None:
    """Weights that are constants, and weights that are inputs."""
    weight = np.resize(patterns(kind), (6, 5))
    zero, scale = np.resize(patterns(kind)[::-1], (2, 5)), np.abs(normal(2, 5))
    nodes = [
        NODE("DequantizeLinear", ["w", "s", "z"], ["real"], axis=0, block_size=3),
        NODE("MatMul", ["x", "real"], ["y"]),
    ]
    constants = {"w": weight, "s": scale, "z": zero}
    fixed = build(model_of(nodes, {"x": ("float32", ["n", 6])}, {"y": "float32"}, constants))
    inputs: dict[str, tuple[str, list[Any]]] = {
        "x": ("float32", ["n", 6]),
        "w": (kind, [6, 5]),
        "z": (kind, [2, 5]),
    }
    computed = build(model_of(nodes, inputs, {"y": "float32"}, {"s": scale}))
    real = (weight.astype("f4") - zero.astype("f4").repeat(3, 0)) * scale.repeat(3, 0)
    for n in (0, 1, 4):
        x = normal(n, 6)
        assert_close(fixed.run({"x": x}), [x @ real], ["y"])
        got = run(computed, {"x": x, "w": weight, "z": zero})
        assert_close([got["y"]], [x @ real], ["y"])


def test_arithmetic_on_bits_is_refused() -> None:
    nodes = [NODE("Add", ["x", "x"], ["y"])]
    model = model_of(nodes, {"x": ("float8_e5m2", ["n"])}, {"y": "float8_e5m2"})
    with pytest.raises(ImportFailed, match="Add of float8_e5m2") as caught:
        build(model)
    assert "float32" in (caught.value.failure.hint or "")


def test_two_types_in_one_concat_are_refused() -> None:
    nodes = [NODE("Concat", ["x", "y"], ["z"], axis=0)]
    inputs = {"x": ("float8_e5m2", ["n"]), "y": ("uint8", ["n"])}
    with pytest.raises(ImportFailed, match="float8_e5m2 and uint8 in one Concat"):
        build(model_of(nodes, inputs, {"z": "uint8"}))


def test_a_branch_must_declare_what_it_gives() -> None:
    model = looping_model("int4", "n")
    branch = model.graph.node[0].attribute[0].g
    branch.output[0].type.tensor_type.elem_type = 0
    with pytest.raises(ImportFailed, match="declared as nothing"):
        build(model)


def test_a_type_without_zero_is_not_padded_with_it() -> None:
    nodes = [NODE("Pad", ["x", "pads"], ["y"])]
    kind = "float8_e8m0fnu"
    model = model_of(nodes, {"x": (kind, ["n"])}, {"y": kind}, {"pads": np.array([1, 1])})
    with pytest.raises(ImportFailed, match="Pad of float8_e8m0fnu"):
        build(model)
