"""Models in float64: constants, casts and subgraphs are widened, and the outputs show it."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

from compiler.verify.reference.float64 import DEFINITION, EXACT, Float64, widen_node

HEADER = '<ir_version: 9, opset_import: ["": 17, "com.microsoft": 1]>'
ENGINES = pytest.mark.parametrize("engines", [EXACT, DEFINITION], ids=["exact", "definition"])


def model_of(text: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(f"{HEADER} g {text}")


def evaluator(folder: Path, model: onnx.ModelProto, engines: Any = EXACT) -> Float64:
    onnx.save(model, folder / "m.onnx")
    return Float64(str(folder / "m.onnx"), engines)


CASES = [
    ("(float[n] x) => (float[n] y) { y = Div(x, x) }", lambda x: x / x),
    (
        "(float[n] x) => (float[n] y) <float[1] w = {3}> { a = Mul(x, x) y = Div(a, w) }",
        lambda x: x * x / 3,
    ),
    (
        "(float[n] x) => (float[n] y) "
        "{ w = Constant<value = float[1] {7}>() a = Cast<to = 1>(x) y = Div(a, w) }",
        lambda x: x / 7,
    ),
    (
        "(float[n] x) => (float[n] y) { w = Constant<value_float = 7.0>() y = Div(x, w) }",
        lambda x: x / 7,
    ),
    (
        "(float[n] x) => (float[n] y) <bool c = {1}> { y = If(c) <"
        "then_branch = t () => (float[n] u) "
        "{ w = Constant<value = float[1] {7}>() u = Div(x, w) }, "
        "else_branch = e () => (float[n] v) { v = Identity(x) }> }",
        lambda x: x / 7,
    ),
    # A cast to fewer bits is the model's own rounding.
    (
        "(float[n] x) => (float[n] y) { a = Cast<to = 10>(x) b = Cast<to = 1>(a) y = Mul(b, b) }",
        lambda x: x.astype("float16").astype("float64") ** 2,
    ),
]


@ENGINES
@pytest.mark.parametrize(("text", "right"), CASES)
def test_outputs_have_the_precision_of_float64(
    text: str, right: Any, engines: Any, tmp_path: Path
) -> None:
    x = np.array([0.1, 0.7, 3.3], np.float32)
    result = evaluator(tmp_path, model_of(text), engines).run({"x": x}, {})
    assert result["y"].dtype == np.float64
    np.testing.assert_allclose(result["y"], right(x.astype("float64")), rtol=1e-15)


def test_the_node_itself_stays_as_it_is() -> None:
    node = model_of(CASES[2][0]).graph.node[0]
    before = node.SerializeToString()
    assert widen_node(node).attribute[0].t.data_type == onnx.TensorProto.DOUBLE
    assert node.SerializeToString() == before


def test_an_operator_without_float64_is_named(tmp_path: Path) -> None:
    model = model_of(
        "(float[1,1,4,4] x, float[n,4] rois, int32[n] batch, int32[2] size) => (float[a,b,c,d] y) "
        "{ a = com.microsoft.CropAndResize(x, rois, batch, size) y = Add(a, a) }"
    )
    feed = {
        "x": np.ones((1, 1, 4, 4), np.float32),
        "rois": np.array([[0, 0, 1, 1]], np.float32),
        "batch": np.zeros(1, np.int32),
        "size": np.full(2, 3, np.int32),
    }
    result = evaluator(tmp_path, model)
    assert result.run(feed, {})["y"].dtype == np.float64
    assert result.float32 == {"CropAndResize"}


def test_what_no_engine_knows_is_an_error(tmp_path: Path) -> None:
    model = model_of("(float[n] x) => (float[n] y) { y = com.microsoft.Nothing(x) }")
    with pytest.raises(RuntimeError, match="Nothing"):
        evaluator(tmp_path, model).run({"x": np.ones(3, np.float32)}, {})


def test_fixed_inputs_and_sequences(tmp_path: Path) -> None:
    model = model_of(
        "(float[n] x, float[1] k) => (float[m] y) "
        "{ s = SequenceConstruct(x, x) a = ConcatFromSequence<axis = 0>(s) y = Div(a, k) }"
    )
    result = evaluator(tmp_path, model).run({"x": np.ones(2, np.float32)}, {"k": 3})
    np.testing.assert_array_equal(result["y"], np.full(4, 1 / 3))


@pytest.mark.parametrize(
    ("attributes", "x", "w"),
    [
        ("", (2, 3, 9, 8), (4, 3, 3, 3)),
        ("pads = [1, 2, 0, 1], strides = [2, 1]", (1, 2, 9, 8), (4, 2, 3, 2)),
        ("group = 4, dilations = [2, 3], pads = [2, 3, 2, 3]", (1, 8, 9, 8), (8, 2, 3, 3)),
        ('group = 6, auto_pad = "SAME_UPPER", strides = [2, 2]', (1, 6, 9, 8), (6, 1, 4, 3)),
        ('auto_pad = "SAME_LOWER"', (1, 2, 7, 7), (3, 2, 4, 2)),
        ("pads = [2, 1]", (1, 3, 11), (5, 3, 4)),
        ("strides = [1, 2, 1]", (1, 2, 4, 5, 6), (3, 2, 2, 3, 2)),
    ],
)
def test_convolutions(
    attributes: str, x: tuple[int, ...], w: tuple[int, ...], tmp_path: Path
) -> None:
    random, rank = np.random.default_rng(0), len(x)
    kinds = [f"float[{','.join(map(str, shape))}] {name}" for name, shape in (("x", x), ("w", w))]
    axes = ",".join("abcde"[:rank])
    conv = f"Conv<{attributes}>" if attributes else "Conv"
    declared = ", ".join([*kinds, f"float[{w[0]}] b"])
    model = model_of(f"({declared}) => (float[{axes}] y) {{ y = {conv}(x, w, b) }}")
    feed = {
        name: random.standard_normal(shape).astype("float32")
        for name, shape in (("x", x), ("w", w), ("b", w[:1]))
    }
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    (want,) = session.run(None, feed)
    result = evaluator(tmp_path, model).run(feed, {})["y"]
    assert result.dtype == np.float64
    np.testing.assert_allclose(result, want, rtol=1e-4, atol=1e-5)
